"""What recorded each kernel that a CUDA graph replays, when the graph was captured.

A replayed kernel names no operator: the program called it when the graph was captured. Node ids lead back where the
profiler recorded them (`graph_nodes.graph_node_id`); else the kernels of a graph launch, in order, are held against the
kernels that each capture recorded, by name, grid and block. A graph of which less than `JOINED_SHARE` is certain, or
one whose kernels were captured in another shape, is joined to nothing.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink._native import first_places
from timesink.knowledge.assumptions import replay
from timesink.knowledge.calls import GRAPH_LAUNCH
from timesink.knowledge.ranges import CAPTURED_SIZE, STATED_SIZE
from timesink.model.alignment import aligned, in_order, launching_calls, reshaped
from timesink.model.arrays import BoolArray, Int64Array, IntArray, flag_at, found_at, none_of
from timesink.model.names import mapped, matches
from timesink.model.nesting import Nesting
from timesink.model.tables import API_CALLS, DEVICE_OPS, GRAPH_NODES, LAUNCH_SHAPE, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record, field

OTHER_SHAPE: Final = "their kernels were captured in other launch shapes, as of another batch size"
OTHER_KERNELS: Final = "their kernels are not those that were captured"
SEVERAL: Final = "several captures fit them equally well"


class GraphReplays(Record, eq=False):
    """`node`: for each row of `device_ops`, the row of `graph_nodes` that the kernel replays, or -1.

    `replayed` kernels were run by graph launches, `joined` of them were found, `by_node` by their node ids. `refused`
    counts kernels by why they were not.
    """

    node: Int64Array
    replayed: int
    joined: int
    by_node: int
    refused: dict[str, int] = field(default_factory=dict)


@remembered
def graph_replays(trace: Trace) -> GraphReplays:
    """Join what the trace's graph launches replay to what its captures recorded, as far as it holds both."""
    ops, nodes = trace.get(DEVICE_OPS), trace.get(GRAPH_NODES)
    node: Int64Array = none_of(ops.height, np.int64)
    if not ops.height:
        return GraphReplays(node, 0, 0, 0)
    launch = launching_calls(ops, trace.get(API_CALLS))
    replayed = _replayed_kernels(trace, launch)
    if not nodes.height:
        return GraphReplays(node, int(np.count_nonzero(replayed)), 0, 0)
    node = _join_by_node_id(ops, nodes, replayed)
    by_node = int(np.count_nonzero(node >= 0))
    refused: dict[str, int] = {}
    named = np.flatnonzero(nodes["name"].is_not_null().to_numpy())
    if named.size:
        left = np.where(replayed & (node < 0), launch, -1)
        by_name, refused = _join_by_name(trace, nodes[named], left)
        node = np.where(by_name >= 0, named[by_name], node)
    return GraphReplays(node, int(np.count_nonzero(replayed)), int(np.count_nonzero(node >= 0)), by_node, refused)


def _replayed_kernels(trace: Trace, launch: IntArray) -> BoolArray:
    """For each row of `device_ops`, whether it is a kernel that a graph launch ran."""
    ops = trace.get(DEVICE_OPS)
    by_call = flag_at(matches(trace.get(API_CALLS)["name"], GRAPH_LAUNCH).to_numpy(), launch)
    by_id = ops["graph_id"].is_not_null().to_numpy() | ops["graph_node_id"].is_not_null().to_numpy()
    return np.asarray((by_call | by_id) & (ops["kind"] == "kernel").to_numpy(), np.bool_)


def _join_by_node_id(ops: pl.DataFrame, nodes: pl.DataFrame, wanted: BoolArray) -> Int64Array:
    """For each op that names a node of its process, the row of that node."""
    node = np.full(ops.height, -1, np.int64)
    identified = nodes.with_row_index("row").filter(pl.col("graph_node_id").is_not_null())
    for (rank, process), rows in identified.partition_by("rank", "process", as_dict=True).items():
        mine = np.flatnonzero(wanted & ((ops["rank"] == rank) & (ops["process"] == process)).to_numpy())
        ids = ops["graph_node_id"][mine].fill_null(-1).to_numpy()
        at = first_places(ids, rows["graph_node_id"].to_numpy())
        node[mine[at >= 0]] = rows["row"].to_numpy()[at[at >= 0]]
    return node


class _Sequence(Record, eq=False):
    """Kernels in order, of one launch or of one capture: their rows (of `device_ops`, of the nodes), each as a number
    that stands for name, grid and block, and for the name alone. `size` is how many tokens or requests it says it is
    for, -1 where it does not."""

    rows: Int64Array
    kernels: Int64Array
    names: Int64Array
    size: int


def _join_by_name(trace: Trace, nodes: pl.DataFrame, launch: IntArray) -> tuple[Int64Array, dict[str, int]]:
    """The node of each op that some capture of its rank explains; and how many are refused, by reason.
    `launch` is the graph launch that ran each op to be explained, -1 for others."""
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    node = np.full(ops.height, -1, np.int64)
    refused: dict[str, int] = defaultdict(int)
    of_ops, of_nodes = _number_kernels(ops, nodes)
    asked = np.full(calls.height, -1, np.int64)
    launching = np.unique(launch[launch >= 0])
    asked[launching] = _read_stated_sizes(trace, calls[launching], STATED_SIZE)
    captured = _read_stated_sizes(trace, nodes.rename({"recorded_ns": "start_ns"}), CAPTURED_SIZE)
    for rank in ops["rank"].unique().sort():
        mine = np.flatnonzero((launch >= 0) & (ops["rank"] == rank).to_numpy())
        order = mine[np.lexsort((ops["start_ns"].to_numpy()[mine], launch[mine]))]
        parts = np.split(order, np.flatnonzero(np.diff(launch[order])) + 1) if order.size else []
        parts.sort(key=lambda rows: int(ops["start_ns"][int(rows[0])]))
        launches = [_Sequence(rows, of_ops[0][rows], of_ops[1][rows], int(asked[launch[rows[0]]])) for rows in parts]
        captures = [
            _Sequence(rows, of_nodes[0][rows], of_nodes[1][rows], int(captured[rows[0]]))
            for rows in _captures(nodes, rank)
        ]
        for one, (places, why) in zip(launches, _explain_launches(launches, captures), strict=True):
            node[one.rows[places >= 0]] = places[places >= 0]
            if why:
                refused[why] += one.rows.size
    return node, dict(refused)


def _number_kernels(ops: pl.DataFrame, nodes: pl.DataFrame) -> tuple[tuple[Int64Array, Int64Array], ...]:
    """Kernels and names as numbers, of the ops and of the nodes; a kernel without a grid is -1."""
    columns = [pl.col("name").cast(pl.String), *LAUNCH_SHAPE]
    both = pl.concat([ops.select(columns), nodes.select(columns)])
    both = both.with_columns(pl.col("name").rank("dense").cast(pl.Int64).fill_null(0))
    kinds = both.unique(maintain_order=True).with_row_index("kernel")
    kernel = both.join(kinds, on=["name", *LAUNCH_SHAPE], how="left", nulls_equal=True, maintain_order="left")["kernel"]
    number = np.where(both["grid_x"].is_null(), -1, kernel.cast(pl.Int64).to_numpy())
    name = both["name"].to_numpy()
    return (number[: ops.height], name[: ops.height]), (number[ops.height :], name[ops.height :])


def _read_stated_sizes(trace: Trace, moments: pl.DataFrame, pattern: str) -> Int64Array:
    """For each moment of a thread the size that the innermost range of the pattern around it states; -1 for none."""
    ranges = trace.get(RANGES).filter(pl.col("kind") == "push_pop")
    if not ranges.height or not moments.height:
        return np.full(moments.height, -1, np.int64)
    nesting = Nesting.of(ranges)
    size = mapped(ranges["name"], lambda names: names.str.extract(pattern).cast(pl.Int64, strict=False), pl.Int64)
    sized = nesting.innermost_value(np.where(size.is_not_null(), np.arange(ranges.height), -1))
    return found_at(size.fill_null(-1).to_numpy(), found_at(sized, nesting.innermost_of(moments)))


def _captures(nodes: pl.DataFrame, rank: int) -> list[Int64Array]:
    """The rows of the rank's nodes that each capture recorded, in the order of captures and within each."""
    own = nodes.with_row_index("row").filter(pl.col("rank") == rank).sort("recorded_ns", maintain_order=True)
    parts = own.partition_by("process", "capture", maintain_order=True)
    return [part["row"].cast(pl.Int64).to_numpy() for part in parts]


def _explain_launches(launches: Sequence[_Sequence], captures: Sequence[_Sequence]) -> list[tuple[Int64Array, str]]:
    """For each launch the node of each of its ops (-1: none), and why there are none, '' where there are."""
    equal: dict[bytes, list[int]] = defaultdict(list)
    for number, capture in enumerate(captures):
        equal[capture.kernels.tobytes()].append(number)
        equal[b"names" + capture.names.tobytes()].append(number)
    options = [_choose_by_size(one, equal.get(_key(one), []), captures) for one in launches]
    chosen = in_order([numbers or [-2] for numbers in options])
    known: dict[tuple[bytes, int], tuple[Int64Array, str]] = {}
    explained = []
    for one, numbers, number in zip(launches, options, chosen, strict=True):
        if number >= 0:
            explained.append((captures[number].rows, ""))
            continue
        key = (_key(one), one.size)
        if key not in known:
            several = np.full(one.rows.size, -1, np.int64), SEVERAL
            known[key] = several if numbers else _find_nearest(one, captures)
        explained.append(known[key])
    return explained


def _has_shapes(one: _Sequence) -> bool:
    return bool((one.kernels >= 0).any())


def _key(one: _Sequence) -> bytes:
    """What must be equal: kernels where the launch's shapes were recorded, else their names."""
    return one.kernels.tobytes() if _has_shapes(one) else b"names" + one.names.tobytes()


def _choose_by_size(one: _Sequence, numbers: Sequence[int], captures: Sequence[_Sequence]) -> list[int]:
    """Of captures that fit by names alone those of the launch's size, where both say theirs: the same one, or the next
    larger one of several, to which engines pad."""
    if _has_shapes(one) or one.size < 0:
        return list(numbers)
    sizes = sorted({captures[number].size for number in numbers if captures[number].size >= 0})
    larger = [size for size in sizes if size >= one.size]
    if not sizes:
        return list(numbers)
    wanted = larger[0] if larger and (larger[0] == one.size or len(sizes) > 1) else None
    return [number for number in numbers if captures[number].size in (wanted, -1)]


def _find_nearest(one: _Sequence, captures: Sequence[_Sequence]) -> tuple[Int64Array, str]:
    """The nodes of the one capture that explains nearly all of a launch; else none, and why."""
    fitting, other_shape = [], False
    for number, capture in enumerate(captures):
        least = replay.JOINED_SHARE.value * max(one.rows.size, capture.rows.size)
        if min(one.rows.size, capture.rows.size) < least:
            continue
        shaped = _has_shapes(one)
        here, there = (one.kernels, capture.kernels) if shaped else (one.names, capture.names)
        place = aligned(here, there)
        if shaped and reshaped(here, there, place, (one.names, capture.names)):
            other_shape = True
        elif np.count_nonzero(place >= 0) >= least:
            other_shape |= not _choose_by_size(one, [number], captures)
            fitting += (
                [np.where(place >= 0, capture.rows[place], -1)] if _choose_by_size(one, [number], captures) else []
            )
    if len(fitting) == 1:
        return fitting[0], ""
    nothing = np.full(one.rows.size, -1, np.int64)
    return nothing, SEVERAL if fitting else OTHER_SHAPE if other_shape else OTHER_KERNELS
