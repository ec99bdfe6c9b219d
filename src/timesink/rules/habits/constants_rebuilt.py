"""A mask, or a tensor of positions, is built again and again within a step.

It follows from its size alone, and could be built once.

## What it detects
Triangles cut out of memory that was just filled (a causal mask: `torch.full(...).triu(1)`, `torch.ones(...).tril()`),
and numbers counted up (`torch.arange`), of the same size three times or more within a step, as a layer does that makes
its own.

## Why it matters
A mask of a long sequence has as many elements as the scores have for one head; filling, cutting and casting it are
three passes over that, in every layer. Each pass is a launch, too.

## How it is measured
By kernels' names and grids, in the order of launches. All but the first building in each step goes, with the host's
time up to its launches; cautiously half of the latter.

## What to do
Build it once for the model (a buffer, or a cache by length) and hand it to the layers; for attention,
`scaled_dot_product_attention(is_causal=True)` needs none.

## When it misleads
A mask whose content depends on the batch must be built for every batch, but not for every layer. Grids tell sizes, not
values: two masks of one size may differ.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Bottleneck, Verdict
from timesink.fixes import table as fixes
from timesink.measures.habits.extra_work import ExtraWork
from timesink.measures.habits.repeated_kernels import rebuilt_constants
from timesink.model.trace import Trace
from timesink.rules.habits._family import Habit, habit_rule, habit_verdict


def _subject(trace: Trace, work: ExtraWork) -> str:
    found = rebuilt_constants(trace)
    often = found.most if found else 0
    return f"a mask or range of one size is built up to {often} times per step: {work.per_step:.0f} kernels repeat it"


HABIT = Habit(
    bottleneck=Bottleneck.CONSTANTS_REBUILT,
    label="masks and ranges that are built again",
    how="kernels of every building but the first in a step, and idle time before their launches; over the steady steps",
    subject=_subject,
    advice="Build it once (a buffer, or a cache by length) and hand it to the layers; for a causal mask pass "
    "is_causal=True to scaled_dot_product_attention.",
    fix=fixes.BUILD_ONCE,
    verify="Capture again: the kernels that build it run once per step, or not at all.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where the repetitions pass the limit."""
    found = rebuilt_constants(trace)
    otherwise = "no mask or range of one size is built three times within a step"
    return habit_verdict(trace, HABIT, found.work if found else (), limits["saved_ratio"], otherwise)


RULE = habit_rule(
    "HAB105",
    check,
    references=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
    ),
)
