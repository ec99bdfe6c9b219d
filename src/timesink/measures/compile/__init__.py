"""Compilation: compiled graphs in a timeline, how many regions a step runs, eager kernels between them, and what
one graph would gain; and (`summary`) what a log says of it.

PyTorch marks each execution with "Torch-Compiled Region: frame/compilation". A function that compiles as a whole is one
graph; after a graph break another continues, of a frame or a compilation of its own. The graph that runs least often
(of equals, the one compiled first) leads the call; the others come after a break. What a break costs the host is at
their entries: Python, guards and dispatch up to their first launch. Launches after it stay where breaks go. A graph
that most steps do not run was compiled anew, which is another matter. Nsight Systems records no regions.

PyTorch marks each call of a compiled graph with "## Call CompiledFxGraph". What is launched outside of these marks,
between the first and the last of a step, is an *eager island*. Optimizers and losses after the last graph are none.

TorchInductor fuses neighbouring pointwise operations of one graph, so two generated pointwise kernels in a row belong
to two graphs. What one graph would gain depends on what bounds them: with b the time of a kernel's bytes at attainable
bandwidth and t its own time, c = sqrt(t^2 - b^2) is taken for its arithmetic, and the fused kernel takes sqrt(max(b)^2
+ sum(c)^2). Where shapes are not recorded, the bytes follow from the threads of a grid, each of which moves about as
many in generated code; without grids too, half of what the shorter kernels take is expected to stay.
"""

from collections import Counter
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.assumptions import machines
from timesink.knowledge.assumptions import steps as repeating
from timesink.knowledge.logs import COMPILE_ID
from timesink.knowledge.op_class import class_of_ops
from timesink.knowledge.operators import Operator
from timesink.knowledge.ranges import COMPILED_REGION, GRAPH_CALL
from timesink.measures.idle.blame import idle_blame
from timesink.measures.kernels.facts import (
    by_stream,
    device_peaks,
    in_ranges,
    kernel_facts,
    of_each_device,
    rows_of,
    run_numbers,
    within,
)
from timesink.measures.steps import KEPT, steps
from timesink.measures.timeline import Device, device_gaps, of_device
from timesink.measures.timeline.attribution import host_nesting, host_places, launch_links
from timesink.measures.timeline.launches import launches
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, flag_at, found_at, median
from timesink.model.intervals import Intervals, begun_in
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif import Selection

_GRID: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_FRAME: Final = pl.col("name").str.extract(COMPILE_ID, 1).cast(pl.Int64, strict=False)


class CompiledRegions(Record, eq=False):
    """The compiled regions of one device.

    `per_step` regions run in a step, of `graphs` different graphs that most steps run. `kernels` are the rows of
    `device_ops` launched in regions, `entries` those launched first in a region that follows a break; `idle` and
    `entry_idle` are the idle time that one of these ended.
    """

    device: Device
    per_step: float
    graphs: int
    kernels: Int64Array
    entries: Int64Array
    idle: Intervals
    entry_idle: Intervals


@remembered
def compiled_regions(trace: Trace) -> tuple[CompiledRegions, ...]:
    """Per device with kernels, where the trace has regions at all."""
    regions = _regions(trace)
    if not regions.height:
        return ()
    kernels = pl.Series(np.flatnonzero(_inside(trace)))
    devices = []
    for device in kernel_facts(trace).devices:
        own = regions.filter(pl.col("rank") == device[0])
        if not own.height:
            continue
        launched = rows_of(kernel_facts(trace).on(device).filter(pl.col("row").is_in(kernels.implode())))
        graphs = _recurring(trace, own)
        entries = _entries(trace, own, graphs, launched)
        idle, entry_idle = (Intervals.of(idle_blame(trace).ended_by(rows)) for rows in (launched, entries))
        per_step = _per_step(trace, own)
        devices.append(CompiledRegions(device, per_step, graphs.len(), launched, entries, idle, entry_idle))
    return tuple(devices)


def _per_step(trace: Trace, regions: pl.DataFrame) -> float:
    """Regions that begin in a kept step, the median; all of them over all steps where none is kept."""
    own = steps(trace).frame.filter(pl.col("rank") == regions["rank"][0])
    kept = own.filter(pl.col("status") == KEPT)
    if not kept.height:
        return regions.height / max(own.height, 1)
    begins, first, last = regions["start_ns"], kept["host_start_ns"], kept["host_end_ns"]
    return median(begun_in(begins.to_numpy(), first.to_numpy(), last.to_numpy()))


def _recurring(trace: Trace, regions: pl.DataFrame) -> pl.Series:
    """Names of the regions that run in at least half of the steps of their rank (all of them without steps), the one
    that leads a call first."""
    begins = np.sort(steps(trace).frame.filter(pl.col("rank") == regions["rank"][0])["host_start_ns"].to_numpy())
    step = np.searchsorted(begins, regions["start_ns"].to_numpy(), side="right")
    runs = regions.with_columns(pl.Series("step", step)).group_by("name").agg(pl.col("step").n_unique(), pl.len())
    often = runs.filter(pl.col("step") * 2 >= begins.size)
    return often.sort("len", _FRAME, "name")["name"]


def _entries(trace: Trace, regions: pl.DataFrame, graphs: pl.Series, kernels: Int64Array) -> Int64Array:
    """Of `kernels`, the first launched in each execution of a graph other than the leading one, ascending."""
    call = launch_links(trace).call[kernels]
    linked = call >= 0
    launched = trace.get(API_CALLS)[call[linked]].select("thread", pl.col("start_ns").alias("launch_ns"))
    launched = launched.with_columns(pl.Series("row", kernels[linked])).sort("launch_ns", "row")
    every = regions.with_row_index("region").sort("start_ns")
    held = launched.join_asof(every, left_on="launch_ns", right_on="start_ns", by="thread", check_sortedness=False)
    held = held.filter((pl.col("launch_ns") < pl.col("end_ns")) & pl.col("name").is_in(graphs[1:].implode()))
    return np.sort(held.unique("region", keep="first", maintain_order=True)["row"].to_numpy())


def _regions(trace: Trace) -> pl.DataFrame:
    """Every execution of a region, as operators or as ranges recorded it."""
    columns = ("rank", "thread", pl.col("name").cast(pl.String), "start_ns", "end_ns")
    tables = (trace.get(HOST_OPS), trace.get(RANGES))
    return max((rows.filter(matches(rows["name"], COMPILED_REGION)).select(columns) for rows in tables), key=len)


def _inside(trace: Trace) -> BoolArray:
    """For each device op: whether it was launched inside a compiled region."""
    in_region = within(matches(trace.get(HOST_OPS)["name"], COMPILED_REGION).to_numpy(), host_nesting(trace))
    operator = found_at(host_places(trace).host_op, launch_links(trace).call)
    return in_ranges(trace, COMPILED_REGION) | flag_at(in_region, operator)


_NAMED: Final = 3  # as many as fit in a sentence


class EagerIslands(Record, eq=False):
    """Kernels of one device that ran eagerly between compiled graphs of a step.

    `rows` of `device_ops`, `per_step` of them in a steady step, `share` of the step's kernels, `operators` that
    launched most of them, and `idle` time that one of them ended. Their run time is no loss: in a graph, they take as
    long.
    """

    device: Device
    rows: Int64Array
    per_step: float
    share: float
    operators: tuple[str, ...]
    idle: Intervals


@remembered
def eager_islands(trace: Trace) -> tuple[EagerIslands, ...]:
    """Per device with compiled graphs in steady steps."""
    marks = trace.get(RANGES)
    marks = marks.filter(matches(marks["name"], GRAPH_CALL))
    if not marks.height or not trace.get(API_CALLS).height or not launches(trace):
        return ()
    ops = trace[DEVICE_OPS]
    links, calls = launch_links(trace), trace[API_CALLS]
    launched = found_at(calls["start_ns"].to_numpy(), links.call)
    eager = ~in_ranges(trace, GRAPH_CALL) & links.linked
    compute = (class_of_ops(trace) == "compute").to_numpy() & (ops["kind"] == "kernel").to_numpy()
    devices = []
    for device in kernel_facts(trace).devices:
        kept = steps(trace).kept.filter(pl.col("rank") == device[0])
        here = compute & ((ops["rank"] == device[0]) & (ops["device"] == device[1])).to_numpy()
        windows = _between(kept, marks.filter(pl.col("rank") == device[0]))
        inside = windows.covered_ns(launched, launched + 1) > 0
        rows = np.flatnonzero(here & eager & inside)
        steady = Intervals.union_of(kept["host_start_ns"].to_numpy(), kept["host_end_ns"].to_numpy())
        all_kernels = int((here & (steady.covered_ns(launched, launched + 1) > 0)).sum())
        if len(windows) and all_kernels:
            devices.append(_island(trace, device, rows, (kept.height, all_kernels)))
    return tuple(devices)


def _between(kept: pl.DataFrame, marks: pl.DataFrame) -> Intervals:
    """Per step, from the first call of a compiled graph to the last."""
    begin = np.sort(marks["start_ns"].to_numpy())
    start, end = kept["host_start_ns"].to_numpy(), kept["host_end_ns"].to_numpy()
    first, beyond = np.searchsorted(begin, start), np.searchsorted(begin, end)
    several = beyond - first > 1
    return Intervals.union_of(begin[first[several]], begin[beyond[several] - 1])


def _island(trace: Trace, device: Device, rows: Int64Array, counts: tuple[int, int]) -> EagerIslands:
    frame = kernel_facts(trace).on(device).filter(pl.col("row").is_in(pl.Series(rows).implode()))
    names = Counter(frame["op"].cast(pl.String).drop_nulls().to_list())
    ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    return EagerIslands(
        device,
        rows,
        rows.size / counts[0],
        rows.size / counts[1],
        tuple(name for name, _ in ordered[:_NAMED]),
        Intervals.of(idle_blame(trace).ended_by(rows)),
    )


class GeneratedChains(Record, eq=False):
    """Runs of generated pointwise kernels on one device: their kernels and what these take in one graph, the `idle`
    time that one of them ended, how many kernels follow one another on average (`in_a_row`), and how many of them
    belong to one call (`pieces`)."""

    kernels: Selection
    idle: Intervals
    in_a_row: float
    pieces: float


@of_each_device(kernel_facts)
def generated_chains(trace: Trace, device: Device, kernels: pl.DataFrame) -> GeneratedChains | None:
    """Per device: runs of at least two generated pointwise kernels on a stream.

    A run is cut into calls, since calls of one function do not fuse with each other: of as many kernels as there are
    graphs where compiled regions are recorded. Elsewhere a call has between two kernels and all of the run, and the
    geometric mean is taken, 7 of 20; and kernels that do not come back are no sign of one function in pieces: each may
    be all of a function of its own, that was compiled before it ran. With two graphs:

        kernel   poi  poi  poi  poi  gemm  poi  poi
        run        1    1    1    1     -    2    2
        call       a    a    b    b     -    c    c
    """
    if kernels["fused"].null_count() == kernels.height:
        return None
    graphs = next((part.graphs for part in compiled_regions(trace) if part.device == device), None)
    member = ((pl.col("fused") == "inductor") & (pl.col("family") == "pointwise")).fill_null(False)
    if graphs is None:
        member &= pl.len().over("name") >= repeating.REPEATS.whole
    kernels = by_stream(kernels.with_columns(member.alias("member")))
    runs = kernels.with_columns(run_numbers()).filter("member")
    if graphs is None:  # no graph holds two steps
        starts = steps(trace).windows.filter(of_device(device))["start_ns"].sort()
        step = pl.Series("step", starts.search_sorted(runs["start_ns"], side="right"))
        runs = runs.with_columns(pl.struct("run", step).rle_id().alias("run"))
    in_call = (2.0 * pl.len()).sqrt().ceil().over("run") if graphs is None else max(graphs, 1)
    call = pl.int_range(pl.len()).over("run") // in_call
    calls = runs.with_columns(pl.struct("run", call.alias("call")).rank("dense").alias("call"))
    calls = calls.filter(pl.len().over("call") > 1)
    if not calls.height:
        return None
    gpu = device_peaks(trace).get(device)
    rate = gpu.dram_bytes_per_s * machines.DRAM_SHARE.value if gpu else None
    fused = _fused(device, calls, _memory_ns(trace, calls, rate))
    lengths = [calls.height / calls[name].n_unique() for name in ("run", "call")]
    return GeneratedChains(fused, _idle(trace, device, fused), *lengths)


def _idle(trace: Trace, device: Device, kernels: Selection) -> Intervals:
    rows = pl.Series(kernels.rows).implode()
    ended = [gaps.filter(of_device(device) & pl.col("op").is_in(rows)) for gaps in device_gaps(trace).slices()]
    return Intervals.union_all(Intervals.of(gaps) for gaps in ended if gaps.height)


def _memory_ns(trace: Trace, calls: pl.DataFrame, bytes_per_s: float | None) -> Float64Array:
    """The time of each kernel's bytes, by the tensors its operator names, else by the threads of its grid; NaN where
    neither or no rate is known."""
    host = trace.get(HOST_OPS)
    if bytes_per_s is None:
        return np.full(calls.height, np.nan)
    threads = trace[DEVICE_OPS][calls["row"]].select(pl.col(_GRID).cast(pl.Float64)).to_numpy().prod(axis=1)
    moved = threads * assumed.GENERATED_BYTES.value
    if host.height:
        rows = calls["host_op"].fill_null(-1).to_numpy()
        texts = host[np.maximum(rows, 0)].select(pl.col("name", "input_shapes", "input_dtypes").cast(pl.String)).rows()
        sizes = [_bytes(*text) if row >= 0 else None for row, text in zip(rows.tolist(), texts, strict=True)]
        moved = np.where([size is None for size in sizes], moved, np.array(sizes, np.float64))
    return np.asarray(moved / bytes_per_s * 1e9, np.float64)


@lru_cache(maxsize=4096)  # distinct signatures of one program
def _bytes(name: str, shapes: str | None, dtypes: str | None) -> int | None:
    recorded = Operator.recorded(name, shapes, dtypes, None, None) if shapes and dtypes else None
    tensors = recorded.tensors() if recorded and name.startswith("triton_") else []
    return sum(tensor.bytes for tensor in tensors) or None


def _fused(device: Device, calls: pl.DataFrame, memory_ns: Float64Array) -> Selection:
    """Every kernel of a call takes the same share of its time: that of the fused kernel in the call's total.

    Two calls, `memory_ns` being the time of a kernel's bytes (lengths in us):

        call  length  memory   arithmetic sqrt(t^2 - b^2)   fused                        share kept
           1      10       6   8                            sqrt(6^2 + (8 + 0)^2) = 10   10 / 16
           1       6       6   0
           2      20   unknown                              20 + 0.5 x 12 = 26           26 / 32
           2      12      12
    """
    length = calls["length"].to_numpy().astype(np.float64)
    _, call = np.unique(calls["call"].to_numpy(), return_inverse=True)
    total = np.bincount(call, length)
    longest = np.zeros(total.size)
    np.maximum.at(longest, call, length)
    memory = np.minimum(np.where(np.isnan(memory_ns), length, memory_ns), length)
    memory = np.where(length <= assumed.LATENCY_BOUND_US.ns, length, memory)
    most_moving = np.zeros(total.size)
    np.maximum.at(most_moving, call, memory)
    fused = np.maximum(np.hypot(most_moving, np.bincount(call, np.sqrt(length**2 - memory**2))), longest)
    unknown = np.bincount(call, np.isnan(memory_ns) & (length > assumed.LATENCY_BOUND_US.ns)) > 0
    fused = np.where(unknown, longest + assumed.UNKNOWN_KEPT.value * (total - longest), fused)
    usual, best = (np.minimum(time / np.maximum(total, 1.0), 1.0)[call] for time in (fused, longest))
    order = np.argsort(calls["row"].to_numpy())
    return Selection(device, {"piece": calls["row"].to_numpy()[order]}, usual[order], best[order])


class BrokenGraphs(Record, eq=False):
    """The pieces of one device that could be one graph.

    `kernels` are those of the graphs and what they take in one, `idle` is the idle time that one of them ended. Of the
    host's time up to the launches of `entries`, the share `beyond` comes after a break; `entry_idle` is the idle time
    that one of these ended. A step runs `regions` of `graphs` different graphs; both are None where regions are not
    recorded: then generated kernels, `in_a_row` on average, are taken for graphs, all of them entries, and the first of
    a call stays.
    """

    device: Device
    kernels: Selection
    idle: Intervals
    entries: Int64Array
    entry_idle: Intervals
    beyond: float
    graphs: int | None = None
    regions: float | None = None
    in_a_row: float | None = None


@remembered
def broken_graphs(trace: Trace) -> tuple[BrokenGraphs, ...]:
    """Per device with compiled regions, or with generated kernels in a row where no regions are recorded."""
    regions = {part.device: part for part in compiled_regions(trace)}
    chains = {part.kernels.device: part for part in generated_chains(trace)}
    devices = []
    for device in sorted(regions.keys() | chains.keys()):
        chain, region = chains.get(device), regions.get(device)
        fused = chain.kernels if chain else None
        if region is not None:
            kernels = _with_others(device, fused, region.kernels)
            entries = (region.entries, region.entry_idle, 1.0)
            devices.append(BrokenGraphs(device, kernels, region.idle, *entries, region.graphs, region.per_step))
        elif chain is not None:
            beyond = 1.0 - 1.0 / chain.pieces
            entries = (chain.kernels.rows, chain.idle, beyond)
            devices.append(BrokenGraphs(device, chain.kernels, chain.idle, *entries, in_a_row=chain.in_a_row))
    return tuple(devices)


def _with_others(device: Device, fused: Selection | None, rows: Int64Array) -> Selection:
    """The same with other kernels, which take as long as they do."""
    if fused is None:
        return Selection(device, {"piece": rows}, *np.ones((2, rows.size)))
    every = np.union1d(fused.rows, rows)
    shares = np.ones((2, every.size))
    shares[:, np.searchsorted(every, fused.rows)] = fused.usual, fused.best
    return Selection(device, {"piece": every}, *shares)
