"""The forward pass of layers runs again in the backward pass.

Activation checkpointing buys memory with time.

## What it detects
Work of the forward pass that the backward pass repeats, as layers under `torch.utils.checkpoint`, a model's
`gradient_checkpointing_enable()` or FSDP's activation checkpointing do.

## Why it matters
A model whose layers are all recomputed runs its forward pass twice: a third more work in a step that the device bounds.
It is worth that where the activations do not fit; it is often left on where they do.

## How it is measured
By operators that record gradients (they show a sequence number of their own) inside a backward operator, and whose
kernels the forward pass ran, too. Without operators, by order: a thread that launches the backward pass launches five
or more kernels in a row, three of them different, name for name and grid for grid as another thread did. Their time
goes, and the host's time to launch them; cautiously half of the latter. So does what the forward pass takes to enter
such a layer, beyond a usual launch, and the hooks by which its tensors are saved and found again: for each kernel that
runs again 1.1 times what a launch takes the backward pass (none where the checkpoint is reentrant).

## What to do
Where memory is free, checkpoint fewer layers, or none (`gradient_checkpointing_disable()`, `use_cache` may come back
with it); recompute only what is cheap and large (selective checkpointing: attention's scores, activations, not
products).

## When it misleads
It costs memory to undo: `timesink memory` says what the activations take, and whether it is there is yours to see.
Compiled programs recompute inside their own kernels, which is not seen. A layer of fewer than five kernels is not seen
without operators.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Bottleneck, Verdict
from timesink.fixes import table as fixes
from timesink.measures.habits.repeated_passes import recomputed
from timesink.model.trace import Trace
from timesink.rules.habits._family import NO_BACKWARD, Habit, habit_rule, habit_verdict

HABIT = Habit(
    bottleneck=Bottleneck.ACTIVATIONS_RECOMPUTED,
    label="work of the forward pass that the backward pass repeats",
    how="kernels that run again, and idle time in which the host was on its way to launch them; over the steady steps",
    subject=lambda _, work: f"{work.per_step:.0f} operations of the forward pass run again in the backward pass",
    advice="Where memory is free, checkpoint fewer layers or none; else recompute only what is cheap and large "
    "(selective checkpointing).",
    fix=fixes.NO_RECOMPUTATION,
    verify="Capture again: the backward pass runs no kernel of the forward pass, and peak memory grows.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where the repeated work passes the limit."""
    work = recomputed(trace)
    otherwise = "the backward pass repeats nothing of the forward pass" if work is not None else NO_BACKWARD
    return habit_verdict(trace, HABIT, work or (), limits["saved_ratio"], otherwise)


RULE = habit_rule("HAB101", check, references=("https://docs.pytorch.org/docs/stable/checkpoint.html",))
