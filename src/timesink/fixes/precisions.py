"""Kernels in other number formats, under autocast, or compiled: what of their time stays."""

from typing import Final

import numpy as np

from timesink.knowledge.assumptions import Assumption, fixes
from timesink.model.arrays import Float64Array
from timesink.records import replace
from timesink.whatif import Case, Selection
from timesink.whatif.changes.kernels import (
    ShortenKernels,
    UnderAutocast,
    shorten,
)

_CASTS: Final = 2.25  # where nobody trains: 18 of weights, biases, wide inputs and around softmaxes, of 8 products


_CASTS_TRAINED: Final = 2  # these three and those of their gradients, for three products


_CASTS_CONVOLVED: Final = 1.5  # of its weight and gradients; activations hand on 16 bits, a library lays them out anew


_WIDE_OF_NARROW: Final = 2  # bytes of a number in four bytes over those of one in two


_CHECKS: Final = 3  # launches by which anomaly mode looks at a gradient: compare, any, read


def compiled(kernels: Selection, launches: bool = True) -> tuple[ShortenKernels, ...]:
    """Eager runs compiled: all but the `longest` kernel of each go with their launches; the others, and what is
    `alone`, are launched without dispatch. Without `launches` only the kernels' own time goes."""
    other = Selection(kernels.device, {"other": kernels.groups["other"]})
    kept = Selection(kernels.device, {role: kernels.groups[role] for role in ("longest", "alone")})
    gone = shorten(other, other=fixes.COMPILED_OTHERS)
    shorter = shorten(kept, longest=fixes.COMPILED_LONGEST)
    if not launches:
        return gone, shorter
    gone = replace(gone, launches_saved=fixes.COMPILED_LAUNCHES_GONE)
    return gone, replace(shorter, launches_saved=fixes.COMPILED_LAUNCHES)


def to_tf32(kernels: Selection) -> ShortenKernels:
    """fp32 products as TF32: `best` is the ratio of peak rates, of which they keep `fixes.TF32_OF_PEAKS` times, and at
    least what their bytes take."""
    best = np.where(np.isnan(kernels.best), fixes.TF32_PEAKS.value, kernels.best)
    return _moving(ShortenKernels(kernels.device, kernels.rows, _of_peaks(best), floored=True), kernels.usual)


def _of_peaks(best: Float64Array) -> tuple[Float64Array, ...]:
    """What products keep of their time in each case, by ratios of peaks."""
    return tuple(np.minimum(fixes.TF32_OF_PEAKS.at(case) * best, 1.0) for case in Case)


def _moving(change: ShortenKernels, share: Float64Array) -> ShortenKernels:
    """The same, but kernels keep at least the share of their time that their bytes take, where that is known."""
    return replace(change, keep=tuple(np.fmax(keep, share) for keep in change.keep)) if share.size else change


def to_bf16(kernels: Selection) -> ShortenKernels:
    """The whole model in bf16, which casts nothing: TF32 products at twice the rate, fp32 ones at the ratio of peaks,
    `streaming` kernels with half the bytes."""
    return _in_bf16(kernels, fixes.BF16_OF_TF32, fixes.BF16_OF_FP32, fixes.BF16_STREAMING)


def autocast(kernels: Selection, compiled: bool = False, checked: bool = False) -> UnderAutocast:
    """`to_bf16` as far as autocast lets kernels have two-byte types, less the casts around each product, which a
    compiler writes into kernels around it; what was in 16 bits before, `emulated`, has its casts.

    A product that is `inferred` casts its input, weight and bias; in training the two products of its backward pass
    cast the three gradients. Of a `convolution` the weight alone is cast, and its gradient; a library lays out anew
    what they read. Compiled, one for each product is written into another kernel. Where anomaly mode has gradients
    `checked`, three launches look at what a cast hands back.
    """
    if compiled:
        roles = fixes.BF16_PRODUCTS_COMPILED, fixes.BF16_OF_FP32_COMPILED, fixes.BF16_STREAMING_COMPILED
    else:
        roles = fixes.AUTOCAST_OF_TF32, fixes.AUTOCAST_OF_FP32, fixes.AUTOCAST_STREAMING
    products = kernels.without("streaming").rows
    inferred, convolved = (np.isin(products, kernels.groups.get(role, ())) for role in ("inferred", "convolution"))
    casts = np.where(convolved, _CASTS_CONVOLVED, np.where(inferred, _CASTS, _CASTS_TRAINED))
    casts = casts + _CHECKS * (checked & ~inferred) - compiled
    casts[np.isin(products, kernels.groups.get("emulated", ()))] = 0.0
    return UnderAutocast(_in_bf16(kernels, *roles), products, casts, None if checked else convolved)


def _in_bf16(kernels: Selection, tf32: Assumption, fp32: Assumption, streaming: Assumption) -> ShortenKernels:
    kept = {"tf32": tf32, "fp32": fp32, "misaligned": fixes.BF16_MISALIGNED}
    kept |= {"fp16": fixes.FP16_OF_FP32, "emulated": fixes.FP16_OF_EMULATED}
    kept |= {"streaming": streaming, "vector": streaming}
    change = _moving(shorten(kernels, floored=True, **kept), kernels.usual / _WIDE_OF_NARROW)
    if not kernels.best.size:
        return change
    # A chip whose peaks are nearer to each other than those that the figures are of.
    return replace(change, keep=tuple(map(np.fmax, change.keep, _of_peaks(kernels.best))))
