"""The head of a diagnosis: its sources, step times and notes.

`without_finding` is the verdict where no finding is worth a change, or where nothing may be diagnosed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.pricing import is_of_idle_time
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Card,
    Clear,
    DeviceFigures,
    Finding,
    Found,
    Note,
    Ruling,
    StepFigures,
    Undecided,
)
from timesink.diagnosis.words import (
    as_started,
    guessed_steps,
    number,
    period_text,
    said_of_compilation,
    work_outside,
)
from timesink.knowledge.assumptions import replay as assumed
from timesink.knowledge.ranges import ENGINE_STEP
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.idle.blame import idle_shares
from timesink.measures.kernels.attainable import attainable
from timesink.measures.ranks.lateness import kept_ratio
from timesink.measures.ranks.parity import differences, missing_text, parity_facts
from timesink.measures.steps import STANDS_OUT, StepTimes, covered_ratio, outside_steps, step_times, steps
from timesink.measures.steps.per_step import period_name, period_ns, share_of_step, step_windows
from timesink.measures.steps.proof import StepOrigin
from timesink.measures.timeline import device_names, device_timeline, of_device
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.graph_replays import graph_replays
from timesink.measures.timeline.known import LEAST_NS, known
from timesink.measures.timeline.ranges import range_projection, serving_phases
from timesink.measures.timeline.start_up import start_up
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, KERNEL_PROFILES, SOURCES
from timesink.model.trace import Trace, remembered
from timesink.records import replace
from timesink.units import NS_PER_MS, share_text, time_text

QUIET: Final = Limit.ratio(
    0.1,
    "a GPU that idles less is busy whatever its CPU does; one that idles more wants a cause",
    "docs/explanation/science.md, whose fault an idle GPU is",
)
FEW: Final = Limit.ratio(
    0.1,
    "what fewer than one steady step in ten has is not a property of the usual step, and is said apart from it",
    "docs/explanation/science.md, steps",
)
_LENGTHENED: Final = 0.1  # a profiled step that is longer by more than this is not the step the program has
_TAKEN_OFF: Final = 0.03  # a step that may be shorter by this much without a profiler is worth a word
_MOSTLY: Final = 0.5
_FEW: Final = 5  # steps: what is rare, such as a checkpoint, may be in none of fewer
_ALIKE: Final = 0.97  # a finding is worth a few % of a step: less may lie outside of it
_BOUNDS_SHOWN: Final = 2
_DIFFERENCES_SHOWN: Final = 6  # more is no headline; the ranks page has all
_DROPPED: Final = {
    "warm_up": "warm-up",
    "truncated": "cut off by the end of the window",
    "no_device_work": "without GPU work",
    "begun_before": "begun before the window",
}


def is_of_few_steps(finding: Finding, trace: Trace) -> bool:
    """Whether what it claims lies in so few of the steady steps that the usual one has next to none of it."""
    held, of = steps_held(finding, trace)
    return 0 < held < FEW.default * of


def steps_held(finding: Finding, trace: Trace) -> tuple[int, int]:
    """How many steady steps hold a good part of what it claims, half of the mean and more, and how many there are; of
    the device where that is most of them."""
    counts = [(0, 1)]
    for device, claimed in finding.claim.intervals.items():
        if len(claimed):
            held_ns = claimed.covered_ns(*step_windows(trace, device))
            counts.append((int((2 * held_ns >= max(held_ns.mean(), 1)).sum()), held_ns.size))
    return max(counts, key=lambda count: count[0] / count[1])


def too_little(trace: Trace, finding: Finding) -> str:
    """Why a finding is no headline: of a few records nobody knows what comes back, unless it is of work that takes long
    by itself; '' where it may be one."""
    little, claim = known(trace).too_little, finding.claim
    if little is None or not (is_of_idle_time(claim, trace) or claim.total_ns < LEAST_NS):
        return ""
    return f"{finding.message}; {little.why}. To decide: {little.to_decide}."


def told_once(trace: Trace, finding: Finding) -> str:
    """How much of the idle time of a trace without steps is one stretch, where that is most of it; else ''."""
    if period_name(trace) != "window" or not is_of_idle_time(finding.claim, trace):
        return ""
    parts = [part.lengths_ns for part in finding.claim.intervals.values() if len(part)]
    longest_ns, total_ns = max((int(lengths.max()), int(lengths.sum())) for lengths in parts)
    is_one = longest_ns >= _MOSTLY * total_ns
    return f", {time_text(longest_ns)} of it at once, which nothing shows to come back" if is_one else ""


def preface(trace: Trace, usual: Trace | None) -> str:
    """What is said first: that most of the work is in no step, or that there are only two that differ; else ''."""
    if is_mostly_outside(trace):
        return f"{work_outside(trace)}, and figures per step leave it out; "
    return _too_few_steps(trace) if usual else ""


@remembered
def is_mostly_outside(trace: Trace) -> bool:
    """Whether more than half of the devices' work is in no step, and is not what the steps do too."""
    outside_ns, all_ns = outside_steps(trace)
    return bool(work_outside(trace)) and 2 * outside_ns > all_ns and not _all_alike(trace)


def _too_few_steps(trace: Trace) -> str:
    """How the sentence begins on a trace of two steady steps that differ; '' of any other."""
    periods = sorted(steps(trace).windows.group_by("step").agg(pl.col("period_ns").max())["period_ns"].to_list())
    if len(periods) != 2:
        return ""
    short, long = map(time_text, periods)
    return f"only two steady steps, of {short} and {long}, too few to say which is typical: this is what both have; "


def steps_apart(usual: Trace | None) -> tuple[Note, ...]:
    """Which steps the findings on the usual step do not hold."""
    if usual is None:
        return ()
    frame = steps(usual).frame
    label = pl.col("label") if frame["label"].n_unique() > 1 else pl.format("step {}", "step")  # all of one name
    outliers = frame.filter(pl.col("status") == STANDS_OUT).select(label).to_series().unique(maintain_order=True)
    are, its = ("is an outlier", "its") if len(outliers) == 1 else ("are outliers", "their")
    told = f"findings are for the other steps; {its} lost time is reported separately"
    return (Note(f"{', '.join(outliers)} {are}: {told}"),)


def sources(trace: Trace) -> tuple[Mapping[str, str | int | None], ...]:
    """One mapping per input file: path, format, rank, tool version, size, digest."""
    columns = ("path", "format", "rank", "tool_version", "size_bytes", "sha256")
    return tuple(trace.get(SOURCES).select(columns).iter_rows(named=True))


def step_figures(trace: Trace) -> StepFigures:
    """Step times, in ms, of the slowest rank, which sets the pace of a synchronous job; none where what repeats is the
    capture of a graph."""
    if not_diagnosable(trace) is not None and not start_up(trace).is_most:
        return _figures(step_times(()))
    measured = steps(trace)
    alone = step_times(trace.unprofiled_steps_ns)
    dropped = tuple(f"{count} {_DROPPED.get(reason, reason)}" for reason, count in sorted(measured.dropped.items()))
    figures = replace(
        _figures(measured.times),
        source=measured.marker_name,
        dropped=dropped,
        origin=measured.origin or "",
        covered_ratio=covered_ratio(trace),
    )
    return replace(figures, unprofiled=_figures(alone)) if alone.count else figures


def _figures(times: StepTimes) -> StepFigures:
    figures = StepFigures(times.count, _ms(times.p50_ns), _ms(times.p90_ns), _ms(times.p99_ns))
    return replace(figures, least_ms=_ms(times.min_ns), most_ms=_ms(times.max_ns))


def step_ms(trace: Trace) -> float | None:
    """The step without a profiler, as told or estimated; the mean recorded one of the slowest device where that is not
    known to be shorter, or the window of a trace without steps; None where it has no device work.

    An estimate is the share of the recorded step that a replay of the same steps leaves without recording.
    """
    if trace.unprofiled_step_ns:
        return _ms(trace.unprofiled_step_ns)
    recorded_ns = max((period_ns(trace, device) for device in device_timeline(trace).by_device), default=0.0)
    kept = (kept_ratio(trace) or (1.0, 1.0, 1.0))[1]
    return _ms((kept if kept < 1 - _TAKEN_OFF else 1.0) * recorded_ns or None)


def device_figures(trace: Trace) -> tuple[DeviceFigures, ...]:
    """The time budget of every device over its whole span."""
    names = device_names(trace)
    return tuple(
        DeviceFigures(
            own.rank, own.device, names.get((own.rank, own.device), ""), own.span_ns, own.busy_ns, own.idle_ns,
            own.compute_ns, own.exposed_communication_ns, own.exposed_copy_ns,
        )
        for own in device_timeline(trace)
    )  # fmt: skip


def notes(trace: Trace) -> tuple[Note, ...]:
    """What ranks differ in, what the reader noted on the import, and what limits the figures, in this order."""
    collected = [Note(text) for text in _unequal_ranks(trace)]
    collected += [Note(note.message, note.kind.value, note.count, note.table) for note in trace.notes]
    collected += [Note(text) for text in _graph_notes(trace)]
    if not_diagnosable(trace) is not None:
        return tuple(collected)
    profiled_ns, step_ns = steps(trace).times.p50_ns, trace.unprofiled_step_ns
    if steps(trace).times.count == 0 and len(device_timeline(trace)):
        found = "no steady step" if steps(trace).dropped else "no steps found"
        collected.append(Note(f"{found}: figures per step are for the whole window"))
    elif has_empty_steps(trace) and len(device_timeline(trace)):
        collected.append(Note("no GPU work of a whole step was found: figures per step are for the whole window"))
    if (outside := work_outside(trace)) and not is_mostly_outside(trace):
        collected.append(Note(f"{outside}: figures per step leave it out"))
    if guessed := guessed_steps(trace):
        collected.append(Note(guessed))
    if step_ns and profiled_ns:
        ratio = profiled_ns / step_ns
        collected.append(Note(f"the profiled step takes {ratio:.2f} times the unprofiled {time_text(step_ns)}"))
    elif estimate := _estimated_step(trace):
        collected.append(Note(estimate))
    return tuple(collected)


def _graph_notes(trace: Trace) -> tuple[str, ...]:
    """How many kernels of graph replays are known by the operators that were captured, and why others are not."""
    found = graph_replays(trace)
    if not found.replayed:
        return ()
    how = "node id" if found.by_node == found.joined else "name, launch shape and order"
    joined = f"{found.joined:,} of {found.replayed:,} kernels that graphs replay are joined to what was captured"
    refused = sorted(found.refused.items(), key=lambda reason: (-reason[1], reason[0]))
    return (
        f"{joined}, by {how}" if found.joined else joined,
        *(f"{number(count, 'kernel')} that graphs replay are joined to nothing: {why}" for why, count in refused),
    )


def _estimated_step(trace: Trace) -> str:
    """What recording costs a step, where it is worth a word and nobody told the step without a profiler."""
    kept, profiled_ns = kept_ratio(trace), steps(trace).times.p50_ns
    if kept is None or not profiled_ns or kept[1] * assumed.ANOTHER_RUN.value > 1 - _TAKEN_OFF:
        return ""
    other = (assumed.ANOTHER_RUN.low, assumed.ANOTHER_RUN.value, assumed.ANOTHER_RUN.high)
    low, expected, high = (
        time_text(min(ratio * each, 1.0) * profiled_ns) for ratio, each in zip(kept, other, strict=True)
    )
    return (
        f"the profiler slows this run: without it the median step of {time_text(profiled_ns)} takes an estimated "
        f"{expected} ({low} to {high}); CPU savings are relative to that, exact with --unprofiled-step-ms"
    )


def not_diagnosable(trace: Trace) -> Undecided | None:
    """Why no rule may look at a trace that records something else than the program's run; None where they may."""
    bar = known(trace).bar
    return Undecided(*bar) if bar else None


def _one_engine_step(trace: Trace) -> str:
    """What the only step of a serving engine in the trace ran; '' for any other trace."""
    projected = range_projection(trace).filter(matches(range_projection(trace)["name"], ENGINE_STEP))
    if steps(trace).times.count or sum(phase.steps for phase in serving_phases(trace)) != 1 or not projected.height:
        return ""
    # Annotations nest, and the outer one may begin while the device still does what was launched before the trace.
    step = projected.sort("first_ns").row(-1, named=True)
    device = (step["rank"], step["device"])
    span_ns = step["last_ns"] - step["first_ns"]
    busy_ns = int(device_timeline(trace)[device].busy.covered_ns([step["first_ns"]], [step["last_ns"]])[0])
    launched = launch_links(trace)
    replayed = int(launched.shared.sum())
    graphs = int(np.unique(launched.call[launched.shared]).size)
    by_graph = f", {replayed} of them replayed by {number(graphs, 'graph launch', 'graph launches')}" if graphs else ""
    name = serving_phases(trace)[0].phase.value
    return (
        f"The trace holds one {name} step of a serving engine: {step['op_count']} operations in {time_text(span_ns)}"
        f"{by_graph}, and the GPU is busy {share_text(busy_ns / max(span_ns, 1))} of it. What the GPU waits for "
        "between steps cannot be told from one: record ten or more."
    )


def without_finding(
    trace: Trace, has_findings: bool, bounds: Sequence[tuple[Card, Finding]] = (), rulings: Sequence[Ruling] = ()
) -> tuple[Bottleneck, str]:
    """The verdict on a trace in which no finding is worth a change: nothing limits it, or nobody can tell, and why.

    `bounds` are findings that may save a hundredth of the step, or nothing; `rulings` are what all rules said.
    """
    if why := _untold(trace):
        return Bottleneck.UNDECIDED, why
    if not (timelines := device_timeline(trace).by_device):
        profiled = number(trace.get(KERNEL_PROFILES).height, "kernel")
        if not any(isinstance(ruling.verdict, Clear | Found) for ruling in rulings):
            return Bottleneck.UNDECIDED, f"{profiled} profiled one by one, without the counters that any rule needs."
        return Bottleneck.NONE, f"{profiled} profiled one by one, and no rule finds a change worth making."
    busy = sum(share_of_step(trace, device, line.busy) for device, line in timelines.items()) / len(timelines)
    devices = "The GPU is" if len(timelines) == 1 else f"The {len(timelines)} GPUs are"
    cause = "" if share_text(busy) == share_text(1.0) else _main_cause(trace)
    said = f"{devices} busy {share_text(busy)}{_of_step(trace, busy)}{_exchanging(trace)}{_attained(trace)}{cause}"
    if unearned := _unearned(trace, busy, has_findings, rulings):
        has_length = any(line.span_ns for line in timelines.values())
        return Bottleneck.UNDECIDED, f"{said}; {unearned}." if has_length else f"{unearned}."
    what = "no finding is worth 1 % of a step" if has_findings else "no rule finds a change worth making"
    if bounds:
        most: dict[str, str] = {}
        for card, finding in bounds:  # of several places the dearest
            most.setdefault(card.name, f"{card.name} {saving_text(finding, interval=False)}")
        what = f"no finding surely saves 1 % of a step: {', '.join([*most.values()][:_BOUNDS_SHOWN])}"
    if replays := int((trace[DEVICE_OPS]["kind"] == "graph").sum()):
        what += f" outside of {number(replays, 'graph replay')}, whose kernels were not recorded. To decide: "
        what += "nsys profile --cuda-graph-trace=node"
    return Bottleneck.NONE, f"{said}; {what}."


def _unearned(trace: Trace, busy: float, has_findings: bool, rulings: Sequence[Ruling]) -> str:
    """Why nobody may say that nothing limits the step: what the file lacks, what a rule leaves open, or what is idle
    for no known cause."""
    undecided = [ruling.verdict for ruling in rulings if isinstance(ruling.verdict, Undecided)]
    doubts = [(lack.why, lack.to_decide) for lack in known(trace).doubts]
    doubts += [(left.why, left.to_decide) for left in undecided if left.most_ratio > QUIET.default]
    if doubts:
        return as_started(trace, "{}. To decide: {}".format(*doubts[0]))
    if not has_findings and (outside := _mostly_without_device(trace) or _mostly_outside(trace)):
        return outside
    if 1 - busy * _lengthened(trace) > QUIET.default:
        return "no rule names a cause, and not all that the CPU did in that time was recorded"
    return ""


def _lengthened(trace: Trace) -> float:
    """How many times as long as without a profiler the recorded step is, as told or estimated; at least 1."""
    recorded_ns = max(period_ns(trace, device) for device in device_timeline(trace).by_device)
    return max(recorded_ns / ((step_ms(trace) or 0.0) * NS_PER_MS or recorded_ns or 1.0), 1.0)


def _mostly_without_device(trace: Trace) -> str:
    """What to say of a window that is less than half of what was recorded, in which the device has no work at all; ''
    for a trace with steps, or of little else than device work."""
    if period_name(trace) != "window":
        return ""
    window_ns = max(budget.span_ns for budget in device_timeline(trace))
    extents = (trace.of_ranks({rank}).extent_ns for rank in trace.rank_numbers)
    recorded_ns = max(last_ns - first_ns for first_ns, last_ns in filter(None, extents))
    if window_ns >= _MOSTLY * recorded_ns:
        return ""
    return f"it has no work in the rest of the {time_text(recorded_ns)} that were recorded"


def _mostly_outside(trace: Trace) -> str:
    """What to say of steps that are guessed or few, and hold less than half of what the devices ran; else ''. Few that
    are found are enough where the rest of the time is as they are."""
    lines = device_timeline(trace).by_device.items()
    held = [line.busy.covered_ns(*step_windows(trace, device)).sum() for device, line in lines]
    share = sum(held) / sum(line.busy.total_ns for _, line in lines)
    is_guess = steps(trace).origin is StepOrigin.GUESSED
    if share >= _MOSTLY or not (is_guess or (steps(trace).count < _FEW and not _all_alike(trace))):
        return ""
    return f"the {'guessed' if is_guess else 'few whole'} steps hold {share_text(share)} of what it ran"


def _all_alike(trace: Trace) -> bool:
    """Whether every device runs next to nothing outside of the steps that they do not run too, and is as busy there."""
    for device, line in device_timeline(trace).by_device.items():
        windows = Intervals.union_of(*step_windows(trace, device))
        length = pl.col("end_ns") - pl.col("start_ns")
        ops = trace[DEVICE_OPS].filter(of_device(device)).select("name", "start_ns", length.alias("length"))
        is_inside = pl.Series(windows.covered_ns(ops["start_ns"], ops["start_ns"] + 1) > 0)
        is_known = ops["name"].is_in(ops.filter(is_inside)["name"].unique().implode())
        busy = (line.busy & windows).total_ns / max(windows.total_ns, 1)
        known_ns, all_ns = int(ops.filter(is_known)["length"].sum()), int(ops["length"].sum())
        if known_ns < _ALIKE * all_ns:
            return False
        if line.busy.total_ns < _ALIKE * busy * line.span_ns:
            return False
    return True


def _untold(trace: Trace) -> str:
    """Why nothing can be said of what limits a step of the trace; '' where it can."""
    if (barred := not_diagnosable(trace)) is not None:
        return f"{barred.why[:1].upper()}{barred.why[1:]}. To decide: {barred.to_decide}."
    if one_step := _one_engine_step(trace):
        return one_step
    if not device_timeline(trace).by_device and not trace.get(KERNEL_PROFILES).height:
        compiled = said_of_compilation(trace)
        return f"{compiled or 'The trace holds no GPU work'}, so no GPU bottleneck can be named."
    if has_empty_steps(trace) and trace.get(API_CALLS).height and (missing := known(trace).missing):
        return f"{missing[0].why[:1].upper()}{missing[0].why[1:]}. To decide: {missing[0].to_decide}."
    if has_empty_steps(trace):
        marked = steps(trace).times
        held = time_text(max((budget.span_ns for budget in device_timeline(trace)), default=0))
        return (
            f"The trace marks {number(marked.count, 'step')} of {time_text(marked.p50_ns or 0)} but holds no whole "
            f"step of GPU work: all of it lies within {held}. To decide: record ten steps."
        )
    return ""


def has_empty_steps(trace: Trace) -> bool:
    """Steps are marked, but none has all of its device work in the trace."""
    return bool(steps(trace).times.count) and not steps(trace).windows.height


def _unequal_ranks(trace: Trace) -> tuple[str, ...]:
    """Ranks that differ in what they ought to share, or that no file holds, make every comparison of them doubtful."""
    unequal = differences(parity_facts(trace)) if trace.get(SOURCES)["rank"].n_unique() > 1 else ()
    said = [f"ranks differ: {difference.text}" for difference in unequal[:_DIFFERENCES_SHOWN]]
    if len(unequal) > _DIFFERENCES_SHOWN:
        said.append(f"ranks differ in {len(unequal) - _DIFFERENCES_SHOWN} more")
    return (*said, *filter(None, [missing_text(trace.get(SOURCES))]))


def _of_step(trace: Trace, busy_ratio: float) -> str:
    """What that share is of: the step as profiled, and where the step without the profiler is much shorter, which the
    same kernels fill more of, that one too."""
    device = max(device_timeline(trace).by_device, key=lambda device: period_ns(trace, device))
    of_profiled = f" of {period_text(trace, device)}"
    if (times := _lengthened(trace)) <= 1 + _LENGTHENED:
        return of_profiled
    share, about = share_text(min(busy_ratio * times, 1.0)), "" if trace.unprofiled_step_ns else "estimated "
    without = f"the {about}{time_text(period_ns(trace, device) / times)} it takes without the profiler"
    return f"{of_profiled} as profiled, {share} of {without}"


def _exchanging(trace: Trace) -> str:
    """The part of the step in which GPUs are busy with nothing but exchanges, and may wait for each other."""
    lines = device_timeline(trace).by_device
    alone = sum(share_of_step(trace, device, line.exposed_communication) for device, line in lines.items()) / len(lines)
    return f", {share_text(alone)} with exchanges alone" if alone else ""


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
        totals[share.cause] += round(share.per_step_ns)
    if not totals.total():
        return ""
    cause = min(totals, key=lambda cause: (-totals[cause], cause))
    return f"; {share_text(totals[cause] / totals.total())} of the idle time is {IDLE_WORDS[cause]}"


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS
