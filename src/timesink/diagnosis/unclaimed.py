"""What takes a good part of a step and is claimed by no finding: each such cause of idle time is named, with why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Finding, Note, StepBudget
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.idle.blame import idle_of_cause
from timesink.measures.steps.per_step import period_name
from timesink.measures.timeline.device_timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.units import share_text

OWED: Final = Limit.ratio(
    0.05,
    "what takes less of the step is not a cause of its own",
    "docs/explanation/science.md, whose fault an idle GPU is",
)
_GREATER_PART: Final = 0.5
_OF_DEVICE: Final = ("kernel_gap", "graph_gap")
_BETWEEN: Final = "which the GPU leaves between kernels: fewer and longer kernels leave less"
_BELOW: Final = "and no rule that could decide passes its limit on the rest"


def unclaimed(trace: Trace, budgets: Iterable[StepBudget], findings: Sequence[Finding]) -> Iterator[Note]:
    """A note for the causes of the device that gives most of its step to such: those that the device itself leaves
    between kernels, and those on which no rule passes its limit. Where there is no finding, it is all that is said."""
    claims: dict[Device, list[Intervals]] = {}
    for found in findings:
        if found.counted_in or found.recoverable is None or found.recoverable.most:
            for device, part in found.claim.intervals.items():
                claims.setdefault(device, []).append(part)
    lost = max((_lost(trace, budget, claims) for budget in budgets), key=lambda one: sum(one.values()), default={})
    for why, kinds in ((_BETWEEN, lost.keys() & {*_OF_DEVICE}), (_BELOW, lost.keys() - {*_OF_DEVICE})):
        named = [f"{IDLE_WORDS[kind]} {share_text(lost[kind])}" for kind in lost if kind in kinds]
        if named:
            yield Note(f"{', '.join(named)} of the {period_name(trace)}, {why}", "unclaimed" if findings else "")


def _lost(trace: Trace, budget: StepBudget, claims: Mapping[Device, Sequence[Intervals]]) -> dict[str, float]:
    """The causes of a device's idle time of which findings that may save anything claim less than half, as shares of
    the step."""
    device = (budget.rank, budget.device)
    large = [part for part in budget.parts if part.kind in IDLE_WORDS]
    large = [part for part in large if part.time_ns >= OWED.default * budget.period_ns]
    claimed = Intervals.union_all(claims.get(device, ()))
    lost = {}
    for part in large:
        blamed = idle_of_cause(trace, device, part.kind)
        if (blamed & claimed).total_ns < _GREATER_PART * blamed.total_ns:
            lost[part.kind] = part.time_ns / budget.period_ns
    return lost
