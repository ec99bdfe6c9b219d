"""Kernels compute in a wider type than the result needs.

## What it detects
fp32 products on plain multiply-add units where the device has tensor cores for TF32; TF32 products with fp32 around
them where bf16 would do; kernels in float64, most often from one constant that made everything after it double.

## Why it matters
On an H200 the dense peaks are 67 TFLOP/s in fp32, 495 in TF32, 989 in bf16, and elements of half the size move in
half the time.

## How it is measured
By kernel names. fp32 products are expected at 1.15 times the ratio of peaks (products of everyday sizes reach 75 % of
the one and 65 % of the other); TF32 ones at 45 %, fp32 kernels around them at 50 %; float64 kernels at 48 % of their
time. Where the file does not say what the GPU can do, it has TF32 unless libraries chose kernels of older GPUs alone.
GeForce cards compute TF32 no faster than fp32, and bf16 at twice the rate: there bf16 is priced.

## What to do
`torch.set_float32_matmul_precision("high")` for TF32; bf16 with autocast or parameters in bf16; find the float64
constant (NumPy's default) and give it a type.

## When it misleads
Some algorithms need the digits: say so and leave them. Where TF32 is the agreed precision, bf16 is a change of the
model, not of its speed alone.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

from timesink.diagnosis.rule import Limits, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Found, NotApplicable, Verdict
from timesink.fixes import table as fixes
from timesink.measures.kernels.precision import wide_kernels
from timesink.model.trace import Trace
from timesink.rules.kernels._family import ONE_PERCENT, KernelPattern, kernel_rule, kernel_verdict

_HOW = "time kept by the ratio of peak rates or bytes; over the steady steps"
_VERIFY = "Capture again: the kernels bear the narrower type in their names, and results agree within its tolerance."
_pattern = partial(KernelPattern, bottleneck=Bottleneck.PRECISION, how=_HOW, verify=_VERIFY)
PATTERNS = {
    "fp32": _pattern(
        subject="fp32 products without tensor cores",
        advice='Allow TF32: torch.set_float32_matmul_precision("high"); or run the products in bf16 under autocast.',
        fix=fixes.TF32,
    ),
    "fp32 alone": _pattern(
        subject="fp32 products (the peak of this GPU in TF32 is no higher)",
        advice="Run the products in bf16 or fp16: autocast, or parameters of that type.",
        fix=fixes.BF16,
    ),
    "tf32": _pattern(
        subject="TF32 products, and fp32 kernels around them,",
        advice="Run in bf16: autocast, or parameters in bf16 where the optimizer keeps what it needs.",
        fix=fixes.BF16,
    ),
    "fp64": _pattern(
        subject="kernels in float64",
        advice="Find where float64 enters (a NumPy array, a Python constant made a tensor) and give it float32.",
        fix=fixes.FP32,
    ),
}


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device and kind over the limit."""
    wide = wide_kernels(trace)
    if not wide["fp32"]:
        return NotApplicable("no kernel ran")
    limit = limits["saved_ratio"]
    verdicts = [
        kernel_verdict(trace, pattern, map(pattern.fix.change, wide[kind]), limit)
        for kind, pattern in PATTERNS.items()
        if pattern.fix is not None
    ]
    looked = [verdict for verdict in verdicts if not isinstance(verdict, NotApplicable)]
    return found_or_clear(
        chain.from_iterable(one.findings if isinstance(one, Found) else one.evidence for one in looked)
    )


RULE = kernel_rule(
    "KRN106",
    check,
    limits={"saved_ratio": ONE_PERCENT},
    references=("https://docs.pytorch.org/docs/stable/generated/torch.set_float32_matmul_precision.html",),
)
