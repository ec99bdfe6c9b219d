"""A debugging aid stayed on: anomaly mode, or deterministic algorithms.

They are switched on to find an error, and cost time in every step after it.

## What it detects
Checks of gradients for NaN whose answers the host reads one by one, as `torch.autograd.detect_anomaly` makes them after
every backward operator; and memory that is filled before anything is written to it, as
`torch.use_deterministic_algorithms(True)` asks for.

## Why it matters
Anomaly mode stores a Python stack at every forward operator, and makes the host wait for the device after every
backward one: steps take several times as long. Deterministic algorithms fill all memory they allocate, and sort where
others add atomically.

## How it is measured
A check is a comparison of a tensor with itself, a reduction to one truth value, and a copy of that byte to the host.
That it is anomaly mode is said where backward operators themselves make them, where the capture's manifest says so, or
where the host asks as often for the state of a file, as Python does for each stack that it stores; then the host's time
in which stacks are stored goes, too. Fills count where the operator around
them only allocates. Kernels, launches and waits of either go.

## What to do
Remove `detect_anomaly()` and `set_detect_anomaly(True)` once the error is found. Keep
`use_deterministic_algorithms(True)` where results must repeat to the bit; its fills alone go with
`torch.utils.deterministic.fill_uninitialized_memory = False`.

## When it misleads
A program that looks for NaN in its own gradients makes the same checks; they cost the same. What deterministic
algorithms cost beyond the fills (sorts, slower convolutions) is not priced. Without operators (Nsight Systems) fills
cannot be told from those of the program.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, NotApplicable, Verdict
from timesink.fixes import table as fixes
from timesink.measures.habits.debugging import filled_memory, nan_checks
from timesink.measures.habits.extra_work import ExtraWork
from timesink.model.trace import Trace
from timesink.rules.habits._family import Habit, habit_rule, judged


def _checks(trace: Trace, work: ExtraWork) -> str:
    checks = nan_checks(trace)
    known = checks is not None and checks.proven
    count = f"{work.per_step / checks.operations:.0f} " if checks is not None else ""
    if known:
        return f"anomaly mode is on: {count}checks for NaN run in the backward pass, and the host waits for each"
    return f"{count}checks for NaN are read by the host one by one, as anomaly mode makes them"


CHECKS = Habit(
    bottleneck=Bottleneck.DEBUGGING_LEFT_ON,
    label="checks for NaN",
    how="comparisons, reductions, reads and the waits for them; over the steady steps",
    subject=_checks,
    advice="Remove torch.autograd.detect_anomaly() and set_detect_anomaly(True); check the loss every so many steps.",
    fix=fixes.DROP_DEBUGGING,
    verify="Capture again: no byte is read back in the backward pass, and the step shortens.",
    waits=True,
)

FILLS = Habit(
    bottleneck=Bottleneck.DEBUGGING_LEFT_ON,
    label="memory filled as it is allocated",
    how="fills inside operators that only allocate, and idle time before their launches; over the steady steps",
    subject=lambda _, work: (
        f"deterministic algorithms are on: {work.per_step:.0f} kernels fill memory that has only been allocated"
    ),
    advice="Turn torch.use_deterministic_algorithms off; where results must repeat to the bit, set "
    "torch.utils.deterministic.fill_uninitialized_memory = False.",
    fix=fixes.DROP_DEBUGGING,
    verify="Capture again: aten::empty launches nothing.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device and aid over the limit."""
    checks, fills = nan_checks(trace), filled_memory(trace)
    if checks is None and not fills:
        return NotApplicable("no check for NaN is read and no memory is filled as it is allocated")
    limit = limits["saved_ratio"]
    works = [(CHECKS, work) for work in (checks.work if checks else ())] + [(FILLS, work) for work in fills]
    return found_or_clear(judged(trace, habit, work, limit) for habit, work in works)


RULE = habit_rule(
    "HAB103",
    check,
    references=(
        "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",
        "https://docs.pytorch.org/docs/stable/notes/randomness.html",
    ),
)
