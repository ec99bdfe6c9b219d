"""Where the step of each device goes: its work, and its idle time by cause."""

from __future__ import annotations

from collections import Counter

from timesink.diagnosis.verdicts import StepBudget, StepPart
from timesink.measures.idle.blame import idle_shares
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.model.trace import Trace


def step_budgets(trace: Trace) -> tuple[StepBudget, ...]:
    """One budget per device that has time: compute, exposed communication, exposed copies, then idle time by cause,
    largest first."""
    counts = Counter(steps(trace).windows.select("rank", "device").iter_rows())
    devices = [(part.rank, part.device) for part in device_timeline(trace)]
    return tuple(_budget(trace, device, counts) for device in devices if period_ns(trace, device))


def _budget(trace: Trace, device: Device, counts: Counter[Device]) -> StepBudget:
    """Each part is measured by itself; that they sum to the period is a law, not an arrangement."""
    budget = device_timeline(trace)[device]
    busy = {"compute": budget.compute, "communication": budget.exposed_communication, "copy": budget.exposed_copy}
    parts = [StepPart(kind, per_step_ns(trace, device, intervals)) for kind, intervals in busy.items()]
    idle = [StepPart(s.cause, s.per_step_ns) for s in idle_shares(trace) if (s.rank, s.device) == device]
    idle.sort(key=lambda part: (-part.time_ns, part.kind))
    kept = tuple(part for part in (*parts, *idle) if part.time_ns > 0)
    return StepBudget(*device, steps=counts[device], period_ns=period_ns(trace, device), parts=kept)
