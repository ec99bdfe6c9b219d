"""Attention runs as separate products and a softmax.

The scores of all pairs of positions go through memory.

## What it detects
A softmax that stands between two matrix products on a stream, with nothing but elementwise kernels, copies, layout
changes and masks between them: `softmax(QK^T)V` written out, `need_weights=True`, or a fallback to the math path.

## Why it matters
The scores grow with the square of the sequence length, and each of scale, mask, softmax and dropout reads and writes
all of them. A fused kernel keeps them on the chip.

## How it is measured
By the order of kernels, so it needs names only. Expected: what is between the products goes, and of the products' time
15 % stay (they are bound by writing and reading the scores); cautiously, three fifths of the products stay and a fifth
of the rest. In fp32 and TF32 no fused kernel is fast: of the products 95 % are expected to stay, and the greater
gain is the type's. A mean over heads after them belongs to weights asked for.

## What to do
Call `scaled_dot_product_attention` (with `is_causal=True` instead of a mask where that is the mask), ask for no
attention weights, and see which backend it takes.

## When it misleads
A short sequence wins little. An additive bias that no fused kernel takes needs FlexAttention. Weights that are really
read must be written by somebody.
"""

from __future__ import annotations

from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.kernels.fusion import unfused_attention
from timesink.rules.kernels._family import ONE_PERCENT, KernelPattern, pattern_rule
from timesink.whatif.changes.kernels import fuse_attention

PATTERN = KernelPattern(
    bottleneck=Bottleneck.ATTENTION_UNFUSED,
    subject="products and softmax of attention written out",
    how="kernels between the products go, 15 % of the products' time stay (in fp32 95 %); over the steady steps",
    advice="Call scaled_dot_product_attention (is_causal instead of a causal mask), ask for no attention weights, and "
    "check which backend it takes.",
    verify="Capture again: one fused attention kernel stands where products and softmax stood.",
)

RULE = pattern_rule(
    "KRN103",
    __name__,
    PATTERN,
    lambda trace: map(fuse_attention, unfused_attention(trace)),
    ONE_PERCENT,
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
)
