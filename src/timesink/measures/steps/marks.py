"""All steps a trace shows, by whichever mark shows them, and the step each device op belongs to.

Steps of a trace without marks: a kernel that comes back at a steady distance, with alike kernels between.

A token is a kernel's name and grid. In a loop every token occurs a whole multiple of the number of steps, give or take
the step cut off at each end of the window; the largest such number is the step count (layers inside a step occur more
often, but not every token then fits). The anchor is the token of that count whose distances, counted in kernels, vary
least. Neighbouring segments must hold nearly the same kernels, else there is no period. (After FALCON, arXiv
2410.12588, which asks the same of the sequence of communication calls.)

How many leading steps are warm-up: slower than the rest, or doing set-up work that the rest does not.

A lone slow step later in the run is no warm-up: it stays and shows in the high quantiles. Set-up calls in every step
(allocation churn, recompilation) are the program's steady state and drop nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernels import communicates
from timesink.measures.steps.markers import MarkedSteps, Marker, marked_steps
from timesink.measures.timeline.links import launch_links
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered

FITTING_SHARE: Final = 0.9  # of kernels whose token count must fit the step count
ALIKE: Final = 0.95  # median similarity of neighbouring segments, FALCON's limit on its auto-correlation
REPEATS: Final = 3


def anchors(kernels: pl.DataFrame) -> Int64Array:
    """Row numbers of `kernels` (name, grid_x, grid_y, grid_z; one stream, in order) that begin a period; maybe none."""
    tokens = _tokens(kernels)
    if tokens.size < 2 * REPEATS:
        return np.empty(0, np.int64)
    counts = np.bincount(tokens)
    for period_count in _step_counts(counts):
        best = _steadiest(tokens, np.flatnonzero(counts == period_count))
        if _alike(tokens, best) >= ALIKE:
            return best
    return np.empty(0, np.int64)


def _tokens(kernels: pl.DataFrame) -> Int64Array:
    token = pl.struct("name", "grid_x", "grid_y", "grid_z").rank("dense") - 1
    frame = kernels.select(pl.col("name").to_physical(), "grid_x", "grid_y", "grid_z")
    return frame.select(token.cast(pl.Int64)).to_series().to_numpy()


def _step_counts(counts: Int64Array) -> list[int]:
    """Token counts that could be the number of steps, most steps first."""
    candidates = np.unique(counts[counts >= REPEATS])[::-1]
    weight = counts.sum()
    fitting = []
    for candidate in candidates:
        times = np.rint(counts / candidate)
        fits = (times >= 1) & (np.abs(counts - times * candidate) <= times)
        if counts[fits].sum() >= FITTING_SHARE * weight:
            fitting.append(int(candidate))
    return fitting


def _steadiest(tokens: Int64Array, candidates: Int64Array) -> Int64Array:
    """Positions of the candidate token whose distances vary least; the earliest one of equals."""
    best, best_variation = np.empty(0, np.int64), np.inf
    for token in candidates:
        positions = np.flatnonzero(tokens == token)
        distances = np.diff(positions)
        variation = float(distances.std() / distances.mean())
        if variation < best_variation or (variation == best_variation and positions[0] < best[0]):
            best, best_variation = positions, variation
    return best


def _alike(tokens: Int64Array, positions: Int64Array) -> float:
    """Median over neighbouring segments of 2 * common tokens / all tokens, tokens counted with their repeats."""
    segment = np.searchsorted(positions, np.arange(tokens.size), side="right") - 1
    inside = (segment >= 0) & (segment < positions.size - 1)
    if positions.size < REPEATS:
        return 0.0
    width = int(tokens.max()) + 1
    cells, held = np.unique(segment[inside] * width + tokens[inside], return_counts=True)
    following = np.searchsorted(cells, cells + width)
    has_next = following < cells.size
    has_next[has_next] = cells[following[has_next]] == cells[has_next] + width
    common = np.bincount(
        cells[has_next] // width, np.minimum(held[has_next], held[following[has_next]]), minlength=positions.size - 1
    )[:-1]
    sizes = np.bincount(segment[inside], minlength=positions.size - 1)
    return float(np.median(2 * common / (sizes[:-1] + sizes[1:])))


STEP_COLUMNS = pl.Schema(
    {
        "rank": pl.Int32(),
        "process": pl.Int64(),
        "step": pl.Int32(),
        "label": pl.String(),
        "thread": pl.Int64(),
        "host_start_ns": pl.Int64(),
        "host_end_ns": pl.Int64(),
        "mark_end_ns": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class FoundSteps:
    """`frame` has STEP_COLUMNS, `step` counting from 0 in each process; `on_device` says that its times are the
    GPU's, which is so only for kernel patterns whose launches are not recorded."""

    marker: Marker | None
    name: str
    frame: pl.DataFrame
    on_device: bool


@remembered
def found_steps(trace: Trace) -> FoundSteps:
    """Marked steps of all processes; where no process marks any, steps by kernel pattern."""
    marked = marked_steps(trace)
    on_device = False
    if not marked:
        on_device = not launch_links(trace).linked_count
        marked = _pattern_steps(trace, on_device)
    frames = [
        part.frame.select(
            pl.lit(part.rank, pl.Int32).alias("rank"),
            pl.lit(part.process, pl.Int64).alias("process"),
            pl.int_range(pl.len(), dtype=pl.Int32).alias("step"),
            *("label", "thread", "host_start_ns", "host_end_ns", "mark_end_ns"),
        )
        for part in marked
    ]
    return FoundSteps(
        marker=marked[0].marker if marked else None,
        name=marked[0].name if marked else "",
        frame=pl.concat([pl.DataFrame(schema=STEP_COLUMNS), *frames]),
        on_device=on_device,
    )


@remembered
def step_of_ops(trace: Trace) -> Int32Array:
    """For each row of `device_ops`, the step of its process in which it was launched; -1 outside all, or not known."""
    found, links = found_steps(trace), launch_links(trace)
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    if found.on_device:
        when, known = ops["start_ns"].to_numpy(), np.ones(ops.height, np.bool_)
    else:
        known = links.linked
        starts = calls["start_ns"].to_numpy()
        when = (
            np.where(known, starts[np.where(known, links.call, 0)], 0)
            if calls.height
            else np.zeros(ops.height, np.int64)
        )
    step = np.full(ops.height, -1, np.int32)
    rank, process = ops["rank"].to_numpy(), ops["process"].to_numpy()
    for key, part in found.frame.partition_by("rank", "process", as_dict=True, maintain_order=True).items():
        rows = np.flatnonzero(known & (rank == key[0]) & (process == key[1]))
        starts, end = part["host_start_ns"].to_numpy(), int(part["host_end_ns"].to_numpy()[-1])
        index = np.searchsorted(starts, when[rows], side="right") - 1
        step[rows] = np.where(when[rows] < end, index, -1)
    return step


def _pattern_steps(trace: Trace, on_device: bool) -> list[MarkedSteps]:
    ops = trace.get(DEVICE_OPS)
    call = pl.Series("call", launch_links(trace).call)
    kernels = ops.select(
        "rank", "process", "device", "stream", "kind", "name", "start_ns", "end_ns", "grid_x", "grid_y", "grid_z"
    )
    kernels = kernels.with_columns(call).filter((ops["kind"] == "kernel") & ~communicates(ops["name"]))
    found = []
    for (rank, process), mine in sorted(kernels.partition_by("rank", "process", as_dict=True).items()):
        stream = (
            mine.group_by("device", "stream")
            .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("busy"))
            .sort(["busy", "device", "stream"], descending=[True, False, False])
        )
        line = mine.join(stream.head(1), on=["device", "stream"], how="semi").sort("start_ns", "end_ns")
        rows = anchors(line)
        if rows.size:
            found.append(_pattern(trace, line[rows], (int(rank), int(process)), on_device))
    return [part for part in found if part is not None]


def _pattern(trace: Trace, marks: pl.DataFrame, process: tuple[int, int], on_device: bool) -> MarkedSteps | None:
    if on_device:
        starts, threads = marks["start_ns"], pl.Series("thread", [0]).new_from_index(0, marks.height)
    else:
        launched = marks.filter(pl.col("call") >= 0)["call"]
        calls = trace[API_CALLS][launched.to_numpy()]
        starts, threads = calls["start_ns"], calls["thread"]
    name = str(marks["name"].cast(pl.String)[0])
    frame = (
        pl.DataFrame({"host_start_ns": starts, "thread": threads})
        .sort("host_start_ns")
        .unique("host_start_ns", keep="first", maintain_order=True)
    )
    if frame.height < 2:
        return None
    frame = frame.select(
        pl.format("step {}", pl.int_range(pl.len())).alias("label"),
        "thread",
        "host_start_ns",
        pl.col("host_start_ns").shift(-1).fill_null(pl.col("host_start_ns").max() + 1).alias("host_end_ns"),
    ).with_columns(pl.col("host_end_ns").alias("mark_end_ns"))
    return MarkedSteps(rank=process[0], process=process[1], marker=Marker.KERNEL_PATTERN, name=name, frame=frame)


SETUP_CALL: Final = (
    r"^(cuda|hip)(Malloc(Host|Managed|Pitch|3D)?|HostMalloc|HostAlloc|HostRegister|Free|FreeHost|HostFree)(_v\d+)?$"
    r"|^cu(MemAlloc|MemHostAlloc|MemCreate|ModuleLoad|LibraryLoad|CtxCreate)|^hip(Module|Library)Load"
    r"|^cudaLibraryLoad|^cudaGraphInstantiate|^cudaStreamBeginCapture"
)
SETUP_RANGE: Final = r"\(dynamo_timed\)|(?i)autotun|cudnn.*benchmark|ncclCommInit|init_process_group"
DEVIATIONS: Final = 3.0  # median + 3 median absolute deviations: the customary outlier fence
LEAST_DEVIATION: Final = 0.01  # of the median: steps that agree to a percent are alike, however small their spread


def warm_up_count(trace: Trace, periods: pl.DataFrame) -> pl.DataFrame:
    """rank, process, warm_up: the number of leading steps to drop, never more than half of those timed.

    `periods` has rank, process, step, period_ns.
    """
    counted = _setup_events(trace)
    rows = []
    for (rank, process), part in sorted(periods.partition_by("rank", "process", as_dict=True).items()):
        setup = part.join(counted, on=["rank", "process", "step"], how="left")["setup"].fill_null(0).to_numpy()
        dropped = _leading(part["period_ns"].to_numpy(), setup)
        rows.append((rank, process, int(part["step"][dropped]) if dropped else 0))
    return pl.DataFrame(rows, schema={"rank": pl.Int32, "process": pl.Int64, "warm_up": pl.Int32}, orient="row")


def _leading(period_ns: Int64Array, setup: Int64Array) -> int:
    dropped = 0
    while dropped < period_ns.size // 2:
        later = period_ns[dropped + 1 :]
        middle = float(np.median(later))
        spread = max(float(np.median(np.abs(later - middle))), LEAST_DEVIATION * middle)
        slow = period_ns[dropped] > middle + DEVIATIONS * spread
        if not slow and setup[dropped] <= np.median(setup[dropped + 1 :]):
            break
        dropped += 1
    return dropped


def _setup_events(trace: Trace) -> pl.DataFrame:
    """rank, process, step, setup: how many set-up calls and ranges begin in each step."""
    columns = ["rank", "process", "start_ns"]
    parts = [
        frame.filter(matches(frame["name"], pattern)).select(columns)
        for frame, pattern in (
            (trace.get(API_CALLS), SETUP_CALL),
            (trace.get(RANGES), SETUP_RANGE),
            (trace.get(HOST_OPS), SETUP_RANGE),
        )
    ]
    events = pl.concat(parts).sort("start_ns")
    marks = found_steps(trace).frame.sort("host_start_ns")
    placed = events.join_asof(
        marks, left_on="start_ns", right_on="host_start_ns", by=["rank", "process"], check_sortedness=False
    )
    inside = placed.filter(pl.col("start_ns") < pl.col("host_end_ns"))
    return inside.group_by("rank", "process", "step").agg(pl.len().cast(pl.Int64).alias("setup"))
