"""Where steps begin on the host: ProfilerStep ranges, else ranges that repeat at top level, else nothing.

Order of trust follows the profilers' own marks first; the outermost loop of the kernels (`loops`) is the last resort.

All steps a trace shows, by whichever mark shows them, and the step each device op belongs to.

How many leading steps are warm-up: slower than the rest, or doing set-up work that the rest does not.

A lone slow step later in the run is no warm-up: it stays and shows in the high quantiles. Set-up calls in every step
(allocation churn, recompilation) are the program's steady state and drop nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernels import communicates
from timesink.measures.steps.loops import outermost_loop
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.names import mapped, matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered

PROFILER_STEP = r"^ProfilerStep#\d+$"
STEP_NAME = r"(?i)(^|[^a-z])(step|iter|iteration|batch|micro_?batch|execute_model)[^a-z]*$"
NO_STEP_NAME = r"(?i)optim|sched|load|fetch|next|zero|copy|log"
FRAMEWORK_NAME = (
    r"^[A-Za-z_]\w*::|, (seq|op_id) = "  # aten::, FSDP:: and the ranges of emit_nvtx are operators, not steps
)
REPEATS = 3  # two occurrences show one period, and no second one to check it by
STEADY_SHARE = 2 / 3  # of the distances between unnamed marks must lie within a factor of two of their median

_THREAD = ("rank", "process", "thread")
_KIND = ("kind", "grid_x", "grid_y", "grid_z", "copy_kind", "bytes")  # with its name, what an operation is


class StepMarker(StrEnum):
    """What told steps apart."""

    PROFILER_STEP = "profiler_step"
    RANGE = "range"
    KERNEL_PATTERN = "kernel_pattern"


@dataclass(frozen=True, slots=True, eq=False)
class ProcessMarks:
    """Steps of one process: `frame` has label, thread, host_start_ns, host_end_ns, mark_end_ns, in order of start.

    A step lasts from its mark to the next; the last one to the end of its own range, or, where the marks are phases
    that fill less than half of the period, for the median period. `mark_end_ns` is the end of the step's own range,
    which may leave a stretch before the next mark. `name` is the mark's stem.
    """

    rank: int
    process: int
    marker: StepMarker
    name: str
    frame: pl.DataFrame


def _process_marks(trace: Trace) -> list[ProcessMarks]:
    """The steps each process marked, in order of (rank, process); processes without marks are left out."""
    profiler = _profiler_steps(trace)
    named = {(found.rank, found.process): found for found in _range_steps(trace)}
    return [marked for _, marked in sorted((named | profiler).items())]


def _profiler_steps(trace: Trace) -> dict[tuple[int, int], ProcessMarks]:
    columns = [*_THREAD, "name", "start_ns", "end_ns"]
    parts = [
        frame.filter(matches(frame["name"], PROFILER_STEP)).select(columns)
        for frame in (trace.get(RANGES), trace.get(HOST_OPS))
    ]
    rows = pl.concat([part.with_columns(pl.col("name").cast(pl.String)) for part in parts])
    found = {}
    for (rank, process), steps in _by(rows.unique(maintain_order=True), "rank", "process"):
        thread = _most_frequent(steps["thread"])
        found[rank, process] = _marked(
            steps.filter(pl.col("thread") == thread), rank, process, (StepMarker.PROFILER_STEP, "ProfilerStep")
        )
    return found


def _range_steps(trace: Trace) -> Iterator[ProcessMarks]:
    ranges = trace.get(RANGES)
    stems = mapped(ranges["name"], lambda names: names.str.replace_all(r"\d+", "#"), pl.String).alias("stem")
    rows = ranges.select(*_THREAD, "depth", "name", "start_ns", "end_ns").with_columns(stems)
    rows = rows.filter(~pl.col("stem").str.contains(FRAMEWORK_NAME))
    launches = trace.get(API_CALLS).filter(pl.col("correlation").is_not_null()).select(*_THREAD, "start_ns")
    for (rank, process), mine in _by(_top_repeats(rows), "rank", "process"):
        calls = launches.filter((pl.col("rank") == rank) & (pl.col("process") == process))
        chosen = _best_family(mine, calls)
        if chosen is not None:
            thread, stem = chosen
            steps = mine.filter((pl.col("thread") == thread) & (pl.col("stem") == stem))
            steps = steps.with_columns(pl.col("name").cast(pl.String))
            yield _marked(steps, rank, process, (StepMarker.RANGE, stem))


def _top_repeats(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranges of the outermost depth of their thread at which any name comes back often enough."""
    family = [*_THREAD, "depth", "stem"]
    often = rows.group_by(family).len().filter(pl.col("len") >= REPEATS)
    top = often.filter(pl.col("depth") == pl.col("depth").min().over(_THREAD))
    return rows.join(top.select(family), on=family, how="semi", maintain_order="left")


def _best_family(rows: pl.DataFrame, launches: pl.DataFrame) -> tuple[int, str] | None:
    """(thread, stem) of the ranges that best mark steps: named like a step, else steady and covering most time.

    Ranges in which nothing is launched mark no step by themselves; if those that do come in rounds of several, the
    first of the round is the mark.
    """
    families = (
        rows.group_by("thread", "stem")
        .agg(
            pl.len().alias("count"),
            pl.col("start_ns").min().alias("first"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("covered"),
            _steady(pl.col("start_ns").sort().diff().drop_nulls()).alias("steady"),
        )
        .with_columns(_hinted(pl.col("stem")).alias("hinted"))
        .filter(pl.col("hinted") | pl.col("steady"))
        .sort(["hinted", "covered", "thread", "stem"], descending=[True, True, False, False])
    )
    working = [f for f in families.iter_rows(named=True) if _launches_inside(rows, launches, f["thread"], f["stem"])]
    if not working:
        return None
    best = working[0]
    if not best["hinted"]:
        alike = families.filter(
            (pl.col("thread") == best["thread"]) & ((pl.col("count") - best["count"]).abs() <= 1)
        ).sort("first", "stem")
        best = alike.row(0, named=True)
    return best["thread"], best["stem"]


def _steady(distance: pl.Expr) -> pl.Expr:
    middle = distance.median()
    return distance.is_between(middle / 2, 2 * middle).mean() >= STEADY_SHARE


def _hinted(stem: pl.Expr) -> pl.Expr:
    plain = stem.str.strip_chars("#_ .:-")
    return plain.str.contains(STEP_NAME) & ~plain.str.contains(NO_STEP_NAME)


def _launches_inside(rows: pl.DataFrame, launches: pl.DataFrame, thread: int, stem: str) -> bool:
    """Whether any launching call lies in one of the family's ranges; true where the trace has no such calls at all."""
    if not launches.height:
        return True
    mine = rows.filter((pl.col("thread") == thread) & (pl.col("stem") == stem)).sort("start_ns")
    inside = launches.sort("start_ns").join_asof(mine.select("start_ns", "end_ns"), on="start_ns", suffix="_range")
    return bool(inside.select((pl.col("end_ns") > pl.col("start_ns")).any()).item())


def _marked(steps: pl.DataFrame, rank: int, process: int, mark: tuple[StepMarker, str]) -> ProcessMarks:
    ordered = steps.sort("start_ns", "end_ns", "name").unique("start_ns", keep="last", maintain_order=True)
    start, end = pl.col("start_ns"), pl.col("end_ns")
    period, length = start.diff().median(), (end - start).median()
    last_end = pl.when(2 * length < period).then(start + period.cast(pl.Int64)).otherwise(end)
    frame = ordered.select(
        pl.col("name").alias("label"),
        "thread",
        start.alias("host_start_ns"),
        start.shift(-1).fill_null(last_end).alias("host_end_ns"),
        end.alias("mark_end_ns"),
    )
    return ProcessMarks(rank=rank, process=process, marker=mark[0], name=mark[1], frame=frame)


def _by(rows: pl.DataFrame, *keys: str) -> Iterator[tuple[tuple[int, int], pl.DataFrame]]:
    for (rank, process), part in sorted(rows.partition_by(keys, as_dict=True, maintain_order=True).items()):
        yield (int(rank), int(process)), part


def _most_frequent(values: pl.Series) -> int:
    counts = values.value_counts().sort(["count", values.name], descending=[True, False])
    return int(counts[values.name][0])


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
class StepMarks:
    """`frame` has STEP_COLUMNS, `step` counting from 0 in each process; `on_device` says that its times are the
    GPU's, which is so only for kernel patterns whose launches are not recorded."""

    marker: StepMarker | None
    name: str
    frame: pl.DataFrame
    on_device: bool


@remembered
def step_marks(trace: Trace) -> StepMarks:
    """Marked steps of all processes; where no process marks any, steps by kernel pattern."""
    marked = _process_marks(trace)
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
    return StepMarks(
        marker=marked[0].marker if marked else None,
        name=marked[0].name if marked else "",
        frame=pl.concat([pl.DataFrame(schema=STEP_COLUMNS), *frames]),
        on_device=on_device,
    )


@remembered
def step_of_ops(trace: Trace) -> Int32Array:
    """For each row of `device_ops`, the step of its process in which it was launched; -1 outside all, or not known."""
    found, links = step_marks(trace), launch_links(trace)
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


def _pattern_steps(trace: Trace, on_device: bool) -> list[ProcessMarks]:
    """Steps of each process by the outermost loop of what its busiest device runs, collectives left out.

    Operations are taken in the order of their launch, which a device's streams keep, else in the order they ran.
    """
    calls, links = trace.get(API_CALLS), launch_links(trace)
    launched_ns = pl.Series("launched_ns", np.zeros(len(links.call), np.int64))
    if calls.height:
        launched_ns = pl.Series("launched_ns", calls["start_ns"].to_numpy()[np.maximum(links.call, 0)])
    ops = trace.get(DEVICE_OPS).select("rank", "process", "device", "name", "start_ns", "end_ns", *_KIND)
    ops = ops.with_columns(launched_ns, pl.Series("call", links.call)).filter(~communicates(ops["name"]))
    if not on_device:
        ops = ops.filter(pl.col("call") >= 0)
    found = []
    for (rank, process), own in sorted(ops.partition_by("rank", "process", as_dict=True).items()):
        busy = own.group_by("device").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("busy_ns"))
        device = busy.sort(["busy_ns", "device"], descending=[True, False])["device"][0]
        order = ("start_ns", "end_ns") if on_device else ("launched_ns", "start_ns")
        line = own.filter(pl.col("device") == device).sort(order)
        kinds = line.select(pl.struct(pl.col("name").to_physical(), *_KIND).rank("dense").cast(pl.Int64) - 1)
        when_ns = line[order[0]].to_numpy()
        loop = outermost_loop(kinds.to_series().to_numpy(), np.diff(when_ns, prepend=when_ns[:1]))
        if loop is not None:
            found.append(_pattern(trace, line[loop.starts], (int(rank), int(process)), on_device))
    return [marks for marks in found if marks is not None]


def _pattern(trace: Trace, marks: pl.DataFrame, process: tuple[int, int], on_device: bool) -> ProcessMarks | None:
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
    return ProcessMarks(rank=process[0], process=process[1], marker=StepMarker.KERNEL_PATTERN, name=name, frame=frame)


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
    marks = step_marks(trace).frame.sort("host_start_ns")
    placed = events.join_asof(
        marks, left_on="start_ns", right_on="host_start_ns", by=["rank", "process"], check_sortedness=False
    )
    inside = placed.filter(pl.col("start_ns") < pl.col("host_end_ns"))
    return inside.group_by("rank", "process", "step").agg(pl.len().cast(pl.Int64).alias("setup"))
