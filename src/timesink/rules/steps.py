"""The rule on steps that stand out."""

from typing import Final

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.verdicts import Claim, Clear, Evidence, NotApplicable, Quantity, Undecided, Where
from timesink.measures.communication.waits import exposed_waits
from timesink.measures.steps import steps
from timesink.measures.steps.engine import is_engine
from timesink.measures.steps.per_step import step_windows
from timesink.measures.steps.proof import StepOrigin
from timesink.measures.steps.slow_steps import slow_rates
from timesink.measures.steps.spikes import Spike, spikes
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace

_OF_PROMPTS: Final = (Spike.OTHER_WORK, Spike.SLOW_KERNELS, Spike.UNEXPLAINED)


def _slow_steps(trace: Trace) -> Rows:
    """A row per device and cause. A step of an engine that reads a prompt runs other kernels and takes longer: no fault
    of the step."""
    found = spikes(trace)
    if not steps(trace).windows.height:
        return NotApplicable("the trace has no steady steps to compare")
    if steps(trace).origin is StepOrigin.GUESSED:
        return Undecided(
            "steps are guessed, and a guess may be longer than another because it is not a step",
            "mark steps with prof.step() or an NVTX range, or name them: timesink diagnose TRACE --steps PATTERN",
        )
    left_out = _OF_PROMPTS if is_engine(trace) else ()
    kinds = sorted({(spike.device, spike.kind) for spike in found.found if spike.kind not in left_out})
    if not kinds:
        count = sum(found.examined.values())
        return Clear((Evidence("steady steps that stand out", Quantity(0.0, "steps"), f"of {count} steady steps"),))
    return [_row(trace, device, kind) for device, kind in kinds]


def _row(trace: Trace, device: Device, kind: Spike) -> Row:
    on_device = [spike for spike in spikes(trace).found if spike.device == device]
    slow = [spike for spike in on_device if spike.kind is kind]
    start, end = step_windows(trace, device)
    excess_ns = sum(spike.excess_ns for spike in slow)
    worth_ns = excess_ns / len(on_device) * slow_rates(trace).get(device[0], len(slow) / len(start))
    worst = max(slow, key=lambda spike: (spike.excess_ns, -spike.step))
    figures = {
        "excess_ratio": excess_ns / int((end - start).sum()),
        "slow": len(slow),
        "steady": len(start),
        "steps": _named(slow[0].label) if len(slow) == 1 else f"{len(slow)} steps",
        "take": "takes" if len(slow) == 1 else "take up to",
        "period_ns": worst.period_ns,
        "excess_ns": worst.excess_ns,
        "every": spikes(trace).period_steps(kind, device),
    }
    return Row(
        device,
        figures,
        claim=Claim({device: _claimed(trace, device, kind, Intervals.union_all(spike.of_cause for spike in slow))}),
        stated=Quantity.ms(worth_ns, 0.0, worth_ns),
        where=Where(*device, step=worst.label, kernel=worst.operation or None),
        variant=kind,
    )


def _named(label: str) -> str:
    """A step by its mark: ``step 4``, ``step forward``."""
    return label if label.startswith("step ") else f"step {label}"


def _claimed(trace: Trace, device: Device, kind: Spike, of_cause: Intervals) -> Intervals:
    """Of communication the waits for other ranks, where they are known: the rank that is late has the same time."""
    waits = exposed_waits(trace).get(device) if kind is Spike.COMMUNICATION else None
    return of_cause & waits if waits else of_cause


RULES: Final = (declare("slow-steps", _slow_steps),)
