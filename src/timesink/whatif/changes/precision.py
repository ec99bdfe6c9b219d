"""Changes of the type that kernels compute in: fewer bytes, quicker units, and the casts that autocast adds."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from timesink.knowledge.assumptions import Assumption, fixes
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.record import dataclass, replace
from timesink.whatif.change import Case, Selection, Touches
from timesink.whatif.changes.kernels import OfKernels, ShortenKernels, shorten
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph

_CASTS: Final = 2.25  # where nobody trains: 18 of weights, biases, wide inputs and around softmaxes, of 8 products
_CASTS_TRAINED: Final = 2  # these three and those of their gradients, for three products
_CASTS_CONVOLVED: Final = 1.5  # of its weight and gradients; activations hand on 16 bits, a library lays them out anew
_WIDE_OF_NARROW: Final = 2  # bytes of a number in four bytes over those of one in two
_CHECKS: Final = 3  # launches by which anomaly mode looks at a gradient: compare, any, read


def drop_casts(kernels: Selection) -> ShortenKernels:
    """Casts go unless a sum reads them.

    Where one reads the result the digits may be wanted: only the hopeful case lets such a cast go.
    """
    return shorten(
        "drop-casts",
        kernels,
        needless=fixes.CASTS_NEEDLESS,
        summed=fixes.CASTS_SUMMED,
        loss=fixes.LOSS_NARROWED,
    )


def to_tf32(kernels: Selection) -> ShortenKernels:
    """fp32 products as TF32: `best` is the ratio of peak rates, of which they keep `fixes.TF32_OF_PEAKS` times, and at
    least what their bytes take."""
    return _by_peaks("precision tf32", kernels, kernels.usual)


def _by_peaks(label: str, kernels: Selection, moving: Float64Array) -> ShortenKernels:
    best = np.where(np.isnan(kernels.best), fixes.TF32_PEAKS.value, kernels.best)
    return _moving(ShortenKernels(label, kernels.device, kernels.rows, _of_peaks(best), floored=True), moving)


def _of_peaks(best: Float64Array) -> tuple[Float64Array, ...]:
    """What products keep of their time in each case, by ratios of peaks."""
    return tuple(np.minimum(fixes.TF32_OF_PEAKS.at(case) * best, 1.0) for case in Case)


def _moving(change: ShortenKernels, share: Float64Array) -> ShortenKernels:
    """The same, but kernels keep at least the share of their time that their bytes take, where that is known."""
    return replace(change, keep=tuple(np.fmax(keep, share) for keep in change.keep)) if share.size else change


def to_bf16(kernels: Selection) -> ShortenKernels:
    """The whole program in bf16: TF32 products at twice the rate, fp32 ones at the ratio of peaks, `streaming` kernels
    with half the bytes. Products `alone`, of a GPU that computes TF32 no faster than fp32, by the ratio of peaks."""
    if "alone" in kernels.groups:
        return _by_peaks("precision bf16", kernels, kernels.usual / _WIDE_OF_NARROW)
    return _in_bf16(kernels, fixes.BF16_OF_TF32, fixes.BF16_OF_FP32, fixes.BF16_STREAMING)


@dataclass(frozen=True, slots=True, eq=False)
class UnderAutocast(OfKernels):
    """Kernels in 16 bits under autocast. Beside each of `products`, rows of `device_ops` in order, the host launches so
    many `casts`. So a step that waits for its host gets longer."""

    touches: ClassVar[Touches] = Touches.BOTH
    products: Int64Array
    casts: Float64Array

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        edit = Edit(self.kernels.rewrite(graph, case))
        rows = graph.rows_of_ops()
        own, others = (np.isin(rows, some) for some in (self.products, self.rows))
        times = np.zeros(rows.size)
        times[own] = fixes.AUTOCAST_CASTS.at(case) * self.casts[np.searchsorted(self.products, rows[own])]
        edit.slow_launches(own, times, others & ~own)  # each an operator, as casts
        return edit.done()


def autocast(
    kernels: Selection,
    compiled: bool = False,
    trains: bool = True,
    checked: bool = False,
    convolutions: Int64Array | None = None,
) -> UnderAutocast:
    """`to_bf16` under autocast, less the casts around each product, which a compiler writes into kernels around it.

    A product of a model that nobody trains casts its input, weight and bias; in training the two products of its
    backward pass cast the three gradients. Of `convolutions` the weight alone is cast, and its gradient; a library lays
    out anew what they read. Compiled, one for each product is written into another kernel. Where anomaly mode has
    gradients `checked`, three launches look at what a cast hands back.
    """
    if compiled:
        roles = fixes.BF16_PRODUCTS_COMPILED, fixes.BF16_OF_FP32_COMPILED, fixes.BF16_STREAMING_COMPILED
    else:
        roles = fixes.AUTOCAST_OF_TF32, fixes.AUTOCAST_OF_FP32, fixes.AUTOCAST_STREAMING
    products = Selection(kernels.device, {role: own for role, own in kernels.groups.items() if role != "streaming"})
    change = _in_bf16(kernels, *roles)
    casts = np.full(products.rows.size, _CASTS_TRAINED if trains else _CASTS, np.float64)
    if convolutions is not None:
        casts[np.isin(products.rows, convolutions)] = _CASTS_CONVOLVED
    return UnderAutocast(change, products.rows, casts + _CHECKS * (checked and trains) - compiled)


def _in_bf16(kernels: Selection, tf32: Assumption, fp32: Assumption, streaming: Assumption) -> ShortenKernels:
    kept = {"tf32": tf32, "fp32": fp32, "misaligned": fixes.BF16_MISALIGNED}
    kept |= {"streaming": streaming, "vector": streaming}
    change = _moving(shorten("precision bf16", kernels, floored=True, **kept), kernels.usual / _WIDE_OF_NARROW)
    if not kernels.best.size:
        return change
    # A chip whose peaks are nearer to each other than those that the figures are of.
    return replace(change, keep=tuple(map(np.fmax, change.keep, _of_peaks(kernels.best))))


def from_fp64(kernels: Selection) -> ShortenKernels:
    """Kernels in float64 as fp32: half the bytes, twice the rate and more (measured: they keep 48 to 51 %)."""
    return shorten("precision fp32", kernels, floored=True, fp64=fixes.FP64_AS_FP32)
