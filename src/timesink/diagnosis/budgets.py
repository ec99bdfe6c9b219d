"""Where the step of each device goes: its work, and its idle time by cause."""

from timesink.diagnosis.verdicts import StepBudget, StepPart
from timesink.measures.idle.blame import idle_shares
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import per_step_ns, period_ns, step_windows
from timesink.measures.steps.slow_steps import of_usual_steps
from timesink.measures.timeline import Device, device_timeline
from timesink.model.trace import Trace


def step_budgets(trace: Trace) -> tuple[StepBudget, ...]:
    """One budget per device that has time: compute, exposed communication, exposed copies, then idle time by cause,
    largest first; of the usual steps where one stands alone, which findings are of too."""
    trace = of_usual_steps(trace)
    counts = {key: step_windows(trace, key)[0].size for key in device_timeline(trace).by_device}
    shares: dict[Device, list[StepPart]] = {(part.rank, part.device): [] for part in device_timeline(trace)}
    for share in idle_shares(trace):
        shares[share.rank, share.device].append(StepPart(share.cause, share.per_step_ns))
    of_steps = steps(trace).windows.height > 0
    return tuple(
        _budget(trace, key, idle, of_steps * counts[key]) for key, idle in shares.items() if period_ns(trace, key)
    )


def _budget(trace: Trace, device: Device, idle: list[StepPart], count: int) -> StepBudget:
    """Each part is measured by itself; that they sum to the period is a law, not an arrangement."""
    budget = device_timeline(trace)[device]
    busy = {"compute": budget.compute, "communication": budget.exposed_communication, "copy": budget.exposed_copy}
    parts = [StepPart(kind, per_step_ns(trace, device, intervals)) for kind, intervals in busy.items()]
    idle.sort(key=lambda part: (-part.time_ns, part.kind))
    kept = tuple(part for part in (*parts, *idle) if part.time_ns > 0)
    return StepBudget(*device, steps=count, period_ns=period_ns(trace, device), parts=kept)
