"""The head of a diagnosis: its sources, step times and notes.

`without_finding` is the verdict where no finding is worth a change, or where nothing may be diagnosed.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.sharing import is_of_idle_time
from timesink.diagnosis.verdicts import (
    DeviceFigures,
    Finding,
    Note,
    StepFigures,
    Undecided,
)
from timesink.diagnosis.words import (
    drifting,
    guessed_steps,
    replay_notes,
    slowest_step_text,
    work_outside,
)
from timesink.knowledge.assumptions import replay as assumed
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.idle.blame import idle_after_work
from timesink.measures.ranks.paces import kept_ratio
from timesink.measures.ranks.parity import differences, missing_text, parity_facts
from timesink.measures.ranks.telling import telling_text
from timesink.measures.steps import STANDS_OUT, StepTimes, covered_ratio, outside_steps, step_times, steps
from timesink.measures.steps.per_step import longest_period_ns, period_name, share_of_step, step_windows
from timesink.measures.steps.slow_steps import of_usual_steps
from timesink.measures.timeline import device_names, device_timeline, of_device
from timesink.measures.timeline.known import LEAST_NS, known
from timesink.measures.timeline.start_up import start_up
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, SOURCES
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
    return f"{little.why[:1].upper()}{little.why[1:]}. In it, {finding.message}. To decide: {little.to_decide}."


def told_once(trace: Trace, finding: Finding) -> str:
    """How much of the idle time of a trace without steps, or of its exchanges, is one stretch, where that is most of
    it; else ''. The first exchange of a rank waits for what others start with."""
    may_be_once = finding.bottleneck is Bottleneck.COMMUNICATION_EXPOSED or is_of_idle_time(finding.claim, trace)
    if period_name(trace) != "window" or not may_be_once:
        return ""
    parts = [part.lengths_ns for part in finding.claim.intervals.values() if len(part)]
    longest_ns, total_ns = max((int(lengths.max()), int(lengths.sum())) for lengths in parts)
    if longest_ns < _MOSTLY * total_ns:
        return ""
    longest = time_text(longest_ns)
    one = "exchange" if finding.bottleneck is Bottleneck.COMMUNICATION_EXPOSED else "wait"
    part = "All of that" if longest == time_text(total_ns) else f"The longest {one}, {longest},"
    return f". {part} may be start-up"


def preface(trace: Trace, usual: Trace | None) -> str:
    """What is said first: that most of the work is in no step, or that there are only two that differ; else ''."""
    if is_mostly_outside(trace):
        return f"{work_outside(trace)}, and figures per step leave it out. "
    return _too_few_steps(trace) if usual else ""


def said_of_reading(trace: Trace) -> str:
    """That the GPU waits for nothing in most of the time, as a sentence; else ''."""
    if not (share := read_after_work(trace)) or is_mostly_outside(trace):
        return ""
    return f"In the last {share_text(share)} of the {period_name(trace)} the CPU only reads results"


@remembered
def is_mostly_outside(trace: Trace) -> bool:
    """Whether more than half of the devices' work is in no step, and is not what the steps do too."""
    outside_ns, all_ns = outside_steps(trace)
    return bool(work_outside(trace)) and 2 * outside_ns > all_ns and not all_alike(trace)


def unfilled(trace: Trace, findings: Sequence[Finding] = ()) -> str:
    """What says that nobody knows what fills much of the step, and why: something was lost, and findings claim less
    than it leaves idle; '' where that is little. Time in which work may have run that was lost is nobody's to claim."""
    is_seen = known(trace)
    if not is_seen.missing:
        return ""
    claims = [] if is_seen.hides_work else [finding.claim.intervals for finding in findings]
    shares = (
        share_of_step(trace, device, line.idle - Intervals.union_all([of[device] for of in claims if device in of]))
        for device, line in device_timeline(trace).by_device.items()
    )
    share = max(shares, default=0.0)
    part = f"{share_text(share)} of the {period_name(trace)}"
    what = f"GPU work may be missing in {part}" if is_seen.hides_work else f"{part} is not explained"
    what = f"{what}: {is_seen.missing[0].why}"
    return what if share >= QUIET.default else ""


@remembered
def read_after_work(trace: Trace) -> float:
    """The share of the step or window in which the CPU reads what the GPU wrote, behind its last kernel, where that is
    most of it; else 0."""
    devices = device_timeline(trace).by_device
    share = max((share_of_step(trace, device, idle_after_work(trace, device)) for device in devices), default=0.0)
    return share if share > _MOSTLY else 0.0


def _too_few_steps(trace: Trace) -> str:
    """How the sentence begins on a trace of two steady steps that differ; '' of any other."""
    periods = sorted(steps(trace).windows.group_by("step").agg(pl.col("period_ns").max())["period_ns"].to_list())
    if len(periods) != 2:
        return ""
    short, long = map(time_text, periods)
    return f"only two steady steps, of {short} and {long}, too few to say which is typical: this is what both have. "


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
    recorded_ns = longest_period_ns(trace)
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


def notes(trace: Trace, whole: Trace) -> tuple[Note, ...]:
    """Which ranks are looked into, what ranks differ in, what the reader noted on the import, and what limits the
    figures, in this order; `whole` is the trace of all ranks."""
    collected = [Note(text) for text in (telling_text(whole), *_unequal_ranks(whole)) if text]
    collected += [Note(note.message, note.kind.value, note.count, note.table, note.whole) for note in trace.notes]
    collected += [Note(text) for text in replay_notes(trace)]
    if not_diagnosable(trace) is not None:
        return tuple(collected)
    profiled_ns, step_ns = steps(trace).times.p50_ns, trace.unprofiled_step_ns
    if steps(trace).times.count == 0 and len(device_timeline(trace)):
        found = "no complete step" if steps(trace).dropped else "no steps found"
        collected.append(Note(f"{found}: figures are of the whole window"))
    elif has_empty_steps(trace) and len(device_timeline(trace)):
        collected.append(Note("no GPU work of a whole step was found: figures are of the whole window"))
    if (outside := work_outside(trace)) and not is_mostly_outside(trace):
        collected.append(Note(f"{outside}: figures per step leave it out"))
    if drift := drifting(trace):
        collected.append(Note(drift))
    if guessed := guessed_steps(trace):
        collected.append(Note(guessed))
    if step_ns and profiled_ns:
        ratio = profiled_ns / step_ns
        collected.append(Note(f"the profiled step takes {ratio:.2f} times the unprofiled {time_text(step_ns)}"))
    elif estimate := estimated_step(trace):
        collected.append(Note(estimate))
    return tuple(collected)


def estimated_step(trace: Trace) -> str:
    """What recording costs a step, where it is worth a word and nobody told the step without a profiler: `step_ms`
    beside the step that the bar is of."""
    trace = of_usual_steps(trace)
    kept, expected_ms, of_step = kept_ratio(trace), step_ms(trace), steps(trace).count
    if trace.unprofiled_step_ns or kept is None or not expected_ms or not of_step or kept[1] >= 1 - _TAKEN_OFF:
        return ""
    recorded_ns = expected_ms * NS_PER_MS / kept[1]
    low, high = (
        time_text(min(ratio * each, 1.0) * recorded_ns)
        for ratio, each in ((kept[0], assumed.ANOTHER_RUN.low), (kept[2], assumed.ANOTHER_RUN.high))
    )
    return (
        f"the profiler slows this run: {slowest_step_text(trace)} takes an estimated "
        f"{time_text(expected_ms * NS_PER_MS)} without it ({low} to {high}). CPU savings are shares of the estimate; "
        "--unprofiled-step-ms replaces it"
    )


def not_diagnosable(trace: Trace) -> Undecided | None:
    """Why no rule may look at a trace that records something else than the program's run; None where they may."""
    bar = known(trace).bar
    return Undecided(*bar) if bar else None


def all_alike(trace: Trace) -> bool:
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


def _ms(value_ns: float | None) -> float | None:
    return None if value_ns is None else value_ns / NS_PER_MS
