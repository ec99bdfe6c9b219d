"""The device waits for the compiler within steady steps.

## What it detects
Idle time of a device while the launching thread compiles: TorchDynamo and Inductor ranges, Triton compilation,
autotuning.

## Why it matters
Compilation belongs to the first steps. In a steady step it means that a guard fails again and again: a shape, an
integer or a flag that changes, and each time seconds of compilation for one step.

## How it is measured
Idle stretches inside a range or operator that names the compiler, over the steady steps.

## What to do
`TORCH_LOGS=recompiles` names the guard. Mark the dimension dynamic (`mark_dynamic`), pad to a few sizes, or pass the
changing number as a tensor.

## When it misleads
A capture that begins before the program is warm shows ordinary first compilations; steps are then left out as warm-up
where they stand out, and counted where they do not.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Bottleneck, Limit, Verdict
from timesink.measures.idle.blamed_time import blamed_time
from timesink.model.trace import Trace
from timesink.rules.idle._family import IdlePattern, idle_rule, pattern_verdict

PATTERN = IdlePattern(
    time=lambda trace: blamed_time(trace, ("compile",)),
    bottleneck=Bottleneck.RECOMPILATION,
    label="idle time in compilation",
    how="idle stretches inside a range that names the compiler, over the steady steps",
    subject="the compiler",
    advice="Run with TORCH_LOGS=recompiles: it names the guard that fails; mark the dimension dynamic, pad to few "
    "sizes, or pass the number as a tensor.",
    verify="Capture again after the change: no compile range lies in the steady steps.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    return pattern_verdict(PATTERN, trace, limits["idle_ratio"])


RULE = idle_rule(
    "IDL107",
    check,
    limits={
        "idle_ratio": Limit(
            0.02,
            "ratio",
            "a steady step of a compiled program compiles nothing",
            "benchmarks/faults: healthy compiled programs compile nothing after warm-up",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",),
)
