"""Kernels that only cast between floating types.

## What it detects
Copies whose source and target are of different floating types: logits cast up before a loss, weights kept in one type
and cast at every use, outputs sent to fp32 and back, casts that autocast inserts.

## Why it matters
A cast reads and writes the whole tensor at the speed of memory and computes nothing. Where its result is read once, the
reader could have taken the original type.

## How it is measured
Kernels of `aten::copy_` with two floating types, or, where types were not recorded, kernels whose name says that they
convert (`bfloat16_copy_kernel`, `direct_copy` with a casting loader, `triton_poi_fused__to_copy`). Expected: they all
go, and a log-softmax next to one moves two bytes per element instead of four. Cautiously, half of them
stay. A cast that a sum or mean reads counts in the hopeful case only: its digits may be wanted.

## What to do
Store weights in the type they are used in; let the loss and norms take bf16 (they accumulate in fp32 inside); drop
round trips; let `torch.compile` move a cast into its neighbour.

## When it misleads
Some casts are wanted: master weights, a reduction that needs fp32. A cast fused into another kernel costs nothing and
is not seen. The gain is what the device saves; where the host is late, less of it shows in the step.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Quantity, Verdict
from timesink.measures.kernels.conversions import cast_kernels, cast_pairs
from timesink.model.trace import Trace
from timesink.rules.kernels._family import KernelPattern, kernel_rule, kernel_verdict
from timesink.whatif.changes.kernels import ShortenKernels
from timesink.whatif.changes.precision import drop_casts

PATTERN = KernelPattern(
    bottleneck=Bottleneck.DTYPE_CONVERSION,
    subject="casts between floating types, with losses on their results,",
    how="casts go unless a sum reads them, a log-softmax beside one moves half the bytes; over the steady steps",
    advice="Store weights in the type they are used in, give losses and norms bf16 (they accumulate in fp32), drop "
    "round trips, or let torch.compile fuse the cast into its neighbour.",
    verify="Capture again: the casting kernels are gone, and the step is shorter by about their time.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where the casts pass the limit."""

    def pairs(kernels: ShortenKernels) -> tuple[str, tuple[Evidence, ...]]:
        pairs_found = cast_pairs(trace, kernels.rows)
        words = ", ".join(f"{pair} {count} times" for pair, count, _ in pairs_found[:3])
        kinds = tuple(Evidence(pair, Quantity.ms(time), f"{count} casts in all") for pair, count, time in pairs_found)
        return words, kinds

    return kernel_verdict(trace, PATTERN, map(drop_casts, cast_kernels(trace)), limits["saved_ratio"], pairs)


RULE = kernel_rule(
    "KRN101",
    check,
    limits={
        "saved_ratio": Limit.ratio(
            0.03,
            "fewer than three steps in a hundred are won back, and some casts are wanted",
            "benchmarks/faults: healthy programs in bf16 stay under it",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/amp.html",),
)
