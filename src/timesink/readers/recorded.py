"""A trace of graph replays with the recording of the capture that made the graphs, or of an eager run of the same step.

What the host did while it recorded stands in the trace as another process, a negative number, that was over before the
trace began: its operators, Python frames and ranges explain kernels that a graph replays (`graph_nodes` says which),
and take no time of any step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from timesink.errors import UsageError
from timesink.knowledge.calls import GRAPH_LAUNCH
from timesink.knowledge.ranges import CAPTURED_SIZE
from timesink.model.alignment import occurrence
from timesink.model.arrays import Int64Array, flag_at
from timesink.model.correlation import launching_calls
from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, GRAPH_NODES, HOST_OPS, RANGES
from timesink.model.trace import Trace

_SHAPE: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_HOST: Final = (HOST_OPS, FRAMES, RANGES)
_APART_NS: Final = 1_000_000  # between what was recorded and the trace: no interval spans both
_REMEDY: Final = (
    "record an eager run of the same step and shapes with kernels, or the capture by nsys --cuda-graph-trace=node"
)


def is_recording(trace: Trace) -> bool:
    """Whether the trace shows captures and no launch of what they captured."""
    nodes, calls = trace.get(GRAPH_NODES), trace.get(API_CALLS)
    return bool(nodes.height) and not matches(calls["name"], GRAPH_LAUNCH).any()


def with_capture(trace: Trace, capture: Trace) -> Trace:
    """The trace with what `capture` says of the kernels that its graphs replay, rank by rank.

    `UsageError` where the capture names no kernel that was recorded or launched.
    """
    nodes = capture.get(GRAPH_NODES).drop_nulls("name")
    seen = trace.get(GRAPH_NODES)["capture"].max()
    known = seen + 1 if isinstance(seen, int) else 0
    if not nodes.height:
        nodes = _eager_turns(trace, capture)
    if not nodes.height:
        raise UsageError(
            f"{capture.source} does not say which kernels the graphs of {trace.source} hold", remedy=_REMEDY
        )
    nodes = nodes.with_columns(pl.col("capture") + known)
    tables, (begin_ns, _) = dict(trace.tables), trace.extent_ns or (0, 0)
    for rank in sorted(set(trace.rank_numbers) & set(nodes["rank"])):
        own = nodes.filter(pl.col("rank") == rank)
        recorded = _recorded(capture, own, rank, begin_ns)
        for table, rows in recorded.items():
            tables[table] = table.check(_merged(table, tables.get(table), rows))
    return replace(trace, tables=tables)


def _merged(table: Table, frame: pl.DataFrame | None, rows: pl.DataFrame) -> pl.DataFrame:
    both = rows if frame is None else pl.concat([frame, rows])
    return both.sort(table.sorted_by, maintain_order=True)


def _recorded(capture: Trace, nodes: pl.DataFrame, rank: int, before_ns: int) -> Mapping[Table, pl.DataFrame]:
    """What the host did while these nodes were recorded, ended before that moment, as a process of its own."""
    threads = nodes.select("rank", "process", "thread").unique()
    first, last = nodes.select(pl.col("recorded_ns").min(), last=pl.col("recorded_ns").max()).row(0)
    kept: dict[Table, pl.DataFrame] = {}
    for table in _HOST:
        rows = capture.get(table).join(threads, on=["rank", "process", "thread"], how="semi", maintain_order="left")
        rows = rows.filter((pl.col("start_ns") <= last) & (pl.col("end_ns") > first))
        if table is RANGES:  # one around it all is a step of the recording, and none of the trace
            sized = matches(rows["name"], CAPTURED_SIZE)
            rows = rows.filter((pl.col("start_ns") >= first) | (pl.col("end_ns") <= last) | sized)
        kept[table] = _clipped(rows, first, last)
    end_ns = max((int(rows["end_ns"].max() or last) for rows in kept.values()), default=last)  # type: ignore[arg-type]
    shift = before_ns - _APART_NS - end_ns
    apart = (-1 - pl.col("process")).alias("process")
    moved = {
        table: rows.with_columns(apart, pl.col("start_ns", "end_ns") + shift)
        for table, rows in kept.items()
        if rows.height
    }
    if HOST_OPS in moved:  # a number of another recording
        moved[HOST_OPS] = moved[HOST_OPS].with_columns(pl.lit(None, pl.UInt64).alias("external_id"))
    alone = pl.lit(None, pl.Int64).alias("graph_node_id")
    moved[GRAPH_NODES] = nodes.with_columns(apart, alone, pl.col("recorded_ns") + shift)
    return moved


def _clipped(rows: pl.DataFrame, first: int, last: int) -> pl.DataFrame:
    """Rows that begin before and end behind the recording shortened to it, by 1 ns each so that they still nest."""
    early = (pl.col("start_ns") < first).cast(pl.Int64).cum_sum(reverse=True)
    late = (pl.col("end_ns") > last).cast(pl.Int64).cum_sum()
    ordered = rows.sort(["start_ns", "end_ns"], descending=[False, True], maintain_order=True)
    ordered = ordered.with_columns(
        pl.when(pl.col("start_ns") < first).then(first - early).otherwise("start_ns").alias("start_ns")
    )
    ordered = ordered.sort(["end_ns", "start_ns"], descending=[False, True], maintain_order=True)
    return ordered.with_columns(pl.when(pl.col("end_ns") > last).then(last + late).otherwise("end_ns").alias("end_ns"))


def _eager_turns(trace: Trace, eager: Trace) -> pl.DataFrame:
    """`graph_nodes` of the launches of an eager run that are one turn of what a graph of the trace replays."""
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    call = launching_calls(ops, calls)
    replayed = flag_at(matches(calls["name"], GRAPH_LAUNCH).to_numpy(), call)
    kernels = pl.Series(replayed) & (ops["kind"] == "kernel")
    replays = ops.with_columns(pl.Series("call", call)).filter(kernels)
    launched = _launched(eager)
    parts, turn = [GRAPH_NODES.empty()], pl.lit(0, pl.Int32)
    for (rank,), own in launched.partition_by("rank", as_dict=True).items():
        mine = replays.filter(pl.col("rank") == rank)
        stretches = sorted(_stretches(mine, own))
        parts += [
            own[at : at + length].with_columns(capture=turn + place) for place, (at, length) in enumerate(stretches)
        ]
    return pl.concat(parts).sort(GRAPH_NODES.sorted_by)


def _stretches(replays: pl.DataFrame, launched: pl.DataFrame) -> set[tuple[int, int]]:
    """Where in the launches of a rank a turn of each of its graphs stands, and how long it is."""
    columns = [pl.col("name").cast(pl.String), *_SHAPE]
    both = pl.concat([replays.select(columns), launched.select(columns)])
    kinds = both.unique(maintain_order=True).with_row_index("kind")
    kind = both.join(kinds, on=["name", *_SHAPE], how="left", nulls_equal=True, maintain_order="left")["kind"]
    number = kind.cast(pl.Int64).to_numpy()
    stream = number[replays.height :]
    turns: dict[bytes, Int64Array] = {}
    order = np.lexsort((replays["start_ns"].to_numpy(), replays["call"].to_numpy()))
    edges = np.flatnonzero(np.diff(replays["call"].to_numpy()[order])) + 1
    for rows in np.split(order, edges):
        turns[number[rows].tobytes()] = number[rows]
    places = ((occurrence(turn, stream), turn.size) for turn in turns.values())
    return {(at, length) for at, length in places if at is not None}


def _launched(eager: Trace) -> pl.DataFrame:
    """Every launch whose kernel ran and was no graph's, by rank and time, as `graph_nodes`."""
    ops, calls = eager.get(DEVICE_OPS), eager.get(API_CALLS)
    call = launching_calls(ops, calls)
    graphs = np.append(matches(calls["name"], GRAPH_LAUNCH).to_numpy(), True)[call]
    wanted = pl.Series(~graphs) & (ops["kind"] == "kernel")
    rows = calls.select("thread", pl.col("start_ns").alias("recorded_ns"))[call[wanted.to_numpy()]]
    kernels = ops.filter(wanted).select("rank", "process", "name", *_SHAPE).hstack(rows.get_columns())
    kernels = kernels.with_columns(graph_node_id=pl.lit(None, pl.Int64), capture=pl.lit(None, pl.Int32))
    return kernels.select(list(GRAPH_NODES.columns)).sort("rank", "recorded_ns", maintain_order=True)
