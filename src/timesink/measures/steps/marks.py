"""Where steps begin: ProfilerStep ranges, else ranges that repeat at top level, else the outermost loop of the kernels.

The profilers' own marks are trusted most; `loops` finds the loop of a trace without marks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.errors import UsageError
from timesink.knowledge.assumptions import steps as assumed
from timesink.knowledge.ranges import (
    ENGINE_STEP,
    LAYER,
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
    by_process,
    decode_rounds,
    first_kernel_ns,
    launch_sequences,
    round_starts,
    step_candidates,
)
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import Int32Array, found_at
from timesink.model.names import mapped, matches
from timesink.model.nesting import key_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import StepChoice, Trace, release_after, remembered
from timesink.startup import dataclass

_THREAD: Final = ("rank", "process", "thread")
STEP_COLUMNS: Final = pl.Schema(
    {"rank": pl.Int32(), "process": pl.Int64(), "step": pl.Int32(), "label": pl.String()}
    | dict.fromkeys(("thread", "host_start_ns", "host_end_ns", "mark_end_ns"), pl.Int64())
)


class StepMarker(StrEnum):
    """By what steps were told apart."""

    PROFILER_STEP = "profiler_step"
    RANGE = "range"
    KERNEL_PATTERN = "kernel_pattern"


@dataclass(frozen=True, slots=True, eq=False)
class StepMarks:
    """Every step of the trace: `frame` has STEP_COLUMNS, `step` counting from 0 in each process.

    A step lasts from its mark to the next; the last one to the end of its own range, or, where the marks are phases
    that fill less than half of the period, for the median period. `mark_end_ns` is the end of the step's own range,
    which may leave a stretch before the next mark. `name` is the mark's stem, empty where there are no steps.
    `on_device` says that the times are the GPU's, which is so only for kernel patterns without recorded launches;
    `of_tokens` that they are the rounds of a server nobody annotated (`decode_rounds`).
    """

    marker: StepMarker | None
    name: str
    frame: pl.DataFrame
    on_device: bool
    of_tokens: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _ProcessMarks:
    """Steps of one process. `frame`: label, thread, host_start_ns, host_end_ns, mark_end_ns, in order of start."""

    rank: int
    process: int
    marker: StepMarker
    name: str
    frame: pl.DataFrame
    of_tokens: bool = False


@remembered
def step_marks(trace: Trace) -> StepMarks:
    """Marked steps of all processes, in order of (rank, process); where none marks any, steps by kernel pattern.

    A process's own ProfilerStep ranges come before ranges that repeat.
    """
    choice, on_device = trace.step_choice, False
    if choice is None:
        marks = [part for _, part in sorted(_own_marks(trace).items())]
    else:
        marks = list(_matching_ranges(trace, choice.pattern)) if choice.pattern else []
    if not marks and (choice is not None or not _within_a_step(trace)):
        on_device = not launch_links(trace).linked_count
        marks = list(_pattern_marks(trace, on_device))
    if not marks and choice is not None:
        raise _no_such_steps(trace, choice)
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


def _own_marks(trace: Trace) -> dict[tuple[int, int], _ProcessMarks]:
    """Steps by a process's own ProfilerStep ranges, of others by ranges that repeat."""
    profiled = _profiler_marks(trace)
    is_each = all(process in profiled for process, _, _ in key_slices(trace.get(RANGES), PROCESS))
    return profiled if is_each else _range_marks(trace) | profiled


def _profiler_marks(trace: Trace) -> dict[tuple[int, int], _ProcessMarks]:
    """Steps by ProfilerStep ranges, of the thread of a process that has most of them."""
    return {
        process: _marks_of(steps, process, StepMarker.PROFILER_STEP, "ProfilerStep")
        for process, steps in _named(trace, PROFILER_STEP)
    }


def _range_marks(trace: Trace) -> dict[tuple[int, int], _ProcessMarks]:
    """Steps by ranges that repeat at top level; ranges whose names differ by their numbers are of one stem."""
    ranges = trace.get(RANGES)
    stems = mapped(ranges["name"], _stems, pl.String).alias("stem")
    rows = ranges.select(*_THREAD, "depth", "name", "start_ns", "end_ns").with_columns(stems)
    rows = _top_repeats(rows.filter(~pl.col("stem").str.contains(OPERATOR)))
    launches = trace.get(API_CALLS).filter(pl.col("correlation").is_not_null()).select(*_THREAD, "start_ns")
    marks = {}
    for (rank, process), of_process in by_process(rows):
        calls = launches.filter((pl.col("rank") == rank) & (pl.col("process") == process))
        family = _best_family(of_process, calls)
        if family is not None:
            thread, stem, is_named = family
            steps = of_process.filter((pl.col("thread") == thread) & (pl.col("stem") == stem))
            steps = steps.with_columns(pl.col("name").cast(pl.String)).sort("start_ns")
            if re.search(TORCH_OPTIMIZER_STEP, stem):
                steps = steps.gather_every(_optimizers(steps["start_ns"], calls))
            layer = steps["name"].str.extract(LAYER)
            if layer[0] is not None:  # of the layers of a model the first begins a step
                steps = steps.filter(layer == layer[0])
                if steps.height < assumed.REPEATS.whole:
                    continue
            if is_named or _holds_work(trace, (rank, process), steps):
                marks[rank, process] = _marks_of(steps, (rank, process), StepMarker.RANGE, stem)
    return marks


def _holds_work(trace: Trace, process: tuple[int, int], steps: pl.DataFrame) -> bool:
    """Whether what is launched from the first of these ranges to the end of the last is enough of the GPU work of their
    process to be its steps. A few small kernels of a model may come back within a step that itself does not."""
    links, ops = launch_links(trace), trace.get(DEVICE_OPS)
    own = links.linked & ((ops["rank"] == process[0]) & (ops["process"] == process[1])).to_numpy()
    launched_ns = found_at(trace.get(API_CALLS)["start_ns"].to_numpy(), links.call[own])
    length_ns = (ops["end_ns"] - ops["start_ns"]).to_numpy()[own]
    inside = (launched_ns >= steps["start_ns"].min()) & (launched_ns < steps["end_ns"].max())
    return bool(length_ns[inside].sum() >= assumed.STEPS_HOLD.value * length_ns.sum())


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


def _top_repeats(rows: pl.DataFrame) -> pl.DataFrame:
    """Ranges of the outermost depth of their thread at which any name comes back often enough."""
    family = [*_THREAD, "depth", "stem"]
    often = rows.group_by(family).len().filter(pl.col("len") >= assumed.REPEATS.whole)
    top = often.filter(pl.col("depth") == pl.col("depth").min().over(_THREAD))
    return rows.join(top.select(family), on=family, how="semi", maintain_order="left")


def _best_family(rows: pl.DataFrame, launches: pl.DataFrame) -> tuple[int, str, bool] | None:
    """(thread, stem, whether named like a step) of the ranges that best mark steps: those named like one, else steady
    ones that cover most time.

    Ranges in which nothing is launched mark no step by themselves; if those that do come in rounds of several, the
    first of the round is the mark.
    """
    distance = pl.col("start_ns").sort().diff().drop_nulls()
    near_median = distance.is_between(distance.median() / 2, 2 * distance.median())
    plain_stem = pl.col("stem").str.strip_chars("#_ .:-")
    families = (
        rows.group_by("thread", "stem")
        .agg(
            pl.len().alias("count"),
            pl.col("start_ns").min().alias("first"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("covered"),
            (near_median.mean() >= assumed.STEADY_SHARE.value).alias("steady"),
        )
        .with_columns((plain_stem.str.contains(STEP) & ~plain_stem.str.contains(PART_OF_STEP)).alias("hinted"))
        .filter(pl.col("hinted") | pl.col("steady"))
        .sort(["hinted", "covered", "thread", "stem"], descending=[True, True, False, False])
    )
    launching = (f for f in families.iter_rows(named=True) if _launches_inside(rows, launches, f["thread"], f["stem"]))
    best = next(launching, None)
    if best is None:
        return None
    is_named = best["hinted"]
    if not is_named:
        same_count = (pl.col("thread") == best["thread"]) & ((pl.col("count") - best["count"]).abs() <= 1)
        best = families.filter(same_count).sort("first", "stem").row(0, named=True)
    return best["thread"], best["stem"], is_named


def _launches_inside(rows: pl.DataFrame, launches: pl.DataFrame, thread: int, stem: str) -> bool:
    """Whether any launching call is in one of the family's ranges; true where the trace has no such calls at all."""
    if not launches.height:
        return True
    family = rows.filter((pl.col("thread") == thread) & (pl.col("stem") == stem)).sort("start_ns")
    launched_ns = launches["start_ns"].to_numpy()
    around = places(family["start_ns"].to_numpy(), launched_ns, True) - 1
    return bool(((around >= 0) & (family["end_ns"].to_numpy()[around] > launched_ns)).any())


def _marks_of(steps: pl.DataFrame, process: tuple[int, int], marker: StepMarker, name: str) -> _ProcessMarks:
    """Steps by ranges of one thread; of ranges that start together the longest is kept."""
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
    return _ProcessMarks(*process, marker, name, frame)


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
        of_thread = found.sort("start_ns", -pl.col("end_ns"))
        outer = of_thread.filter(pl.col("end_ns").cum_max().shift(1).fill_null(0) <= pl.col("start_ns"))
        if outer.height > 1:
            yield _marks_of(outer, process, StepMarker.RANGE, str(outer["name"][0]))


def _pattern_marks(trace: Trace, on_device: bool) -> Iterator[_ProcessMarks]:
    """Steps of each process by the kernels that the user named, or by the outermost loop of what its device runs."""
    calls = trace.get(API_CALLS)
    for launched in launch_sequences(trace, on_device):
        decoding = None if trace.step_choice is not None else decode_rounds(launched.ops, launched.kinds)
        positions = round_starts(launched, trace.step_choice) if decoding is None else decoding
        if positions is None:
            continue
        marks = launched.ops[positions]
        if on_device:
            starts = marks.select(pl.col("start_ns").alias("host_start_ns"), pl.lit(0, pl.Int64).alias("thread"))
        else:
            starts = calls[marks["call"].to_numpy()].select(pl.col("start_ns").alias("host_start_ns"), "thread")
        starts = starts.sort("host_start_ns").unique("host_start_ns", keep="first", maintain_order=True)
        if starts.height < 2:
            continue
        end = pl.col("host_start_ns").shift(-1).fill_null(first_kernel_ns(launched, int(positions[-1])) + 1)
        label = pl.format("step {}", pl.int_range(pl.len())).alias("label")
        frame = starts.select(label, "thread", "host_start_ns", end.alias("host_end_ns"), end.alias("mark_end_ns"))
        name = str(marks["name"].cast(pl.String)[0])
        process = launched.rank, launched.process
        yield _ProcessMarks(*process, StepMarker.KERNEL_PATTERN, name, frame, decoding is not None)


def _no_such_steps(trace: Trace, choice: StepChoice) -> UsageError:
    """What to say where the steps that the user asked for are not in the trace."""
    if choice.pattern is not None:
        return UsageError(
            f"no range and no kernel that comes back matches {choice.pattern!r}",
            remedy="`timesink show --ranges` and `timesink kernels` list their names",
        )
    found = ", ".join(str(candidate) for candidate in step_candidates(trace))
    asked = f"nothing repeats {choice.count} times" if choice.count else "no loop of kernels is found"
    remedy = f"choose from {found}" if found else "name a range or a kernel with --steps PATTERN"
    return UsageError(asked, remedy=remedy)
