"""The words in which rules and headlines say which step a time is a part of."""

from typing import Final

from timesink.diagnosis.verdicts import OfPeriod, StepName
from timesink.knowledge.programs import BY_PYTHON, FRAMEWORKS, ProgramKind
from timesink.knowledge.vendors import NVIDIA, as_of
from timesink.measures.compile.summary import compile_summary
from timesink.measures.kernels.drift import kernel_drift
from timesink.measures.steps import outside_steps, steps
from timesink.measures.steps.launch_sequences import step_candidates
from timesink.measures.steps.marks import StepMarker
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns, step_windows
from timesink.measures.steps.proof import StepOrigin
from timesink.measures.timeline import Device, device_timeline
from timesink.measures.timeline.graph_replays import graph_replays
from timesink.measures.timeline.known import known
from timesink.model.arrays import median
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, THREADS
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.untrusted import shortened

_CANDIDATES_SHOWN: Final = 4  # as many as fit in a sentence
_APART: Final = 0.05  # a mean that is farther from the median than this is named, with the median beside it
_LONGEST: Final = 60  # letters of a kernel's name in a sentence
_PRINTED: Final = 0.005  # half a unit of the last of three digits


def period_text(trace: Trace, device: Device) -> str:
    """What times "per step" on a device are of: ``the 6.31 ms step``, ``the 84.6 ms mean step`` where the median
    is another, ``the 12.9 s window`` where there are no steps."""
    mean_ns, median_ns = _mean_and_median_ns(trace, device)
    guessed = "guessed " if steps(trace).origin is StepOrigin.GUESSED and period_name(trace) == "step" else ""
    mean = "mean " if apart(mean_ns, median_ns) else ""
    return f"the {time_text(mean_ns)} {guessed}{mean}{period_name(trace)}"


def slowest_step_text(trace: Trace) -> str:
    """The same of the device whose steps are longest, which sets the pace of a job."""
    return period_text(trace, max(device_timeline(trace).by_device, key=lambda device: period_ns(trace, device)))


def guessed_steps(trace: Trace) -> str:
    """From what steps are guessed, what else they could be, and how one says so; '' where they are marked or found."""
    found = steps(trace)
    if found.origin is not StepOrigin.GUESSED:
        return ""
    source = f"ranges named {found.marker_name}" if found.marker is StepMarker.RANGE else "a loop of the kernels"
    others = step_candidates(trace)[:_CANDIDATES_SHOWN]
    shown = f". They could also be {', '.join(map(str, others))}" if len(others) > 1 else ""
    return f"no step is marked: steps are guessed from {source}{shown}. --steps N or --steps PATTERN sets them"


_OUTSIDE: Final = 0.1  # of the device's work: as much may be the program's set-up and its last step
_STEPS_OF: Final = {
    StepOrigin.MARKED: "the marked steps",
    StepOrigin.FOUND: "the steps",
    StepOrigin.GUESSED: "the guessed steps",
}


def work_outside(trace: Trace) -> str:
    """How much of the devices' work lies outside of all steps, as a clause, where that is a good part; else ''."""
    outside_ns, all_ns = outside_steps(trace)
    origin = steps(trace).origin
    if origin is None or not steps(trace).windows.height or outside_ns <= _OUTSIDE * all_ns:
        return ""
    work = f"{share_text(outside_ns / all_ns)} of the GPU's work ({time_text(outside_ns)} of {time_text(all_ns)})"
    return f"{work} lies outside of {_STEPS_OF[origin]}"


def drifting(trace: Trace) -> str:
    """Which kernel takes longer, or less, from step to step at one shape, as a clause; '' where none does."""
    if (drift := kernel_drift(trace)) is None:
        return ""
    longer = "longer" if drift.ratio > 0 else "less"
    name, lengths = shortened(drift.name, _LONGEST), f"{time_text(drift.first_ns)} to {time_text(drift.last_ns)}"
    return (
        f"{name} takes {lengths} from the first steps to the last, {share_text(abs(drift.ratio))} {longer} at one "
        "shape. Clocks, heat or other work on the GPU may have changed"
    )


def which_step(trace: Trace, step_ms: float | None) -> StepName:
    """What a share of `step_ms` must be called a share of, where that is not the usual recorded step: ``unprofiled``
    where no device's recorded steps are that long, ``mean`` where the median of some device is another; without steps,
    ``longest`` where the window of some device is another; else ''."""
    lengths = [_mean_and_median_ns(trace, device) for device in device_timeline(trace).by_device]
    if period_name(trace) == "window":
        windows = [window_ns for window_ns, _ in lengths]
        return "longest" if windows and apart(max(windows), min(windows)) else ""
    if step_ms and all(apart(mean_ns, step_ms * NS_PER_MS, _PRINTED) for mean_ns, _ in lengths):
        return "unprofiled"
    return "mean" if any(apart(*pair) for pair in lengths) else ""


def _mean_and_median_ns(trace: Trace, device: Device) -> tuple[float, float]:
    start, end = step_windows(trace, device)
    return period_ns(trace, device), median(end - start)


def apart(mean_ns: float, median_ns: float, most: float = _APART) -> bool:
    """Whether a mean is so far from the median that both are told."""
    return abs(mean_ns - median_ns) > most * mean_ns


def of_period(trace: Trace, device: Device, time_ns: float) -> OfPeriod:
    """A time and the step that it is a part of: ``2.40 ms of the 12.3 ms step (19.5 %)``."""
    step_ns = period_ns(trace, device)
    return OfPeriod(f"{time_text(time_ns)} of {period_text(trace, device)}", time_ns / step_ns if step_ns else 0.0)


def of_step(trace: Trace, device: Device, intervals: Intervals) -> OfPeriod:
    """The time of a step that some intervals cover, in the same words."""
    return of_period(trace, device, per_step_ns(trace, device, intervals))


def per_period(trace: Trace, count: float) -> str:
    """A number of things in a step: ``6 per step``, ``1 in 13 steps``; in the recorded window, where there are none."""
    shown = f"{count:,.0f}" if count >= 100 else f"{count:.3g}"
    per = per_what(trace)
    return f"1 in {1 / count:.0f} steps" if 0 < count <= 0.5 and per == "per step" else f"{shown} {per}"


def per_what(trace: Trace) -> str:
    """What counts are of: ``per step``, or ``in the window`` where there are no steps."""
    return "per step" if period_name(trace) == "step" else "in the window"


def number(count: float, noun: str, plural: str = "") -> str:
    """A count and its noun: ``1 graph``, ``3 graphs``."""
    return f"{count:,.0f} {noun if round(count) == 1 else plural or noun + 's'}"


def replay_notes(trace: Trace) -> tuple[str, ...]:
    """How many kernels of graph replays are known by the operators that were captured, and why others are not; where
    none is and they are most of what ran, where operators would come from."""
    found = graph_replays(trace)
    if found.replayed and not found.joined and 2 * found.replayed > trace[DEVICE_OPS].height:
        replayed = number(found.replayed, "kernel")
        joined = (
            f"CUDA graphs replay {replayed} without operators, shapes and lines: --capture TRACE takes these from a "
            "trace of their capture"
        )
    elif found.joined or found.refused:
        joined = f"{found.joined:,} of {found.replayed:,} kernels that CUDA graphs replay are known from their capture"
    else:
        return ()
    how = "node id" if found.by_node == found.joined else "name, launch shape and order"
    refused = sorted(found.refused.items(), key=lambda reason: (-reason[1], reason[0]))
    return (
        f"{joined} (matched by {how})" if found.joined else joined,
        *(f"{number(count, 'replayed kernel')} without an operator: {why}" for why, count in refused),
    )


def as_started(trace: Trace, text: str) -> str:
    """What to capture, as the program of the trace is started: what no sign shows to be Python has no ``python
    train.py``, what PyTorch alone records is said of it, and what NVIDIA's tools alone record of its GPUs."""
    facts = known(trace)
    program, text = facts.program, as_of(facts.vendor, text)
    if program not in FRAMEWORKS:
        started = "python train.py" if matches(trace.get(THREADS)["name"], BY_PYTHON).any() else "./program"
        text = text.replace("python train.py", started).replace("torchrun train.py", started)
    if program is not ProgramKind.PYTORCH and facts.vendor is NVIDIA:
        text = text.replace("capture torch", "capture nsys")
        text = f"with PyTorch: {text}" if "torch." in text or "TORCH_" in text else text
    return text


def said_of_compilation(trace: Trace) -> str:
    """What a compiler's log says, as a clause: how often it compiled, what failed, and what is not in it; '' without a
    log that tells of anything."""
    summary = compile_summary(trace)
    if not summary.frames:
        return ""
    compiled = sum(frame.compilations for frame in summary.frames)
    eager = [frame for frame in summary.frames if frame.eager]
    broken = f", {number(summary.graph_breaks, 'graph break')}, {number(summary.recompilations, 'recompilation')}"
    failed = f"{eager[0].function} runs uncompiled ({eager[0].eager}). " if eager else ""
    return f"{failed}The log shows {number(compiled, 'compilation')}{broken} and no GPU work"
