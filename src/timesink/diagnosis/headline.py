"""The head of a diagnosis: its sources, step times, device budgets and notes, and the sentences that sum it up.

`no_bottleneck` is the verdict where no finding is worth a change. `statements` are the three sentences that a team
writes down of a run: where the time goes, what overlaps, what the compiler made of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import polars as pl

from timesink.diagnosis.verdicts import DeviceFigures, Limit, Note, StepFigures
from timesink.diagnosis.words import period_text
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.communication.pipelines import OverlapScore, PipelineStage
from timesink.measures.compile.summary import compile_counters
from timesink.measures.idle.shares import idle_shares
from timesink.measures.kernels.attainable import attainable
from timesink.measures.ranks.parity import differences, parity_facts
from timesink.measures.steps.accumulation import micro_batches
from timesink.measures.steps.parts import step_parts
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns, share_of_step
from timesink.measures.steps.phases import StepPhases, phases
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.measures.timeline.ranges import serving_phases
from timesink.measures.timeline.replay import estimated_step_ns
from timesink.measures.timeline.synchronisations import synchronised_ranges
from timesink.model.tables import API_CALLS, COMPILE_EVENTS, DEVICES, SOURCES
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text

QUIET: Final = Limit(
    default=0.10,
    unit="ratio",
    why="a device that idles less is busy whatever its host does; one that idles more wants a cause",
    source="docs/explanation/science.md, whose fault an idle GPU is",
)
_LENGTHENED: Final = 0.1  # a profiled step that is longer by more than this is not the step the program has
_TAKEN_OFF: Final = 0.03  # a step that may be shorter by this much without a profiler is worth a word
_DIFFERENCES_SHOWN: Final = 6
_PARTS_SHOWN: Final = 3
_LEAST_SHOWN: Final = 5e-5  # of the time: less would be said to be 0.00 %
_WORTH_HIDING: Final = 0.01  # of the step
_DROPPED: Final = {
    "warm_up": "warm-up",
    "truncated": "cut off by the end of the window",
    "no_device_work": "without device work",
    "begun_before": "begun before the window",
}


def sources(trace: Trace) -> tuple[Mapping[str, str | int | None], ...]:
    """One mapping per input file: path, format, rank, tool version, size, digest."""
    columns = ("path", "format", "rank", "tool_version", "size_bytes", "sha256")
    return tuple(trace.get(SOURCES).select(columns).iter_rows(named=True))


def step_figures(trace: Trace) -> StepFigures:
    """Step times, in ms, of the slowest rank, which sets the pace of a synchronous job."""
    measured = steps(trace)
    times = measured.times
    return StepFigures(
        count=times.count,
        p50_ms=_ms(times.p50_ns),
        p90_ms=_ms(times.p90_ns),
        p99_ms=_ms(times.p99_ns),
        source=measured.marker_name,
        dropped=tuple(f"{count} {_DROPPED.get(reason, reason)}" for reason, count in sorted(measured.dropped.items())),
    )


def step_ms(trace: Trace) -> float | None:
    """The step without a profiler, as told or estimated; the longest device span where the trace has no steps to
    replay; None where it has no device work."""
    estimated = estimated_step_ns(trace) if trace.unprofiled_step_ns is None else None
    return _ms(estimated[1] if estimated else trace.unprofiled_step_ns) or _ms(_profiled_step_ns(trace))


def device_figures(trace: Trace) -> tuple[DeviceFigures, ...]:
    """The time budget of every device over its whole span."""
    devices = trace.get(DEVICES).select("rank", "device", "name").iter_rows()
    names = {(rank, device): name or "" for rank, device, name in devices}
    return tuple(
        DeviceFigures(
            rank=budget.rank,
            device=budget.device,
            name=names.get((budget.rank, budget.device), ""),
            span_ns=budget.span_ns,
            busy_ns=budget.busy_ns,
            idle_ns=budget.idle_ns,
            compute_ns=budget.compute_ns,
            exposed_comm_ns=budget.exposed_communication_ns,
            exposed_copy_ns=budget.exposed_copy_ns,
        )
        for budget in device_timeline(trace)
    )


def notes(trace: Trace) -> tuple[Note, ...]:
    """What ranks differ in, what the reader noted on the import, and what limits the figures, in this order."""
    collected = [Note(text) for text in _unequal_ranks(trace)]
    collected += [Note(note.message, note.kind.value, note.count, note.table) for note in trace.notes]
    profiled_ns, step_ns = steps(trace).times.p50_ns, trace.unprofiled_step_ns
    if steps(trace).times.count == 0 and len(device_timeline(trace)):
        collected.append(Note("no steps found: figures per step are for the whole window"))
    if step_ns and profiled_ns:
        ratio = profiled_ns / step_ns
        collected.append(Note(f"the profiled step takes {ratio:.2f} times the unprofiled {time_text(step_ns)}"))
    elif estimate := _estimated_step(trace):
        collected.append(Note(estimate))
    return tuple(collected)


def _estimated_step(trace: Trace) -> str:
    """What recording costs a step, where it is worth a word and nobody told the step without a profiler."""
    estimated, profiled_ns = estimated_step_ns(trace), steps(trace).times.p50_ns
    if estimated is None or not profiled_ns or estimated[0] > (1 - _TAKEN_OFF) * profiled_ns:
        return ""
    low, expected, high = map(time_text, estimated)
    return (
        f"recording slows the host: without the profiler a step of {time_text(profiled_ns)} takes an estimated "
        f"{expected} ({low} to {high}), of which gains of host time are parts; --unprofiled-step-ms makes them exact"
    )


def marked_as_part(trace: Trace, statement: str) -> str:
    """The verdict, after a word on files that could not be read to their end."""
    return (
        f"Only part of the trace could be read: {'; '.join(trace.damage)}. {statement}" if trace.damage else statement
    )


def no_bottleneck(trace: Trace, has_findings: bool) -> str:
    """One sentence for a trace in which no finding is worth a change."""
    timelines = device_timeline(trace).by_device
    if not timelines:
        return "The trace holds no device work, so no bottleneck of the device can be named."
    busy = sum(share_of_step(trace, device, line.busy) for device, line in timelines.items()) / len(timelines)
    what = "no finding is worth 1 % of a step" if has_findings else "no rule finds a change worth making"
    if not has_findings and 1 - busy > QUIET.default:
        what = "no rule names a cause, and what the host did in that time is not all recorded"
    devices = "The device is" if len(timelines) == 1 else f"The {len(timelines)} devices are"
    return f"{devices} busy {share_text(busy)}{_of_step(trace, busy)}{_attained(trace)}{_main_cause(trace)}; {what}."


def statements(trace: Trace) -> tuple[str, ...]:
    """Attribution, overlap, compilation: those of them that the trace supports."""
    sentences = (_attribution(trace), _overlap(trace), _compilation(trace))
    return tuple(sentence for sentence in sentences if sentence)


def _unequal_ranks(trace: Trace) -> tuple[str, ...]:
    """Ranks that differ in what they ought to share make every comparison of them doubtful."""
    if trace.get(SOURCES)["rank"].n_unique() < 2:
        return ()
    unequal = differences(parity_facts(trace))
    more = len(unequal) - _DIFFERENCES_SHOWN
    shown = tuple(f"ranks differ: {difference.text}" for difference in unequal[:_DIFFERENCES_SHOWN])
    return shown + ((f"ranks differ in {more} more",) if more > 0 else ())


def _of_step(trace: Trace, busy_ratio: float) -> str:
    """What that share is of: the step as profiled, and where the step without the profiler is much shorter, which the
    same kernels fill more of, that one too."""
    device = max(device_timeline(trace).by_device, key=lambda device: period_ns(trace, device))
    step_ns, unprofiled_ns = period_ns(trace, device), trace.unprofiled_step_ns
    of_profiled = f" of {period_text(trace, device)}"
    if unprofiled_ns is None or step_ns <= (1 + _LENGTHENED) * unprofiled_ns:
        return of_profiled
    share = share_text(min(busy_ratio * step_ns / unprofiled_ns, 1.0))
    return f"{of_profiled} as profiled, {share} of the {time_text(unprofiled_ns)} it takes without the profiler"


def _attained(trace: Trace) -> str:
    """How near the kernels run to their bound, where shapes and the GPU's peaks are known."""
    bound = attainable(trace)
    if bound.attained_ratio is None or bound.covered_ratio is None:
        return ""
    return (
        f", with kernels at {share_text(bound.attained_ratio)} of the attainable bound"
        f" ({share_text(bound.covered_ratio)} of kernel time has recorded shapes)"
    )


def _main_cause(trace: Trace) -> str:
    """What most of the idle time is blamed on, where there is any and calls were recorded."""
    if API_CALLS not in trace:
        return ""
    totals: Counter[str] = Counter()
    for share in idle_shares(trace):
        totals[share.cause] += share.idle_ns
    if not totals.total():
        return ""
    cause = min(totals, key=lambda cause: (-totals[cause], cause))
    return f"; {share_text(totals[cause] / totals.total())} of its idle time is {IDLE_WORDS[cause]}"


def _attribution(trace: Trace) -> str:
    if not step_parts(trace).span_ns:
        return ""
    how = (
        "block-profiled: attribution, not throughput" if synchronised_ranges(trace).attribution_only else "as profiled"
    )
    passes = micro_batches(trace) or 1
    updates = f"; {passes} micro-batches to an optimizer step" if passes > 1 else ""
    return f"attribution: {_phase_shares(trace) or _range_shares(trace) or _part_shares(trace)} ({how}){updates}"


def _phase_shares(trace: Trace) -> str:
    """Prefill and decode of a serving engine; '' where no engine step was recorded."""
    engine = [phase for phase in serving_phases(trace) if phase.device_ns]
    total_ns = sum(phase.device_ns for phase in engine)
    shares = [
        f"{phase.phase.value} ({_number(phase.steps, 'engine step')}) is {share_text(phase.device_ns / total_ns)}"
        for phase in engine
    ]
    return f"{', '.join(shares)} of the GPU time of engine steps" if shares else ""


def _range_shares(trace: Trace) -> str:
    """What of the busy time the program's largest ranges launched; '' where fewer than two of them did."""
    found = phases(trace)
    named = found.frame.drop_nulls("phase")
    if named.height < 2:
        return ""
    shown = named.head(_PARTS_SHOWN)
    outside_ns = int(found.frame.filter(pl.col("phase").is_null())["time_ns"].sum())
    others_ns = int(named["time_ns"].sum()) - int(shown["time_ns"].sum())
    rest = [("other ranges", others_ns), ("outside ranges", outside_ns)]
    return _shares([*shown.iter_rows(), *rest], found.busy_ns, f"the {_busy_time(found)}")


def _busy_time(found: StepPhases) -> str:
    return f"{time_text(found.busy_ns / max(found.step_count, 1))} that the device is busy"


def _part_shares(trace: Trace) -> str:
    """The kinds of device work, and the idle time."""
    parts = step_parts(trace)
    totals = parts.frame.group_by("kind").agg(pl.col("total_ns").sum())
    rows = totals.sort("total_ns", "kind", descending=[True, False]).iter_rows()
    return _shares(list(rows), parts.span_ns, f"the {time_text(parts.span_ns / max(parts.step_count, 1))}")


def _shares(times: list[tuple[str, int]], total_ns: int, of: str) -> str:
    """``of the 2.79 ms that ..., forward is 40.0 %, backward 60.0 %``: together all of it."""
    named = [f"{name} {share_text(ns / total_ns)}" for name, ns in times if ns > _LEAST_SHOWN * total_ns]
    return f"of {of}, {', '.join(named)}".replace(f", {times[0][0]} ", f", {times[0][0]} is ", 1)


def _overlap(trace: Trace) -> str:
    """How well computation, communication and copies hide each other in a steady step of the device with the longest
    span: hidden time over what could be hidden; '' where one of them takes nearly all the time."""
    lines = sorted(device_timeline(trace).by_device.values(), key=lambda line: (-line.span_ns, line.rank, line.device))
    if not lines or not steps(trace).times.count:
        return ""
    line = lines[0]
    device = (line.rank, line.device)
    kinds = (("compute", line.compute), ("communication", line.communication), ("copies", line.copy))
    stages = tuple(PipelineStage(name, per_step_ns(trace, device, work)) for name, work in kinds)
    overlap = OverlapScore(stages, per_step_ns(trace, device, line.busy))
    possible_ns = overlap.serial_ns - overlap.longest.time_ns
    if overlap.score is None or possible_ns < _WORTH_HIDING * period_ns(trace, device):
        return ""
    times = ", ".join(f"{stage.name} {time_text(stage.time_ns)}" for stage in stages if stage.time_ns)
    return (
        f"overlap: {times} of {period_text(trace, device)}; OverlapScore {overlap.score:.2f} "
        "(0 one after another, 1 the longest hides the others)"
    )


def _compilation(trace: Trace) -> str:
    counters = compile_counters(trace)
    counts, per = [], "per step" if period_name(trace) == "step" else "in the window"
    if COMPILE_EVENTS in trace:
        counts.append(f"graph breaks {counters.graph_breaks:.0f}, recompilations {counters.recompilations:.0f}")
    if counters.regions_per_step is not None and counters.graphs_per_step is not None:
        regions, graphs = counters.regions_per_step, counters.graphs_per_step
        counts.append(f"{_number(regions, 'compiled region')} of {_number(graphs, 'graph')} {per}")
    if counters.steady_compilations:
        counts.append(f"{counters.steady_compilations:.0f} compilations in steady steps")
    if counts and counters.launches_per_step is not None:
        counts.append(f"{counters.launches_per_step:.0f} launches {per}")
    return f"compile: {', '.join(counts)}" if counts else ""


def _number(count: float, noun: str) -> str:
    return f"{count:.0f} {noun}{'s' * (round(count) != 1)}"


def _profiled_step_ns(trace: Trace) -> float | None:
    """The median steady step; the longest device span without steps; None without device work."""
    p50_ns = steps(trace).times.p50_ns
    if p50_ns is not None:
        return p50_ns
    return max((budget.span_ns for budget in device_timeline(trace)), default=0) or None


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS
