"""The verdict where no finding is worth a change: that nothing limits the step, or that nobody can tell, and why.

"No bottleneck" is earned: three quarters of the time of the kernels are judged by a bound or by a name that rules know,
and what the device is idle has a cause that a rule looked at. Else the verdict is *undecided*, and names the largest
part that nobody judged.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.headline import QUIET, all_alike, has_empty_steps, not_diagnosable, step_ms, unfilled
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Card, Clear, Finding, Found, Ruling, Undecided
from timesink.diagnosis.words import as_started, drifting, number, said_of_compilation, slowest_step_text
from timesink.knowledge.kernel_names import short_name
from timesink.knowledge.ranges import ENGINE_STEP
from timesink.knowledge.step_parts import IDLE_WORDS, Bottleneck
from timesink.measures.idle.blame import idle_shares
from timesink.measures.kernels.attainable import attainable
from timesink.measures.kernels.facts import device_peaks
from timesink.measures.kernels.judged import unjudged
from timesink.measures.kernels.small_grids import fill_of
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import longest_period_ns, period_name, period_ns, share_of_step, step_windows
from timesink.measures.steps.proof import StepOrigin
from timesink.measures.timeline import device_names, device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.known import known
from timesink.measures.timeline.ranges import range_projection, serving_phases
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, KERNEL_PROFILES, MEMORY_BLOCKS, MEMORY_EVENTS
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.untrusted import shortened

UNJUDGED: Final = Limit.ratio(
    0.25,
    "that nothing limits the step is said where three quarters of the kernels' time were judged by a bound or a name",
    "public traces whose largest operator had no bound and was called no bottleneck: 36 to 99 % of the step",
)
_LENGTHENED: Final = 0.1  # a profiled step that is longer by more than this is not the step the program has
_MOSTLY: Final = 0.5
_FEW: Final = 5  # steps: what is rare, such as a checkpoint, may be in none of fewer
_BOUNDS_SHOWN: Final = 2
_SLIGHT: Final = 0.01  # of the step: of what is idle for less nobody asks why
_LONGEST: Final = 60  # letters of a kernel's name in a sentence
_APART: Final = 0.01  # of the step: less looks the same in a sentence
_HALF: Final = 0.5  # of the GPU
_UNRECORDED: Final = ("unrecorded_code", "unexplained")  # causes of which nothing was recorded


def without_finding(
    trace: Trace, has_findings: bool, bounds: Sequence[tuple[Card, Finding]] = (), rulings: Sequence[Ruling] = ()
) -> tuple[Bottleneck, str]:
    """The verdict on a trace in which no finding is worth a change: nothing limits it, or nobody can tell, and why.

    `bounds` are findings that may save a hundredth of the step, or nothing; `rulings` are what all rules said.
    """
    if why := _untold(trace, rulings):
        return Bottleneck.UNDECIDED, why
    if not (timelines := device_timeline(trace).by_device):
        profiled = number(trace.get(KERNEL_PROFILES).height, "kernel")
        if not any(isinstance(ruling.verdict, Clear | Found) for ruling in rulings):
            return Bottleneck.UNDECIDED, f"{profiled} profiled one by one, without the counters that any rule needs."
        return Bottleneck.NONE, f"{profiled} profiled one by one, and no rule finds a change worth making."
    busy = sum(share_of_step(trace, device, line.busy) for device, line in timelines.items()) / len(timelines)
    devices = "The GPU is" if len(timelines) == 1 else f"The {len(timelines)} GPUs are"
    cause = "" if 1 - busy < _SLIGHT else _main_cause(trace)
    said = f"{devices} busy {share_text(busy)}{_of_step(trace, busy)}{_exchanging(trace)}{_attained(trace)}{cause}"
    if unearned := _unearned(trace, busy, has_findings, rulings):
        has_length = any(line.span_ns for line in timelines.values())
        return Bottleneck.UNDECIDED, f"{said}. {unearned[:1].upper()}{unearned[1:]}." if has_length else f"{unearned}."
    what = "No finding is worth 1 % of a step" if has_findings else "No rule finds a change worth making"
    if bounds:
        most: dict[str, str] = {}
        for _, finding in bounds:  # of several places the dearest
            most.setdefault(finding.name, f"{finding.name} {saving_text(finding, interval=False)}")
        what = f"No finding surely saves 1 % of a step: {', '.join([*most.values()][:_BOUNDS_SHOWN])}"
    if replays := int((trace[DEVICE_OPS]["kind"] == "graph").sum()):  # few enough, and short, or it is undecided
        what += f" outside of {number(replays, 'graph replay')}, whose kernels were not recorded. To decide: "
        what += "nsys profile --cuda-graph-trace=node"
    if left := _not_judged(trace):
        return Bottleneck.UNDECIDED, f"{said}. {left}." if not has_findings else f"{said}. {what}. {left}."
    return Bottleneck.NONE, f"{said}. {what}."


def _unearned(trace: Trace, busy: float, has_findings: bool, rulings: Sequence[Ruling]) -> str:
    """Why nobody may say that nothing limits the step: what the file lacks, what a rule leaves open, or what is idle
    for no known cause."""
    undecided = [ruling.verdict for ruling in rulings if isinstance(ruling.verdict, Undecided)]
    doubts = [(lack.why, lack.to_decide) for lack in known(trace).doubts]
    if unknown := unfilled(trace):
        doubts[0] = (unknown, doubts[0][1])
    doubts += [(left.why, left.to_decide) for left in undecided if left.most_ratio > QUIET.default]
    if drift := drifting(trace):
        doubts.append((drift, "timesink capture nsys --gpu-metrics -- python train.py"))
    if doubts:
        return as_started(trace, "{}. To decide: {}".format(*doubts[0]))
    if not has_findings and (outside := _mostly_without_device(trace) or _mostly_outside(trace)):
        return outside
    if 1 - busy * _lengthened(trace) > QUIET.default:
        return _unclaimed_idle(trace)
    return _unclaimed_exchanges(trace, rulings)


def _unclaimed_idle(trace: Trace) -> str:
    """Why the idle time has no finding: nothing was recorded of what the CPU did in most of it, or what it did is
    below every rule's limit."""
    totals: Counter[str] = Counter()
    for share in idle_shares(trace):
        totals[share.cause] += round(share.per_step_ns)
    if API_CALLS not in trace or 2 * sum(totals[cause] for cause in _UNRECORDED) > totals.total():
        return "no rule names a cause, and not all that the CPU did in that time was recorded"
    return "no rule that looks at what the CPU did in that time passes its limit"


def _unclaimed_exchanges(trace: Trace, rulings: Sequence[Ruling]) -> str:
    """Which GPU does nothing but exchange for much of its step, where no rule prices that or says who is waited for."""
    if any(ruling.card.code.startswith("COM") and isinstance(ruling.verdict, Found) for ruling in rulings):
        return ""
    lines = device_timeline(trace).by_device.items()
    alone = {device: share_of_step(trace, device, line.exposed_communication) for device, line in lines}
    device = max(alone, key=lambda device: alone[device])
    if alone[device] <= QUIET.default:
        return ""
    return (
        f"GPU {device[1]} does nothing but communicate for {share_text(alone[device])} of the step, and nothing here "
        "says what that could save. To decide: timesink ranks RUN"
    )


def _not_judged(trace: Trace) -> str:
    """What nobody judged of the time in which devices are busy, where that is more than a quarter of it; else ''."""
    ops = trace[DEVICE_OPS]
    length_ns, whole = ops["end_ns"] - ops["start_ns"], ops["kind"] == "graph"
    if (held_ns := int(length_ns.filter(whole).sum())) > UNJUDGED.default * max(int(length_ns.sum()), 1):
        share = share_text(held_ns / int(length_ns.sum()))
        replays = number(int(whole.sum()), "graph replay")
        return (
            f"{share} of the GPU's work is {replays}, whose kernels were not recorded. To decide: nsys profile "
            "--cuda-graph-trace=node"
        )
    left = unjudged(trace)
    if left.ratio <= UNJUDGED.default:
        return ""
    names = [name for device, name in device_names(trace).items() if name and device not in device_peaks(trace)]
    name = left.name if left.is_operator else short_name(left.name)
    largest = f"{share_text(left.largest_ratio)} of the kernels' time is {shortened(name, _LONGEST)}"
    if left.is_operator and names:
        why = f"The peaks of {names[0]} are not known. To decide: timesink show ops TRACE --gpu H200, or one like it"
    else:
        why = as_started(trace, "To decide: timesink capture ncu -- python train.py")
    rest = left.ratio - left.largest_ratio
    others = f", or what takes another {share_text(rest)}," if rest >= _APART else ""
    fill = "" if left.is_operator else _part_filled(trace, left.name)
    return f"{largest}{fill}. Nothing here says how long it{others} ought to take. {why}"


def _part_filled(trace: Trace, name: str) -> str:
    """How little of the GPU a kernel's threads fill, where that is less than half; else ''."""
    fill = fill_of(trace, name)
    if fill is None or fill.ratio >= _HALF:
        return ""
    uneven = ", some with a block more than others" if fill.is_uneven and fill.blocks > fill.sms else ""
    return (
        f", its {fill.blocks} blocks of {fill.threads} threads fill {share_text(fill.ratio)} of the places of "
        f"{fill.sms} SMs{uneven}"
    )


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
    by_graph = f" ({replayed} replayed by {number(graphs, 'graph launch', 'graph launches')})" if graphs else ""
    window_ns = period_ns(trace, device)
    part = share_text(span_ns / max(window_ns, 1))
    rest = f" The step is {part} of the {time_text(window_ns)} window." if window_ns > 2 * span_ns else ""
    name = serving_phases(trace)[0].phase.value
    return (
        f"The trace holds one {name} step of a serving engine: {step['op_count']} operations in {time_text(span_ns)}"
        f"{by_graph}. The GPU is busy {share_text(busy_ns / max(span_ns, 1))} of that step.{rest} "
        "To see what the GPU waits for between steps, record ten or more."
    )


def _lengthened(trace: Trace) -> float:
    """How many times as long as without a profiler the recorded step is, as told or estimated; at least 1."""
    recorded_ns = longest_period_ns(trace)
    return max(recorded_ns / ((step_ms(trace) or 0.0) * NS_PER_MS or recorded_ns or 1.0), 1.0)


def _mostly_without_device(trace: Trace) -> str:
    """What to say of a window that is less than half of what was recorded, in which the device has no work at all; ''
    for a trace with steps, or of little else than device work."""
    if period_name(trace) != "window":
        return ""
    window_ns = max(budget.span_ns for budget in device_timeline(trace))
    extents = {rank: trace.of_ranks({rank}).extent_ns or (0, 0) for rank in trace.rank_numbers}
    rank, (first_ns, last_ns) = max(extents.items(), key=lambda of: of[1][1] - of[1][0])
    if window_ns >= _MOSTLY * (last_ns - first_ns):
        return ""
    rest = f"the rest of the recorded {time_text(last_ns - first_ns)} has no GPU work"
    ops = trace[DEVICE_OPS].filter(rank=rank)
    within = Intervals.one(int(ops["start_ns"].min() or 0), int(ops["end_ns"].max() or 0))  # type: ignore[arg-type]
    return f"{rest}{_filling(trace, rank, Intervals.one(first_ns, last_ns) - within)}"


def _filling(trace: Trace, rank: int, rest: Intervals) -> str:
    """What of the calls and operators that were recorded fills a rank's time."""
    tables = [trace.get(table).filter(rank=rank) for table in (API_CALLS, HOST_OPS)]
    rows = pl.concat(table.select(pl.col("name").cast(pl.String), "start_ns", "end_ns") for table in tables)
    rows = rows.with_columns(held=pl.Series(rest.covered_ns(rows["start_ns"], rows["end_ns"])))
    if (Intervals.of(rows) & rest).total_ns < _MOSTLY * rest.total_ns:
        return ", and what fills most of it is not known"
    longest = rows.group_by("name").agg(pl.col("held").sum()).sort("held", "name")["name"][-1]
    own_ns = (Intervals.of(rows.filter(name=longest)) & rest).total_ns
    return f": {shortened(longest, _LONGEST)} takes {time_text(own_ns)} of it"


def _mostly_outside(trace: Trace) -> str:
    """What to say of steps that are guessed or few, and hold less than half of what the devices ran; else ''. Few that
    are found are enough where the rest of the time is as they are."""
    lines = device_timeline(trace).by_device.items()
    held = [line.busy.covered_ns(*step_windows(trace, device)).sum() for device, line in lines]
    share = sum(held) / sum(line.busy.total_ns for _, line in lines)
    is_guess = steps(trace).origin is StepOrigin.GUESSED
    if share >= _MOSTLY or not (is_guess or (steps(trace).count < _FEW and not all_alike(trace))):
        return ""
    return f"the {'guessed' if is_guess else 'few whole'} steps hold {share_text(share)} of what it ran"


def _untold(trace: Trace, rulings: Sequence[Ruling]) -> str:
    """Why nothing can be said of what limits a step of the trace; '' where it can."""
    if (barred := not_diagnosable(trace)) is not None:
        return f"{barred.why[:1].upper()}{barred.why[1:]}. To decide: {barred.to_decide}."
    if one_step := _one_engine_step(trace):
        return one_step
    if not device_timeline(trace).by_device and not trace.get(KERNEL_PROFILES).height:
        return _without_work(trace, rulings)
    if not has_empty_steps(trace):
        return ""
    marked, missing = steps(trace).times, known(trace).missing
    held = time_text(max((budget.span_ns for budget in device_timeline(trace)), default=0))
    what = (
        f"The trace marks {number(marked.count, 'step')} of {time_text(marked.p50_ns or 0)}, but holds GPU work for "
        f"{held} only"
    )
    if not missing:
        return f"{what}. To decide: record ten steps."
    why = unfilled(trace) or missing[0].why
    said = f"{why[:1].upper()}{why[1:]}" if trace.get(API_CALLS).height else f"{what}; {why}"
    return f"{said}. To decide: {missing[0].to_decide}."


def _without_work(trace: Trace, rulings: Sequence[Ruling]) -> str:
    """What to say of a capture without work of a GPU: of a compiler's log, of allocations that no rule would change."""
    is_of_memory = any(trace.get(table).height for table in (MEMORY_EVENTS, MEMORY_BLOCKS))
    what = f"The {'capture holds allocations and' if is_of_memory else 'trace holds'} no GPU work"
    clear = sum(isinstance(ruling.verdict, Clear) for ruling in rulings)
    is_open = any(isinstance(one.verdict, Undecided) and not one.verdict.elsewhere for one in rulings)
    if is_of_memory and clear and not is_open:
        return f"{what}. {number(clear, 'rule')} looked at memory and found nothing to change."
    return f"{said_of_compilation(trace) or what}, so no GPU bottleneck can be named."


def _of_step(trace: Trace, busy_ratio: float) -> str:
    """What that share is of: the step as profiled, and where the step without the profiler is much shorter, which the
    same kernels fill more of, that one too."""
    of_profiled = f" of {slowest_step_text(trace)}"
    if (times := _lengthened(trace)) <= 1 + _LENGTHENED:
        return of_profiled
    share, about = share_text(min(busy_ratio * times, 1.0)), "" if trace.unprofiled_step_ns else "estimated "
    without = f"the {about}{time_text(longest_period_ns(trace) / times)} it takes without the profiler"
    return f"{of_profiled} as profiled, {share} of {without}"


def _exchanging(trace: Trace) -> str:
    """The part of the step in which GPUs are busy with nothing but exchanges, and may wait for each other."""
    lines = device_timeline(trace).by_device
    alone = sum(share_of_step(trace, device, line.exposed_communication) for device, line in lines.items()) / len(lines)
    return f", {share_text(alone)} in communication alone" if alone else ""


def _attained(trace: Trace) -> str:
    """How near the kernels run to their bound, where shapes and the GPU's peaks are known."""
    bound = attainable(trace)
    if bound.attained_ratio is None or bound.covered_ratio is None:
        return ""
    covered, attained = share_text(bound.covered_ratio), share_text(bound.attained_ratio)
    return f". Kernels with a known bound ({covered} of kernel time) run at {attained} of it"


def _main_cause(trace: Trace) -> str:
    """What most of the idle time is blamed on, where there is any and calls were recorded."""
    if API_CALLS not in trace or unfilled(trace):  # which says what is not known
        return ""
    totals: Counter[str] = Counter()
    for share in idle_shares(trace):
        totals[share.cause] += round(share.per_step_ns)
    if not totals.total():
        return ""
    cause = min(totals, key=lambda cause: (-totals[cause], cause))
    return f". {share_text(totals[cause] / totals.total())} of the idle time is {IDLE_WORDS[cause]}"
