"""Kernels that only move tensors into another memory layout.

## What it detects
Conversions between NCHW and NHWC around convolutions, and strided copies within one type: `.contiguous()`, `.clone()`,
`.reshape()` of a transposed tensor.

## Why it matters
Such a kernel reads and writes the tensor and computes nothing, and a transposing copy does not reach the speed of
memory. Tensor-core convolutions want channels last; matrix products take a transposed operand as it is.

## How it is measured
Kernels whose name is that of a conversion (`nchwToNhwc`, `nhwcToNchw`, transposes), and `elementwise_kernel` copies
between equal types, which are not vectorised because strides differ. Expected: seven tenths of the
conversions go (a network in the other layout has slower kernels elsewhere) and 95 % of the copies; cautiously two
fifths of either. Where most of the convolutions' time is in those that such conversions surround, a normalisation with
one block a channel (batch norm of NCHW images) keeps the share of the device that its blocks fill, and hopefully a
convolution gets shorter by a fifth, since other kernels are chosen. A copy that lays out anew what a concatenation has
just written is left out: autograd makes it to read the gradients of a tensor's parts as one.

## What to do
Convert model and input once with `memory_format=torch.channels_last`; leave `.contiguous()` out where the consumer
takes strides; choose shapes so that `view` suffices.

## When it misleads
A copy may be what makes a later kernel fast: then leaving it out moves the cost. The gain is what the device saves;
where the host is late, less of it shows in the step.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.kernels.conversions import layout_kernels
from timesink.rules.kernels._family import KernelPattern, pattern_rule
from timesink.whatif.changes.kernels import keep_layout

PATTERN = KernelPattern(
    bottleneck=Bottleneck.LAYOUT_CONVERSION,
    subject="kernels that only change a layout",
    how="conversions and strided copies within one type go, normalisations beside them fill the device; over the "
    "steady steps",
    advice="Keep one layout: channels_last for model and input of a convolutional network, no contiguous() before an "
    "operator that takes strides, shapes for which view suffices.",
    verify="Capture again: the copying kernels are gone, and the kernels that read their results take no longer.",
)

RULE = pattern_rule(
    "KRN102",
    __name__,
    PATTERN,
    lambda trace: map(keep_layout, layout_kernels(trace)),
    Limit.ratio(
        0.03,
        "a step of well-written code has that many transposes which somebody needs",
        "benchmarks/faults: healthy programs stay under 2 %",
    ),
    "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html",
)
