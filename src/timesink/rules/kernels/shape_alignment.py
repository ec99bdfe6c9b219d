"""Matrix products whose rows are not aligned to 16 bytes.

They run on slow kernels.

## What it detects
Products with a leading dimension that is no multiple of 16 bytes (8 elements of bf16): odd widths, a vocabulary of
50,257.

## Why it matters
The fast kernels load 16 bytes at a time, on Hopper by TMA, and take no other operand. What remains loads element by
element and can take three times as long.

## How it is measured
By recorded shapes and strides, else by the kernel's name (`align1`, `ldg4`). With shapes and a known GPU the aligned
product is expected at nine tenths of its attainable bound; by name alone at 45 % of the time, and 18 % on Hopper and
later.

## What to do
Pad the dimension to a multiple of 64: the vocabulary to 50,304, the width to 4,096. Added columns of zeros change no
result; added classes are barred by their bias.

## When it misleads
A product too small to matter is aligned in vain. Padding costs memory and, in a fixed checkpoint, care.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Bottleneck, Undecided, Verdict
from timesink.measures.kernels.shapes import alignment_known, misaligned_products
from timesink.model.trace import Trace
from timesink.rules.kernels._family import ONE_PERCENT, KernelPattern, kernel_rule, kernel_verdict
from timesink.whatif.changes.kernels import align_products

PATTERN = KernelPattern(
    bottleneck=Bottleneck.SHAPE_ALIGNMENT,
    subject="products of operands not aligned to 16 bytes",
    how="aligned products at nine tenths of the attainable bound, or 45 % of the time by name; over the steady steps",
    advice="Pad the dimension that is no multiple of 8 elements to a multiple of 64 (a vocabulary of 50257 to 50304).",
    verify="Capture again: the products run on other kernels (nvjet or align8) and take less time.",
)


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where aligning wins more than the limit."""
    parts = misaligned_products(trace)
    if parts and not alignment_known(trace):
        return Undecided("neither names nor shapes tell how products are aligned", "torch.profiler, record_shapes=True")
    return kernel_verdict(trace, PATTERN, map(align_products, parts), limits["saved_ratio"])


RULE = kernel_rule(
    "KRN105",
    check,
    limits={"saved_ratio": ONE_PERCENT},
    references=("https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/",),
)
