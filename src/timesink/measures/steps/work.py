"""What a step is made of by the work that asked for it: every nanosecond once, as in `parts`, and named otherwise.

Kernel names differ between versions, GPUs and vendors; operators with their shapes do not. Of a job of several ranks
the time is that of the rank that the others wait for.
"""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from timesink.knowledge.op_class import class_of_ops
from timesink.knowledge.operators import OF_ONE_LIBRARY
from timesink.measures.communication import may_communicate
from timesink.measures.communication.waits import collective_waits
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.causes import LAUNCHING_CAUSES
from timesink.measures.kernels.classification import modules
from timesink.measures.steps.parts import pacing_windows, range_labels
from timesink.measures.timeline import Device, device_timeline
from timesink.measures.timeline.attribution import attribution, host_nesting, host_places, launch_links, names_at
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, found_at, none_of
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

COMPUTE, COMMUNICATION, COPY, IDLE = "compute", "communication", "copy", "idle"
BETWEEN_KERNELS: Final = ("kernel_gap", "graph_gap")
_TEXT: Final = ("kind", "cause", "op", "shapes", "place", "kernel", "grid")
_FIGURES: Final = ("total_ns", "count", "calls")
_SCHEMA: Final = pl.Schema(dict.fromkeys(_TEXT, pl.String()) | dict.fromkeys(_FIGURES, pl.Int64()))
_GRID: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")


class OrderedKernel(NamedTuple):
    """A launch among those of its step, with its launch shape; `place` is the innermost range."""

    kernel: str
    grid: str
    place: str


class StepWork(Record, eq=False):
    """The kept steps; `total_ns` of all rows sums to `span_ns`, the length of the `step_count` steps together.

    `launches`: calls that launched device work in them. `frame`: kind (compute, communication, copy, idle), cause (of
    idle time), op and shapes (of the innermost operator; of a wait, who waits; else empty), place (its module, else the
    innermost range), kernel and grid (with the block), total_ns, count (of device work; of idle time 0), calls (runs
    of the operator that launched it, each once; of work without an operator the count). `order`: of one usual step the
    kernels that no operator names, as they were launched.
    """

    step_count: int
    span_ns: int
    launches: int
    frame: pl.DataFrame
    order: tuple[OrderedKernel, ...]


@remembered
def step_work(trace: Trace) -> StepWork:
    """Take the steps of a trace apart by operator, shapes and place."""
    windows, parts, launches = pacing_windows(trace), [pl.DataFrame(schema=_SCHEMA)], 0
    for device, within in critical_path(trace):
        launches += _launches(trace, device, within)
        parts.append(_taken_apart(trace, device, within))
    frame = pl.concat(parts).group_by(_TEXT, maintain_order=True).agg(pl.col(_FIGURES).sum())
    span_ns = int((windows["end_ns"] - windows["start_ns"]).sum())
    kept = frame.filter((pl.col("total_ns") > 0) | (pl.col("count") > 0))
    return StepWork(windows.height, span_ns, launches, kept, _order(trace))


def _order(trace: Trace) -> tuple[OrderedKernel, ...]:
    """The kernels without an operator of the first step that has as many as most steps have."""
    ops, steps = trace.get(DEVICE_OPS), list[Int64Array]()
    is_kernel = (class_of_ops(trace).cast(pl.String) == COMPUTE) & ops["kind"].is_in(["kernel", "graph"])
    wanted, start = is_kernel.to_numpy() & (attribution(trace).host_op < 0), ops["start_ns"].to_numpy()
    for rank, device, *window in pacing_windows(trace).iter_rows():
        low, high = slice_of(ops, ("rank", "device"), (rank, device))
        first, last = low + np.searchsorted(start[low:high], window)
        steps.append(first + np.flatnonzero(wanted[first:last]))
    usual = Counter(map(len, steps)).most_common(1)
    rows = next((step for step in steps if len(step) == usual[0][0]), np.empty(0, np.int64))
    launched = found_at(trace.get(API_CALLS)["start_ns"].to_numpy(), launch_links(trace).call[rows])
    ordered = rows[np.lexsort((start[rows], np.where(launched < 0, start[rows], launched)))]
    named = _named(trace, ordered, none_of(rows.size)).select(_texts())
    return tuple(OrderedKernel(*row) for row in named.select("kernel", "grid", "place").iter_rows())


def critical_path(trace: Trace) -> list[tuple[Device, Intervals]]:
    """Per device, on its own clock, the time that decided when the steps ended: together as long as they are. A device
    comes twice where steps overlap, since one GPU paces this step and another the next.

    From the end of a step on the GPU that paces it backwards: where it stood in a collective with nothing computed
    meanwhile, what came before the last rank's arrival is that rank's time, and so on from there.
    """
    arrivals, offset_ns = _waits_by_device(trace)
    found: dict[Device, list[tuple[int, int]]] = {}
    for rank, gpu, start_ns, end_ns in pacing_windows(trace).iter_rows():
        device, own_ns = (rank, gpu), offset_ns.get((rank, gpu), 0)
        begin_ns, at_ns = start_ns - own_ns, end_ns - own_ns  # on the common clock
        while at_ns > begin_ns:
            ready_ns, late = arrivals.get(device, _NO_WAITS)
            row = int(np.searchsorted(ready_ns, at_ns)) - 1  # the last before
            from_ns = max(int(ready_ns[row]), begin_ns) if row >= 0 else begin_ns
            clock_ns = offset_ns.get(device, 0)
            found.setdefault(device, []).append((from_ns + clock_ns, at_ns + clock_ns))
            device, at_ns = (late[row] if row >= 0 else device), from_ns
    layered = ((device, layer) for device, parts in found.items() for layer in _layers(sorted(parts)))
    return [(device, Intervals.union_of(*np.array(layer, np.int64).T)) for device, layer in layered]


def _layers(parts: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Stretches in order of start, dealt out so that none overlap within a layer."""
    layers: list[list[tuple[int, int]]] = []
    for part in parts:
        free = next((layer for layer in layers if layer[-1][1] <= part[0]), None)
        if free is None:
            layers.append([part])
        else:
            free.append(part)
    return layers


_Waits = tuple[Int64Array, list[Device]]
_NO_WAITS: Final[_Waits] = (np.empty(0, np.int64), [])


def _waits_by_device(trace: Trace) -> tuple[dict[Device, _Waits], dict[Device, int]]:
    """Per device when the last came that it waited for, in order, on the common clock, and who; and how far its clock
    is ahead of that."""
    if not may_communicate(trace):
        return {}, {}
    waits, lines = collective_waits(trace), device_timeline(trace).by_device
    columns = ["instance", "rank", "device", "ready_ns", "arrival_ns", "offset_ns", "exposed_wait_ns"]
    calls = pl.concat([frame.select(columns) for frame in (waits.calls, waits.pairs) if frame.height] or [waits.calls])
    if not calls.height:
        return {}, {}
    last = calls.filter(pl.col("arrival_ns") == pl.col("ready_ns")).unique(
        "instance", keep="first", maintain_order=True
    )
    last = last.select("instance", late_rank="rank", late_device="device")
    stood = calls.filter(pl.col("exposed_wait_ns") > 0).join(last, on="instance").sort("ready_ns", "instance")
    found: dict[Device, _Waits] = {}
    for (rank, gpu), rows in stood.group_by("rank", "device"):
        late = [(int(peer), int(its)) for peer, its in rows.select("late_rank", "late_device").iter_rows()]
        known = np.array([one in lines for one in late], np.bool_)
        found[int(rank), int(gpu)] = rows["ready_ns"].to_numpy()[known], [one for one in late if one in lines]
    ahead = calls.group_by("rank", "device").agg(pl.col("offset_ns").median())
    return found, {(int(rank), int(gpu)): round(offset) for rank, gpu, offset in ahead.iter_rows()}


def _taken_apart(trace: Trace, device: Device, windows: Intervals) -> pl.DataFrame:
    """The rows of some stretches of a device's time; what lies beyond its recording is communication without a name."""
    line = device_timeline(trace)[device]
    parts = [
        _device_work(trace, device, COMPUTE, windows),
        _device_work(trace, device, COMMUNICATION, windows & line.exposed_communication),
        _device_work(trace, device, COPY, windows & line.exposed_copy),
        _idle(trace, device, windows),
    ]
    frame = pl.concat(parts)
    left_ns = windows.total_ns - int(frame["total_ns"].sum())
    rest = pl.DataFrame([[COMMUNICATION, *[""] * (len(_TEXT) - 1), left_ns, 0, 0]],
                        schema=_SCHEMA, orient="row")  # fmt: skip
    return pl.concat([frame, rest])


def _device_work(trace: Trace, device: Device, kind: str, within: Intervals) -> pl.DataFrame:
    """The device work of one kind with the time of `within` in which each op was the first of its kind to run."""
    low, high = slice_of(trace.get(DEVICE_OPS), ("rank", "device"), device)
    rows = low + np.flatnonzero((class_of_ops(trace)[low:high].cast(pl.String) == kind).to_numpy())
    start, end = (trace.get(DEVICE_OPS)[name].to_numpy()[rows] for name in ("start_ns", "end_ns"))
    before = np.maximum.accumulate(np.concatenate(([np.iinfo(np.int64).min], end)))[:-1]
    first = np.maximum(start, before)
    own_ns = within.covered_ns(first, np.maximum(end, first))
    is_in = within.covered_ns(start, start + 1) > 0
    kept = (own_ns > 0) | is_in
    host_op = found_at(_asked_for(trace), attribution(trace).host_op[rows[kept]])
    named, counted = _named(trace, rows[kept], host_op), is_in[kept]
    figures = own_ns[kept], counted, counted & _is_first(np.where(counted, host_op, -1))
    return (
        named.with_columns(
            pl.Series(name, figure.astype(np.int64)) for name, figure in zip(_FIGURES, figures, strict=True)
        )
        .group_by(named.columns, maintain_order=True)
        .agg(pl.col(_FIGURES).sum())
        .select(pl.lit(kind).alias("kind"), pl.lit("").alias("cause"), *_texts(), *_FIGURES)
    )


def _is_first(host_op: Int32Array) -> BoolArray:
    """Which launch is the first of its operator's run; each that has none (-1) is."""
    first = host_op < 0
    first[np.unique(host_op, return_index=True)[1]] = True
    return first


def _texts() -> list[pl.Expr]:
    of_grid = [pl.col(name).cast(pl.String) for name in _GRID]
    grid = pl.concat_str(of_grid, separator=",").fill_null("").alias("grid")
    return [*(pl.col(name).cast(pl.String).fill_null("") for name in _TEXT[2:-1]), grid]


def _named(trace: Trace, rows: Int64Array, host_op: Int32Array) -> pl.DataFrame:
    """op, shapes, place, kernel and the launch shape of some rows of `device_ops`, each launched by that operator."""
    ops, host = trace.get(DEVICE_OPS)[rows], trace.get(HOST_OPS)
    frame = ops.select(pl.col("name").alias("kernel"), *_GRID).with_columns(
        names_at(host["name"], host_op, "op"), names_at(host["input_shapes"], host_op, "shapes")
    )
    return frame.with_columns(_places(trace, rows, host_op))


@remembered
def _asked_for(trace: Trace) -> Int32Array:
    """For each row of `host_ops` the operator whose work it does: around one of a library, the one that is of none."""
    host = trace.get(HOST_OPS)
    of_library = matches(host["name"], OF_ONE_LIBRARY).to_numpy()
    around = host_nesting(trace).innermost_value(np.where(of_library, -1, np.arange(host.height)))
    return np.where((around >= 0) & of_library, around, np.arange(host.height)).astype(np.int32)


def _places(trace: Trace, rows: Int64Array, host_op: Int32Array) -> pl.Series:
    """The module around each of these rows, else the innermost range around its launch, else null."""
    around = found_at(host_places(trace).range_, launch_links(trace).call[rows])
    if not trace.get(API_CALLS).height:
        around = none_of(rows.size)
    ranges = names_at(range_labels(trace), around, "place").cast(pl.String)
    of_module = names_at(modules(trace), host_op, "place").cast(pl.String) if trace.get(HOST_OPS).height else ranges
    return of_module.zip_with(of_module.is_not_null(), ranges)


def _idle(trace: Trace, device: Device, windows: Intervals) -> pl.DataFrame:
    """Idle time by cause; of blocking waits, and of what no launching explains, also by who was at work."""
    blame = idle_blame(trace)
    stretches = blame.on(device)
    inside_ns = windows.covered_ns(stretches["start_ns"], stretches["end_ns"])
    kept = np.flatnonzero(inside_ns)
    told = blame.told(stretches[kept], "call", "host_op").select(pl.col("cause", "call", "host_op").cast(pl.String))
    who = pl.coalesce("host_op", "call").fill_null("")
    launching = pl.col("cause").is_in([*LAUNCHING_CAUSES, *BETWEEN_KERNELS])
    named = told.with_columns(pl.when(launching).then(pl.lit("")).otherwise(who).alias("op"))
    sums = (
        named.with_columns(pl.Series("total_ns", inside_ns[kept])).group_by("cause", "op").agg(pl.col("total_ns").sum())
    )
    empty = [pl.lit("").alias(name) for name in _TEXT[3:]]
    ordered = sums.sort("total_ns", "cause", "op", descending=[True, False, False])
    none = [pl.lit(0, pl.Int64).alias(name) for name in _FIGURES[1:]]
    return ordered.select(pl.lit(IDLE).alias("kind"), "cause", "op", *empty, "total_ns", *none)


def _launches(trace: Trace, device: Device, windows: Intervals) -> int:
    """Calls that launched what began in these windows; work without a launch record counts for itself."""
    low, high = slice_of(trace.get(DEVICE_OPS), ("rank", "device"), device)
    start = trace.get(DEVICE_OPS)["start_ns"].to_numpy()[low:high]
    call = launch_links(trace).call[low:high][windows.covered_ns(start, start + 1) > 0]
    return int(np.unique(call[call >= 0]).size + np.count_nonzero(call < 0))
