"""A Python loop runs the same few operations on one parameter after another.

An operation on lists of tensors does all of them in a few launches.

## What it detects
Sixteen or more times in a row the same one to six elementwise kernels, copies or sums, over tensors of several sizes,
outside the optimizer's own step: an average of the weights (EMA), gradients clipped, scaled or zeroed, norms, weights
copied from one model to another.

## Why it matters
A model of a hundred parameters makes hundreds of launches that take microseconds each; the host needs longer for a
launch than the device for its kernel. `torch._foreach_*` and `torch.nn.utils` put them into a few.

## How it is measured
By the order of launches, without a wait between them: a loop that reads a value back each time is `host-sync`'s. The
kernels keep what a fused optimizer step keeps of its kernels, and the host's time from the first launch to the last
becomes a fixed part and a part for each former launch.

## What to do
`torch._foreach_mul_`, `_foreach_add_`, `_foreach_lerp_` and the like on lists of tensors;
`torch.nn.utils.clip_grad_norm_(..., foreach=True)`, `get_total_norm`, `optimizer.zero_grad(set_to_none=True)`,
`torch.optim.swa_utils.AveragedModel` with a `multi_avg_fn`; or `torch.compile` around the loop.

## When it misleads
That the tensors are parameters is concluded from their several sizes, not read. List operations need all tensors on
one device and in one type to be fast, and memory for their results where they are not done in place.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Bottleneck, Verdict
from timesink.fixes import table as fixes
from timesink.measures.habits.repeated_kernels import parameter_loops
from timesink.model.trace import Trace
from timesink.rules.habits._family import Habit, habit_rule, habit_verdict

HABIT = Habit(
    bottleneck=Bottleneck.PARAMETERS_ONE_BY_ONE,
    label="loops over tensors",
    how="kernels that repeat with a period, and idle time while the host runs the loop; over the steady steps",
    subject=lambda _, work: (
        f"{work.per_step:.0f} kernels do the same to one tensor after another, as a loop over parameters does"
    ),
    advice="Use list operations: torch._foreach_mul_ and the like, clip_grad_norm_(foreach=True), "
    "AveragedModel with multi_avg_fn, zero_grad(set_to_none=True).",
    fix=fixes.LIST_OPERATIONS,
    verify="Capture again: a few multi_tensor_apply kernels stand where the loop stood.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where such loops pass the limit."""
    otherwise = "no loop runs the same operations on one tensor after another"
    return habit_verdict(trace, HABIT, parameter_loops(trace), limits["saved_ratio"], otherwise)


RULE = habit_rule(
    "HAB104", check, references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",)
)
