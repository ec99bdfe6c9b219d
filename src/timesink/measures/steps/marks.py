"""Where steps begin: ProfilerStep ranges, else ranges named like a step, else the outermost loop of the kernels.

The profilers' own marks are trusted most. Of a trace without marks `loops` finds the loop, `proof` judges whether its
rounds are steps, and ranges that come at the same pace say where each begins: libraries put ranges around collectives,
products and layers into every capture, so that a range that merely repeats says nothing.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.errors import UsageError
from timesink.knowledge.assumptions import steps as assumed
from timesink.knowledge.ranges import (
    ENGINE_STEP,
    GENERATED,
    LAYER,
    LIBRARY,
    NUMBER,
    OPERATOR,
    PART_OF_STEP,
    PROFILER_STEP,
    SGLANG_STEP,
    STEP,
    TORCH_OPTIMIZER_STEP,
)
from timesink.measures.steps.launch_sequences import (
    PROCESS,
    LaunchSequence,
    by_process,
    decode_rounds,
    first_kernel_ns,
    launch_sequences,
    round_starts,
    step_candidates,
)
from timesink.measures.steps.loops import home_share
from timesink.measures.steps.proof import StepOrigin, Work, are_parts, hold_most, proven, work_times
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import Int32Array, Int64Array, found_at
from timesink.model.names import mapped, matches
from timesink.model.nesting import key_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import StepChoice, Trace, release_after, remembered
from timesink.records import Record

_THREAD: Final = ("rank", "process", "thread")
_FAMILIES_TRIED: Final = 8  # a budget: those that cover most
STEP_COLUMNS: Final = pl.Schema(
    {"rank": pl.Int32(), "process": pl.Int64(), "step": pl.Int32(), "label": pl.String()}
    | dict.fromkeys(("thread", "host_start_ns", "host_end_ns", "mark_end_ns"), pl.Int64())
)


class StepMarker(StrEnum):
    """By what steps were told apart."""

    PROFILER_STEP = "profiler_step"
    RANGE = "range"
    KERNEL_PATTERN = "kernel_pattern"


class StepMarks(Record, eq=False):
    """Every step of the trace: `frame` has STEP_COLUMNS, `step` counting from 0 in each process.

    A step lasts from its mark to the next; the last one to the end of its own range, or, where the marks are phases
    that fill less than half of the period, for the median period. `mark_end_ns` is the end of the step's own range,
    which may leave a stretch before the next mark. `name` is the mark's stem, empty where there are no steps; `origin`
    says how they are known, and is that of the process that knows it worst.
    `on_device` says that the times are the GPU's, which is so only for kernel patterns without recorded launches;
    `of_tokens` that they are the rounds of a server nobody annotated (`decode_rounds`).
    """

    marker: StepMarker | None
    origin: StepOrigin | None
    name: str
    frame: pl.DataFrame
    on_device: bool
    of_tokens: bool = False


class _ProcessMarks(Record, eq=False):
    """Steps of one process. `frame`: label, thread, host_start_ns, host_end_ns, mark_end_ns, in order of start."""

    rank: int
    process: int
    marker: StepMarker
    origin: StepOrigin
    name: str
    frame: pl.DataFrame
    of_tokens: bool = False


@remembered
def step_marks(trace: Trace) -> StepMarks:
    """Marked steps of all processes, in order of (rank, process); where none marks any, rounds that may be steps.

    A process's own ProfilerStep ranges come before ranges that are named like a step.
    """
    choice, on_device = trace.step_choice, False
    if choice is None:
        profiled = _profiler_marks(trace)
        is_each = all(process in profiled for process, _, _ in key_slices(trace.get(RANGES), PROCESS))
        marks = list(profiled.values() if is_each else (_named_marks(trace) | profiled).values())
    else:
        marks = list(_matching_ranges(trace, choice.pattern)) if choice.pattern else []
    if not marks and (choice is not None or not _within_a_step(trace)):
        on_device = not launch_links(trace).linked_count
        marks = list(_chosen_rounds(trace, on_device) if choice is not None else _rounds(trace, on_device))
    if not marks and choice is not None:
        raise _no_such_steps(trace, choice)
    marks.sort(key=lambda part: (part.rank, part.process))
    frames = [
        part.frame.select(
            pl.lit(part.rank, pl.Int32).alias("rank"),
            pl.lit(part.process, pl.Int64).alias("process"),
            pl.int_range(pl.len(), dtype=pl.Int32).alias("step"),
            *STEP_COLUMNS.names()[3:],
        )
        for part in marks
    ]
    return StepMarks(
        marker=marks[0].marker if marks else None,
        origin=max((part.origin for part in marks), key=list(StepOrigin).index, default=None),
        name=marks[0].name if marks else "",
        frame=pl.concat([pl.DataFrame(schema=STEP_COLUMNS), *frames]),
        on_device=on_device,
        of_tokens=any(part.of_tokens for part in marks),
    )


@release_after("CMP")
@remembered
def step_of_ops(trace: Trace) -> Int32Array:
    """For each row of `device_ops`, the step of its process in which it was launched; -1 outside all, or not known."""
    marks, links, ops = step_marks(trace), launch_links(trace), trace.get(DEVICE_OPS)
    if marks.on_device:
        launched, time_ns = np.ones(ops.height, np.bool_), ops["start_ns"].to_numpy()
    else:
        launched = links.linked
        time_ns = found_at(trace.get(API_CALLS)["start_ns"].to_numpy(), links.call)
    step = np.full(ops.height, -1, np.int32)
    rank, process = ops["rank"].to_numpy(), ops["process"].to_numpy()
    for key, part in marks.frame.partition_by(PROCESS, as_dict=True, maintain_order=True).items():
        rows = np.flatnonzero(launched & (rank == key[0]) & (process == key[1]))
        starts, end = part["host_start_ns"].to_numpy(), int(part["host_end_ns"].to_numpy()[-1])
        begun = time_ns[rows]
        step[rows] = np.where(begun < end, places(starts, begun, True) - 1, -1)
    return step


def _within_a_step(trace: Trace) -> bool:
    """Whether what repeats in the trace is a layer: it holds one or two annotated steps of an engine, or ranges of
    layers of which none comes back often enough."""
    names = trace.get(RANGES)["name"]
    layers = names.filter(matches(names, LAYER)).cast(pl.String)
    passes = pl.DataFrame({"stem": _stems(layers), "layer": layers.str.extract(LAYER)}).group_by("stem", "layer").len()
    is_few = passes.height > 0 and bool((passes["len"] < assumed.REPEATS.whole).all())
    return is_few or bool(matches(names, ENGINE_STEP).any())


def _profiler_marks(trace: Trace) -> dict[tuple[int, int], _ProcessMarks]:
    """Steps by ProfilerStep ranges, of the thread of a process that has most of them."""
    return {
        process: _marks_of(steps, process, StepMarker.PROFILER_STEP, StepOrigin.MARKED, "ProfilerStep")
        for process, steps in _named(trace, PROFILER_STEP)
    }


def _named_marks(trace: Trace) -> dict[tuple[int, int], _ProcessMarks]:
    """Steps by the outermost ranges that are named like one; of micro-batches so many as an optimizer's step takes."""
    rows = _repeated(trace)
    named = pl.col("stem").str.strip_chars("#_ .:-")
    is_step = named.str.contains(STEP) & ~named.str.contains(PART_OF_STEP)
    rows = rows.filter(is_step | matches(rows["name"], ENGINE_STEP))
    marks = {}
    for process, of_process in by_process(rows):
        calls = _launches(trace, process)
        for family in _families(of_process).sort("depth", -pl.col("covered"), "thread", "stem").iter_rows(named=True):
            steps = _of_family(of_process, family)
            if _launches_inside(steps, calls):
                kept = proven(steps["start_ns"].to_numpy(), work_times(trace, process))
                origin = StepOrigin.MARKED
                if kept is not None and kept[0].size < steps.height:
                    steps, origin = steps[kept[0]], kept[1]
                marks[process] = _marks_of(steps, process, StepMarker.RANGE, origin, family["stem"])
                break
    return marks


def _rounds(trace: Trace, on_device: bool) -> Iterator[_ProcessMarks]:
    """Rounds that may be steps, of each process: of the outermost loop of what its device runs, from the ranges on that
    begin them, where some do. Where there is no such loop, of ranges that are rounds themselves; where nothing is as
    regular, but an optimizer's step was recorded again and again, from one of them to the next. Rounds that hold less
    than most of what the device ran are none."""
    rows = dict(by_process(_repeated(trace)))
    launched_by = {(one.rank, one.process): one for one in launch_sequences(trace, on_device)}
    for process in sorted(rows.keys() | launched_by.keys()):
        launched = launched_by.get(process)
        for marks in _candidates(trace, process, launched, rows.get(process), on_device):
            if launched is None or hold_most(launched, marks.frame["host_start_ns"].to_numpy()):
                yield marks
                break


def _candidates(
    trace: Trace,
    process: tuple[int, int],
    launched: LaunchSequence | None,
    families: pl.DataFrame | None,
    on_device: bool,
) -> Iterator[_ProcessMarks]:
    """What may mark the steps of a process without marks, the likeliest first."""
    if launched is not None and (decoding := decode_rounds(launched.ops, launched.kinds)) is not None:
        yield from _kernel_marks(trace, launched, decoding, on_device, StepOrigin.FOUND, of_tokens=True)
        return
    work = work_times(trace, process, launched)
    loop = None if launched is None else round_starts(launched, None, work.get(Work.OPTIMIZER))
    if launched is not None and loop is not None:
        if (known := _proven(trace, launched, launched.time_ns[loop], work)) is not None:
            positions = loop[known[0]]
            if families is not None:
                yield from _range_marks(trace, families, process, launched, positions, work)
            yield from _kernel_marks(trace, launched, positions, on_device, known[1])
    elif families is not None:
        yield from _range_marks(trace, families, process, launched, None, work)
    if families is not None:
        yield from _optimizer_marks(trace, families, process)


def _optimizer_marks(trace: Trace, rows: pl.DataFrame, process: tuple[int, int]) -> Iterator[_ProcessMarks]:
    """Steps from one optimizer's step to the next, however much their lengths differ: a program that updates its model
    again and again has steps. Optimizers that take turns are one."""
    calls = _launches(trace, process)
    families = _families(rows.filter(matches(rows["name"], TORCH_OPTIMIZER_STEP)))
    most = families.sort("count", "first", "stem", descending=[True, False, False]).head(1)
    for family in most.iter_rows(named=True):
        steps = _of_family(rows, family)
        steps = steps.gather_every(_optimizers(steps["start_ns"], calls))
        if steps.height >= assumed.REPEATS.whole:
            yield _marks_of(steps, process, StepMarker.RANGE, StepOrigin.FOUND, family["stem"])


def _proven(
    trace: Trace, launched: LaunchSequence | None, begun_ns: Int64Array, work: Mapping[Work, Int64Array]
) -> tuple[Int64Array, StepOrigin] | None:
    """Which rounds are steps, and how that is known; None where they are parts of one."""
    known = proven(begun_ns, work)
    if known is not None and known[1] is StepOrigin.GUESSED and launched is not None:
        return None if are_parts(trace, launched, begun_ns[known[0]]) else known
    return known


def _range_marks(
    trace: Trace,
    rows: pl.DataFrame,
    process: tuple[int, int],
    launched: LaunchSequence | None,
    positions: Int64Array | None,
    work: Mapping[Work, Int64Array],
) -> Iterator[_ProcessMarks]:
    """Steps by the first ranges of which one begins each of the rounds at `positions`; without such rounds, by the
    first of those that come as often as the ranges that cover most time and in whose rounds the kernels are at home. Of
    a process that runs nothing on a device, by ranges that no library puts into its traces."""
    calls = _launches(trace, process)
    families = _families(rows).filter("steady").sort(-pl.col("covered"), "stem")
    counts = families["count"].unique(maintain_order=True) if positions is None else [positions.size]
    for count in counts[:_FAMILIES_TRIED]:
        alike = families.filter((pl.col("count") - count).abs() <= 1).sort("first", "depth", "stem")
        for family in alike.head(_FAMILIES_TRIED).iter_rows(named=True):
            steps = _of_family(rows, family)
            if re.search(TORCH_OPTIMIZER_STEP, family["stem"]):
                steps = steps.gather_every(_optimizers(steps["start_ns"], calls))
            begun_ns = steps["start_ns"].to_numpy()
            if launched is None:
                is_foreign = any(re.search(pattern, family["stem"]) for pattern in (LIBRARY, GENERATED))
                is_own = not is_foreign and family["domain"] is None
            elif positions is None:
                is_own = home_share(launched.kinds, launched.next_to(begun_ns)) >= assumed.KINDS_AT_HOME.value
            else:
                is_own = bool(np.isin(positions, launched.next_to(begun_ns)).all())
            known = _proven(trace, launched, begun_ns, work) if is_own and steps.height > 1 else None
            if known is not None:
                yield _marks_of(steps[known[0]], process, StepMarker.RANGE, known[1], family["stem"])
                return


def _repeated(trace: Trace) -> pl.DataFrame:
    """The ranges that come back often enough, with the `stem` of their names; of the layers of a model, the first."""
    rows = trace.get(RANGES).select(*_THREAD, "depth", "domain", "name", "start_ns", "end_ns")
    rows = rows.filter(~matches(rows["name"], OPERATOR))
    rows = rows.with_columns(
        mapped(rows["name"], _stems, pl.String()).alias("stem"),
        mapped(rows["name"], lambda names: names.str.extract(LAYER), pl.String()).alias("layer"),
    )
    rows = rows.filter(pl.len().over(*_THREAD, "stem") >= assumed.REPEATS.whole).sort("start_ns")
    rows = rows.filter(pl.col("layer").eq_missing(pl.col("layer").first().over(*_THREAD, "stem"))).drop("layer")
    return rows.filter(pl.len().over(*_THREAD, "stem") >= assumed.REPEATS.whole)


def _launches(trace: Trace, process: tuple[int, int]) -> pl.DataFrame:
    calls = trace.get(API_CALLS).filter(pl.col("correlation").is_not_null()).select(*_THREAD, "start_ns")
    return calls.filter((pl.col("rank") == process[0]) & (pl.col("process") == process[1]))


def _optimizers(starts: pl.Series, launches: pl.DataFrame) -> int:
    """How many optimizers take turns, as those of a GAN do: what is launched from one of their steps to the next is as
    much as so many steps before, and not as much as one before."""
    counts = np.diff(np.searchsorted(launches["start_ns"].sort(), starts))
    for turns in range(1, 1 + starts.len() // assumed.REPEATS.whole):
        off = np.abs(counts[turns:] - counts[:-turns])
        alike = off <= assumed.TURNS_ALIKE.value * np.maximum(counts[turns:], counts[:-turns])
        if alike.size and alike.mean() >= assumed.STEADY_SHARE.value:
            return turns
    return 1


def _stems(names: pl.Series) -> pl.Series:
    """Names without their numbers; steps of an engine that differ in their mode are of one stem."""
    plain = names.str.replace_all(NUMBER, "#").rename("stem")
    of_modes = names.str.contains(SGLANG_STEP)
    return plain.to_frame().select(pl.when(of_modes).then(pl.lit("step[#]")).otherwise("stem")).to_series()


def _families(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranges of one thread and stem: thread, stem, domain, count, depth of the outermost, when the first begins, the
    time they cover, and whether they come steadily."""
    distance = pl.col("start_ns").sort().diff().drop_nulls()
    near_median = distance.is_between(distance.median() / 2, 2 * distance.median())
    return rows.group_by("thread", "stem").agg(
        pl.len().cast(pl.Int64).alias("count"),
        pl.col("domain").first(),
        pl.col("depth").min(),
        pl.col("start_ns").min().alias("first"),
        (pl.col("end_ns") - pl.col("start_ns")).sum().alias("covered"),
        (near_median.mean() >= assumed.STEADY_SHARE.value).alias("steady"),
    )


def _of_family(rows: pl.DataFrame, family: Mapping[str, Any]) -> pl.DataFrame:
    """The outermost ranges of that thread and stem, in order."""
    return _outermost(rows.filter((pl.col("thread") == family["thread"]) & (pl.col("stem") == family["stem"])))


def _outermost(ranges: pl.DataFrame) -> pl.DataFrame:
    """Of ranges of one thread those that lie in no other of them, in order of start."""
    ordered = ranges.sort("start_ns", -pl.col("end_ns"))
    return ordered.filter(pl.col("end_ns").cum_max().shift(1).fill_null(pl.col("start_ns").min()) <= pl.col("start_ns"))


def _launches_inside(steps: pl.DataFrame, launches: pl.DataFrame) -> bool:
    """Whether any launching call is in one of the ranges; true where the trace has no such calls at all."""
    if not launches.height:
        return True
    launched_ns = launches["start_ns"].to_numpy()
    around = places(steps["start_ns"].to_numpy(), launched_ns, True) - 1
    return bool(((around >= 0) & (steps["end_ns"].to_numpy()[around] > launched_ns)).any())


def _marks_of(
    steps: pl.DataFrame, process: tuple[int, int], marker: StepMarker, origin: StepOrigin, name: str
) -> _ProcessMarks:
    """Steps by ranges of one thread; of ranges that start together the longest is kept."""
    ordered = (
        steps.with_columns(pl.col("name").cast(pl.String))
        .sort("start_ns", "end_ns", "name")
        .unique("start_ns", keep="last", maintain_order=True)
    )
    start, end = pl.col("start_ns"), pl.col("end_ns")
    period, length = start.diff().median(), (end - start).median()
    is_phase = (2 * length < period) | pl.lit(origin is not StepOrigin.MARKED)
    last_end = pl.when(is_phase).then(pl.max_horizontal(start + period.cast(pl.Int64), end)).otherwise(end)
    frame = ordered.select(
        pl.col("name").alias("label"),
        "thread",
        start.alias("host_start_ns"),
        start.shift(-1).fill_null(last_end).alias("host_end_ns"),
        end.alias("mark_end_ns"),
    )
    return _ProcessMarks(*process, marker, origin, name, frame)


def _named(trace: Trace, pattern: str) -> Iterator[tuple[tuple[int, int], pl.DataFrame]]:
    """Of each process the ranges and operators whose names match, on the thread that has most of them."""
    parts = []
    for frame in (trace.get(RANGES), trace.get(HOST_OPS)):
        if (named := matches(frame["name"], pattern)).any():
            rows = frame.filter(named)
            parts.append(rows.select(*_THREAD, pl.col("name").cast(pl.String), "start_ns", "end_ns"))
    for process, found in by_process(pl.concat(parts).unique(maintain_order=True)) if parts else ():
        counts = Counter(found["thread"].to_list())
        most = min(counts, key=lambda thread: (-counts[thread], thread))
        yield process, found.filter(pl.col("thread") == most) if len(counts) > 1 else found


def _matching_ranges(trace: Trace, pattern: str) -> Iterator[_ProcessMarks]:
    """Steps by the ranges and operators whose names match, of the thread of a process that has most of them."""
    for process, found in _named(trace, pattern):
        outer = _outermost(found)
        if outer.height > 1:
            yield _marks_of(outer, process, StepMarker.RANGE, StepOrigin.MARKED, str(outer["name"][0]))


def _chosen_rounds(trace: Trace, on_device: bool) -> Iterator[_ProcessMarks]:
    """Steps of each process by the kernels, or the number of steps, that the user named."""
    for launched in launch_sequences(trace, on_device):
        positions = round_starts(launched, trace.step_choice)
        if positions is not None:
            yield from _kernel_marks(trace, launched, positions, on_device, StepOrigin.MARKED)


def _kernel_marks(
    trace: Trace,
    launched: LaunchSequence,
    positions: Int64Array,
    on_device: bool,
    origin: StepOrigin,
    of_tokens: bool = False,
) -> Iterator[_ProcessMarks]:
    """Steps of a process that begin with the operations at these positions; none where fewer than two do."""
    marks = launched.ops[positions]
    if on_device:
        starts = marks.select(pl.col("start_ns").alias("host_start_ns"), pl.lit(0, pl.Int64).alias("thread"))
    else:
        calls = trace.get(API_CALLS)[marks["call"].to_numpy()]
        starts = calls.select(pl.col("start_ns").alias("host_start_ns"), "thread")
    starts = starts.sort("host_start_ns").unique("host_start_ns", keep="first", maintain_order=True)
    if starts.height < 2:
        return
    end = pl.col("host_start_ns").shift(-1).fill_null(first_kernel_ns(launched, int(positions[-1])) + 1)
    label = pl.format("step {}", pl.int_range(pl.len())).alias("label")
    frame = starts.select(label, "thread", "host_start_ns", end.alias("host_end_ns"), end.alias("mark_end_ns"))
    name, process = str(marks["name"].cast(pl.String)[0]), (launched.rank, launched.process)
    yield _ProcessMarks(*process, StepMarker.KERNEL_PATTERN, origin, name, frame, of_tokens)


def _no_such_steps(trace: Trace, choice: StepChoice) -> UsageError:
    """What to say where the steps that the user asked for are not in the trace."""
    if choice.pattern is not None:
        return UsageError(
            f"no range and no kernel that comes back matches {choice.pattern!r}",
            remedy="`timesink show ranges` and `timesink kernels` list their names",
        )
    found = ", ".join(str(candidate) for candidate in step_candidates(trace))
    asked = f"nothing repeats {choice.count} times" if choice.count else "no loop of kernels is found"
    remedy = f"choose from {found}" if found else "name a range or a kernel with --steps PATTERN"
    return UsageError(asked, remedy=remedy)
