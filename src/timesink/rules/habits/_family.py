"""What rules on habits share: extra work that a step can do without, its price, and the sentence on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from timesink.diagnosis.places import place_of
from timesink.diagnosis.rule import Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict
from timesink.diagnosis.words import of_period
from timesink.fixes.fix import Fix
from timesink.fixes.replays import extra_kernels
from timesink.measures.habits.extra_work import ExtraWork
from timesink.measures.steps.per_step import per_step_ns, period_ns, share_of_step
from timesink.model.record import dataclass
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.rules.kernels import ONE_PERCENT
from timesink.units import time_text
from timesink.whatif.change import Case

NO_BACKWARD: Final = "no backward pass can be told from a forward pass"
HABIT_READS: Final = (*BLAME_READS, DEVICES)
"""What rules on habits read beside kernels and calls."""

habit_rule: Final = partial(Rule, needs=(DEVICE_OPS, API_CALLS), reads=HABIT_READS, limits={"saved_ratio": ONE_PERCENT})
"""Declares a rule on work that a step can do without."""


@dataclass(frozen=True, slots=True)
class Habit:
    """`label` and `how` describe the share of the step; `subject` says of a device's extra work what it is, and takes a
    plural verb; `waits` says that waits of the host for it go, too."""

    bottleneck: Bottleneck
    label: str
    how: str
    subject: Callable[[Trace, ExtraWork], str]
    advice: str
    verify: str
    fix: Fix
    waits: bool = False


def habit_verdict(trace: Trace, habit: Habit, works: Iterable[ExtraWork], limit: float, otherwise: str) -> Verdict:
    """Found per device on which such work, and the idle time before it, take more than `limit` of the step; `otherwise`
    says why there is none to ask about."""
    return applicable((judged(trace, habit, work, limit) for work in works), otherwise)


def judged(trace: Trace, habit: Habit, work: ExtraWork, limit: float) -> Finding | Evidence:
    """The finding where the work of a device takes more than `limit` of the step, and the share that it takes."""
    dropped = extra_kernels(work)
    running = dropped.saved(trace, Case.EXPECTED)
    number = work.device[1]
    evidence = Evidence(
        f"{habit.label} on device {number}",
        Quantity(share_of_step(trace, work.device, running | work.idle), "ratio"),
        habit.how,
        limit=Quantity(limit, "ratio"),
        table="device_ops",
        rows=dropped.longest(trace),
    )
    if not evidence.is_over:
        return evidence
    running_ns, idle_ns = (per_step_ns(trace, work.device, part) for part in (running, work.idle - running))
    waited = (
        f", and {time_text(idle_ns)} pass before their launches"
        if idle_ns > limit * period_ns(trace, work.device)
        else ""
    )
    return Finding(
        message=f"{habit.subject(trace, work)}; they take {of_period(trace, work.device, running_ns)} "
        f"on device {number}{waited}",
        bottleneck=habit.bottleneck,
        where=place_of(trace, dropped),
        evidence=(
            evidence,
            Evidence("device time of this work", Quantity.ms(running_ns), "union, per steady step"),
        ),
        advice=habit.advice,
        verify=habit.verify,
        claim=Claim({work.device: running | work.idle}),
        change=habit.fix.change(work, waits=True) if habit.waits else habit.fix.change(work),
        fix=habit.fix,
    )
