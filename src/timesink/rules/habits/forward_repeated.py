"""A forward pass runs in the step that no backward pass follows.

An evaluation in the step, a figure that is logged, or a second model.

## What it detects
Kernels of a whole forward pass, up to the loss, that run twice between two backward passes, once without recording
gradients: a validation batch in every step, a loss computed again for a log, a frozen teacher of the same shape.

## Why it matters
A forward pass is about a third of a training step. Once every hundred steps it costs nothing.

## How it is measured
By the order of launches: what ran before a backward pass is compared, name for name and grid for grid, with what ran
since the backward pass before; half of the forward pass must agree, its loss included. Where operators are recorded,
those of the repeated pass must show no sequence number. Its kernels go, and the host's time to launch them; cautiously
half of the latter.

## What to do
Evaluate every so many steps, or on another device; log what the training pass has computed already.

## When it misleads
A teacher, a reference model or a target network of the same shape is part of the method and looks the same. An
evaluation without dropout, in another batch size or without the loss is not seen.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Bottleneck, Verdict
from timesink.fixes import table as fixes
from timesink.measures.habits.repeated_passes import repeated_forward
from timesink.model.trace import Trace
from timesink.rules.habits._family import NO_BACKWARD, Habit, habit_rule, habit_verdict

HABIT = Habit(
    bottleneck=Bottleneck.FORWARD_REPEATED,
    label="a forward pass that no backward pass follows",
    how="its kernels, and idle time before their launches; over the steady steps",
    subject=lambda _, work: (
        f"{work.per_step:.0f} kernels of the forward pass, its loss included, run twice for each backward pass"
    ),
    advice="Is it an evaluation, or a figure for a log? Then run it every so many steps, or reuse what the training "
    "pass computed.",
    fix=fixes.EVALUATE_RARELY,
    verify="Capture again: the loss is computed once for each backward pass.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where such a pass takes more than the limit."""
    works = repeated_forward(trace)
    otherwise = "one forward pass runs for each backward pass" if works is not None else NO_BACKWARD
    return habit_verdict(trace, HABIT, works or (), limits["saved_ratio"], otherwise)


RULE = habit_rule("HAB106", check, references=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",))
