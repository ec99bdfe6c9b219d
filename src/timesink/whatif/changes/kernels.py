"""Changes to what the device computes: faster, fused or narrower kernels, and what each saves. No other place says it.

A measure finds the kernels (`Selection`), a function here makes the change of them: the share of its time that each
keeps, at three cases. Diagnoses and `timesink what-if` price that same change. "Measured" without more is: on the
captures of the split `tune` of benchmarks/faults, whose gains were measured on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from timesink.knowledge.assumption import Assumption
from timesink.knowledge.assumptions import fixes, machines
from timesink.knowledge.ranges import OPTIMIZER_STEP
from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass, replace
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.change import (
    Case,
    Figure,
    Range,
    Selection,
    Target,
    Touches,
    calls_within,
    chosen_ops,
    host_windows,
)
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph

# PyTorch's own range around an optimizer's step, and the names people give theirs.
OPTIMIZER: Final = Target("range", OPTIMIZER_STEP)
_NOTHING: Final = Range.exact(0.0)
_CASTS: Final = 2.25  # where nobody trains: 18 of weights, biases, wide inputs and around softmaxes, of 8 products
_CASTS_TRAINED: Final = 2  # these three and those of their gradients, for three products
_CASTS_CONVOLVED: Final = 1.5  # of its weight and gradients; activations hand on 16 bits, a library lays them out anew
_WIDE_OF_NARROW: Final = 2  # bytes of a number in four bytes over those of one in two
_CHECKS: Final = 3  # launches by which anomaly mode looks at a gradient: compare, any, read


@dataclass(frozen=True, slots=True)
class ScaleKernels:
    """The target's device ops run `factor` times as long; of collectives, only what is surely transfer shrinks."""

    target: Target
    factor: Range

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"scale {self.target} {self.factor.expected:g}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.COMMUNICATION if self.target.kind == "collective" else Touches.DEVICE

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        chosen = chosen_ops(graph, self.target)
        factor = np.full(chosen.size, self.factor.at(case))
        if self.touches is Touches.COMMUNICATION:
            factor = np.maximum(factor, _transfer_share(graph, chosen))
        edit = Edit(graph)
        edit.scale_ops(chosen, factor)
        return edit.done()


def _transfer_share(graph: Graph, ops: BoolArray) -> Float64Array:
    """What of a collective is transfer at most: the shortest op of the same name, as a share of each; 0 elsewhere.

    On one rank a collective lasts from its own arrival to the end of the transfer, and the wait for later ranks is in
    it. A trace of one rank cannot tell the two apart, so no op is made shorter than the shortest of its name. Ops of
    one name that take 40, 100 and 50 us: shares 1, 0.4 and 0.8.
    """
    program = graph.program
    name = graph.names_of_ops().to_physical().to_numpy().astype(np.int64)
    length = np.maximum(program.ops.end_ns - program.ops.start_ns, 1).astype(np.float64)
    shortest = np.full(int(name.max(initial=0)) + 1, np.inf)
    np.minimum.at(shortest, name[ops], length[ops])
    return np.where(ops, np.minimum(shortest[name] / length, 1.0), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class ShortenKernels:
    """Kernels of one (rank, device) keep a share of their time; those of share 0 do not run at all.

    `rows` of `device_ops` is sorted. `keep[n]` belongs to case n (cautious, expected, hopeful), one figure per row from
    0 to 1 that does not grow from case to case. Where `floored`, no kernel that still runs takes less than
    `machines.KERNEL_FLOOR_US`.

    `launches_saved` is the share of the host's time for launches that goes with them. Where `entries` is None that is,
    for every row, from the end of the thread's call before to the end of the launch; else for the ops at `entries`
    alone, from the end of the thread's launch before. At 0, launches cost the host what they cost, and the gain is
    the kernels' own time. `beside` says which other kernels may get shorter, which are not what the fix is about.
    """

    label: str
    device: tuple[int, int]
    rows: Int64Array
    keep: tuple[Float64Array, ...]
    floored: bool = False
    launches_saved: Range = _NOTHING
    entries: Int64Array | None = None
    beside: ShortenKernels | None = None

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH if self.launches_saved.hopeful else Touches.DEVICE

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ops, row = graph.program.ops, graph.rows_of_ops()
        chosen = np.isin(row, self.rows)
        place = np.searchsorted(self.rows, row[chosen])
        share = np.ones(len(ops))
        share[chosen] = self._kept(case, place, (ops.end_ns - ops.start_ns)[chosen])
        gone = chosen & (share <= 0.0)
        edit = Edit(self.beside.rewrite(graph, case) if self.beside else graph)
        edit.scale_ops(chosen & ~gone, share)
        edit.drop_ops(gone)
        if saved := self.launches_saved.at(case):
            entered = chosen if self.entries is None else np.isin(row, self.entries)
            edit.save_launches(entered, saved, since_launch=self.entries is not None)
        return edit.done()

    def saved(self, trace: Trace, case: Case) -> Intervals:
        """The device time that goes: the last part of each kernel, as long as what it does not keep."""
        start, end = self._times(trace)
        kept = self._kept(case, np.arange(self.rows.size), end - start)
        return Intervals.union_of(start + np.ceil((end - start) * kept).astype(np.int64), end)

    def whole(self, trace: Trace) -> Intervals:
        """The device time in which any of the kernels runs."""
        return Intervals.union_of(*self._times(trace))

    def longest(self, trace: Trace, count: int = SHOWN_ROWS) -> tuple[int, ...]:
        """Rows of the longest kernels, longest first."""
        start, end = self._times(trace)
        order = np.lexsort((self.rows, start - end))
        return tuple(int(row) for row in self.rows[order[:count]])

    def _times(self, trace: Trace) -> tuple[Int64Array, Int64Array]:
        ops = trace.get(DEVICE_OPS)
        return ops["start_ns"].to_numpy()[self.rows], ops["end_ns"].to_numpy()[self.rows]

    def _kept(self, case: Case, place: Int64Array, length_ns: Int64Array) -> Float64Array:
        """The shares at some places of `rows`, whose kernels are as long as `length_ns`."""
        share = self.keep[case.value][place]
        if not self.floored:
            return share
        floor = np.minimum(machines.KERNEL_FLOOR_US.ns / np.maximum(length_ns, 1), 1.0)
        return np.where(share > 0, np.maximum(share, floor), share)


def shorten(label: str, kernels: Selection, floored: bool = False, **kept: Figure) -> ShortenKernels:
    """Kernels keep a share by role, other roles all of their time. A row of several roles keeps the smallest share."""
    rows = kernels.rows
    keep = np.ones((len(Case), rows.size))
    for role, share in kept.items():
        place = np.searchsorted(rows, kernels.groups.get(role, np.empty(0, np.int64)))
        for case in Case:
            keep[case.value, place] = np.minimum(keep[case.value, place], share.at(case))
    return ShortenKernels(label, kernels.device, rows, tuple(keep), floored)


def _half_at_least(label: str, kernels: Selection, expected: Float64Array, hopeful: Float64Array) -> ShortenKernels:
    """Each kernel keeps the shares given (at most all of its time), and cautiously gains half of what is expected."""
    expected = np.minimum(expected, 1.0)
    cautious = fixes.CAUTIOUS_SHARE.value
    keep = ((1.0 - cautious) + cautious * expected, expected, np.minimum(hopeful, expected))
    return ShortenKernels(label, kernels.device, kernels.rows, keep)


def fuse_attention(kernels: Selection, launches: bool = False) -> ShortenKernels:
    """Attention written out becomes one kernel: what is `between` its products goes; with `launches`, so do most of
    theirs.

    Products of the role `product_wide` are in fp32, where no fused kernel is fast. What stays of each role: `fixes`.
    """
    change = shorten(
        "fuse-attention",
        kernels,
        product=fixes.ATTENTION_PRODUCTS,
        between=fixes.ATTENTION_BETWEEN,
        product_wide=fixes.ATTENTION_WIDE,
    )
    return replace(change, launches_saved=_range(fixes.ATTENTION_LAUNCHES)) if launches else change


def _range(figure: Assumption) -> Range:
    return Range(*(figure.at(case) for case in Case))


def fuse_pointwise(kernels: Selection) -> ShortenKernels:
    """Chains become one kernel each, which takes at least as long as its longest member; these are the others."""
    return shorten("fuse-pointwise", kernels, other=fixes.POINTWISE_OTHERS)


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


def keep_layout(kernels: Selection, launches: bool = False) -> ShortenKernels:
    """Kernels that only change a layout go; with `launches`, theirs as far as converters do.

    A copy of what a concatenation has just `packed` may be there for its reader: hopefully it goes. Other kernels are
    chosen `beside` them, too: of the normalisations that have one block a channel, the share of the device stays that
    those blocks fill, and cautiously they gain half of that. What stays of each: `fixes`.
    """
    change = shorten(
        "keep-layout",
        kernels,
        strided=fixes.LAYOUT_STRIDED,
        packed=fixes.LAYOUT_PACKED,
        converter=fixes.LAYOUT_CONVERTERS,
        grouped=fixes.LAYOUT_GROUPED,
    )
    if launches:
        change = replace(change, launches_saved=Range(*(1.0 - fixes.LAYOUT_CONVERTERS.at(case) for case in Case)))
    if kernels.beside is None:
        return change
    others = shorten("keep-layout", kernels.beside, convolution=fixes.CONVOLUTIONS_BESIDE)
    filled = np.where(np.isnan(kernels.beside.best), 1.0, kernels.beside.best)
    filling = _half_at_least("keep-layout", kernels.beside, filled, filled)
    keep = np.minimum(others.keep, filling.keep)
    return replace(change, beside=replace(others, keep=tuple(keep)))


def to_tf32(kernels: Selection) -> ShortenKernels:
    """fp32 products as TF32: `best` is the ratio of peak rates, of which they keep `fixes.TF32_OF_PEAKS` times, and at
    least what their bytes take."""
    best = np.where(np.isnan(kernels.best), fixes.TF32_PEAKS.value, kernels.best)
    keep = tuple(np.minimum(fixes.TF32_OF_PEAKS.at(case) * best, 1.0) for case in Case)
    change = ShortenKernels("precision tf32", kernels.device, kernels.rows, keep, floored=True)
    return _moving(change, kernels.usual)


def _moving(change: ShortenKernels, share: Float64Array) -> ShortenKernels:
    """The same, but kernels keep at least the share of their time that their bytes take, where that is known."""
    return replace(change, keep=tuple(np.fmax(keep, share) for keep in change.keep)) if share.size else change


def to_bf16(kernels: Selection) -> ShortenKernels:
    """The whole program in bf16: TF32 products at twice the rate, fp32 ones at the ratio of peaks, `streaming` kernels
    with half the bytes."""
    return _in_bf16(kernels, fixes.BF16_OF_TF32, fixes.BF16_OF_FP32, fixes.BF16_STREAMING)


@dataclass(frozen=True, slots=True, eq=False)
class UnderAutocast:
    """Kernels in 16 bits under autocast. Beside each of `products`, rows of `device_ops` in order, the host launches so
    many `casts`. So a step that waits for its host gets longer."""

    touches: ClassVar[Touches] = Touches.BOTH
    kernels: ShortenKernels
    products: Int64Array
    casts: Float64Array

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return self.kernels.label

    @property
    def device(self) -> tuple[int, int]:
        """The (rank, device) of the kernels."""
        return self.kernels.device

    @property
    def rows(self) -> Int64Array:
        """The rows of the kernels."""
        return self.kernels.rows

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
    return _moving(shorten("precision bf16", kernels, floored=True, **kept), kernels.usual / _WIDE_OF_NARROW)


def from_fp64(kernels: Selection) -> ShortenKernels:
    """Kernels in float64 as fp32: half the bytes, twice the rate and more (measured: they keep 48 to 51 %)."""
    return shorten("precision fp32", kernels, floored=True, fp64=fixes.FP64_AS_FP32)


def align_products(kernels: Selection) -> ShortenKernels:
    """Products of aligned operands: they usually reach `fixes.ALIGNED_REACH` of the attainable bound (`best`), and
    cautiously gain half of the way there. Where nothing but a name is known, only products since Hopper gain much."""
    named = shorten(
        "align-products", kernels, named=fixes.ALIGNED_BY_NAME, named_since_hopper=fixes.ALIGNED_SINCE_HOPPER
    )
    known = _half_at_least("align-products", kernels, kernels.best / fixes.ALIGNED_REACH.value, kernels.best)
    shares = zip(named.keep, known.keep, strict=True)
    return replace(known, keep=tuple(np.where(np.isnan(share), by_name, share) for by_name, share in shares))


def spread_grids(kernels: Selection) -> ShortenKernels:
    """Kernels spread over all multiprocessors, of which they fill `best`: half of the gain is expected, since the same
    work is cut in more pieces."""
    return _half_at_least("spread-grids", kernels, fixes.GRIDS_SPREAD.value * kernels.best, kernels.best)


def batch_calls(kernels: Selection) -> ShortenKernels:
    """Calls of a model as one: `usual` of the time of each kernel but the first call's stays, cautiously half-way to
    all of it, and nobody launches it."""
    change = _half_at_least("batch-calls", kernels, kernels.usual, kernels.best)
    return replace(change, launches_saved=Range(fixes.CAUTIOUS_SHARE.value, 1.0, 1.0))


def overlap_streams(kernels: Selection) -> ShortenKernels:
    """Kernels that run at once with one of another stream; cautiously two fifths of the gain, where both kernels then
    share the memory's bandwidth."""
    keep = (1.0 - fixes.STREAMS_CAUTIOUS.value * (1.0 - kernels.usual), kernels.usual, kernels.best)
    return ShortenKernels("overlap-streams", kernels.device, kernels.rows, keep)


def on_streams(kernels: Selection, count: int) -> ShortenKernels:
    """Kernels of one stream on several: what `overlap_streams` says, of runs in place of pairs."""
    return replace(overlap_streams(kernels), label=f"streams {count}")


def fill_device(kernels: Selection) -> ShortenKernels:
    """Kernels that keep `best` of the multiprocessors at work over all of them: as `spread_grids` says of grids."""
    return replace(spread_grids(kernels), label="fill-device")


def full_clock(kernels: Selection) -> ShortenKernels:
    """Kernels at the highest clock, of which they had `best`: memory keeps its own clock, so half is expected."""
    half = (1.0 + kernels.best) / 2.0
    return ShortenKernels("full-clock", kernels.device, kernels.rows, (np.ones(half.size), half, kernels.best))


def merge_tiny(kernels: Selection) -> ShortenKernels:
    """Most very short kernels are merged into others: of those, what any kernel takes goes, and `best` stays."""
    merged = fixes.TINY_MERGED
    keep = tuple(1.0 - merged.at(case) * (1.0 - kernels.best) for case in Case)
    return ShortenKernels("merge-kernels", kernels.device, kernels.rows, keep)


def reach_bound(kernels: Selection) -> ShortenKernels:
    """An operator at 70 % of its attainable bound (`best`): what a well-written kernel of everyday shapes reaches."""
    return _half_at_least("reach-bound", kernels, kernels.best / fixes.BOUND_REACHED.value, kernels.best)


def join_graphs(kernels: Selection, entries: Int64Array, beyond: float) -> ShortenKernels:
    """Pieces of a compiled program become one graph, whose fused kernels take `usual` of their time, at best `best`.

    Of the host's time up to the launches of `entries` the share `beyond` comes after a break: Python, guards and
    dispatch, all of which go; cautiously half.
    """
    change = _half_at_least("join-graphs", kernels, kernels.usual, (kernels.usual + kernels.best) / 2.0)
    return replace(change, launches_saved=Range(fixes.CAUTIOUS_SHARE.value * beyond, beyond, beyond), entries=entries)


def compiled(kernels: Selection, launches: bool = True) -> tuple[ShortenKernels, ...]:
    """Eager runs compiled: all but the `longest` kernel of each go with their launches; the others, and what is
    `alone`, are launched without dispatch. Without `launches` only the kernels' own time goes."""
    other = Selection(kernels.device, {"other": kernels.groups["other"]})
    kept = Selection(kernels.device, {role: kernels.groups[role] for role in ("longest", "alone")})
    gone = shorten("compile", other, other=fixes.COMPILED_OTHERS)
    shorter = shorten("compile", kept, longest=fixes.COMPILED_LONGEST)
    if not launches:
        return gone, shorter
    stay, go = map(_range, (fixes.COMPILED_LAUNCHES, fixes.COMPILED_LAUNCHES_GONE))
    return replace(gone, launches_saved=go), replace(shorter, launches_saved=stay)


@dataclass(frozen=True, slots=True, eq=False)
class EnterRegions:
    """Compiled layers, each of which is a region: guards are asked and a wrapper is passed before the launch of each of
    the `rows` of `device_ops`, where layers start; where it `trains`, another wrapper leads to its gradient."""

    touches: ClassVar[Touches] = Touches.HOST
    label: ClassVar[str] = "enter-regions"
    device: tuple[int, int]
    rows: Int64Array
    trains: bool

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        entered, edit = np.isin(graph.rows_of_ops(), self.rows), Edit(graph)
        launches = fixes.REGION_TRAINED if self.trains else fixes.REGION_ENTERED
        edit.slow_launches(entered, np.full(entered.size, launches.at(case)), np.zeros_like(entered))
        return edit.done()


def together(changes: Sequence[ShortenKernels], label: str) -> ShortenKernels:
    """Changes to kernels of one device as one: a kernel of several keeps the product of its shares, and no launch is
    saved."""
    rows = np.unique(np.concatenate([change.rows for change in changes]))
    keep = np.ones((len(Case), rows.size))
    for change in changes:
        place = np.searchsorted(rows, change.rows)
        for case in Case:
            keep[case.value, place] *= change.keep[case.value]
    beside = [change.beside for change in changes if change.beside is not None]
    floored = any(change.floored for change in changes)
    joined = together(beside, label) if beside else None
    return ShortenKernels(label, changes[0].device, rows, tuple(keep), floored, beside=joined)


def drop_work(label: str, work: Selection) -> ShortenKernels:
    """Device work that need not be done goes, and the host's time from the call before to each of its launches;
    cautiously half of that, which holds what the program does there for other ends."""
    gone = np.zeros(work.rows.size)
    saved = Range(fixes.CAUTIOUS_SHARE.value, 1.0, 1.0)
    return ShortenKernels(label, work.device, work.rows, (gone, gone, gone), launches_saved=saved)


@dataclass(frozen=True, slots=True, eq=False)
class FuseOptimizer:
    """Each optimizer step launches a few fused kernels: host time becomes a fixed part and a part per former launch.

    The kernels keep a third of their time: unfused AdamW moves about five times the 28 bytes per parameter that one
    pass needs (read parameter, gradient and two moments, write three of them, 4 bytes each), SGD with momentum three
    times. `host` are the ranges of the steps; launches outside of them are taken row by row.
    """

    touches: ClassVar[Touches] = Touches.BOTH
    kernels: ShortenKernels
    host: Target = OPTIMIZER

    @classmethod
    def of(cls, kernels: Selection, host: Target = OPTIMIZER) -> FuseOptimizer:
        """Fuse the kernels of the selection."""
        return cls(shorten("fuse-optimizer", kernels, unfused=fixes.OPTIMIZER_KERNELS), host)

    @classmethod
    def over_lists(cls, kernels: Selection) -> FuseOptimizer:
        """Update lists of parameters in place of one after another."""
        return cls(shorten("foreach", kernels, unfused=fixes.FOREACH_KERNELS))

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return "fuse-optimizer" if self.host is OPTIMIZER else f"fuse-optimizer {self.host}"

    @property
    def device(self) -> tuple[int, int]:
        """The (rank, device) of the kernels."""
        return self.kernels.device

    @property
    def rows(self) -> Int64Array:
        """The rows of the kernels."""
        return self.kernels.rows

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ops = np.isin(graph.rows_of_ops(), self.kernels.rows)
        if not ops.any():
            return graph
        edit = Edit(self.kernels.rewrite(graph, case))
        edit.close_gaps(ops, 0)
        launching = graph.program.launching(ops)
        fixed_us, per_launch_us = fixes.OPTIMIZER_FIXED_US.at(case), fixes.OPTIMIZER_LAUNCH_US.at(case)
        windows = host_windows(graph, self.host)
        edit.replace_launches(windows, launching, fixed_us, per_launch_us)
        outside = launching & ~calls_within(graph, windows)
        edit.replace_launches(edit.launch_rows(outside), outside, fixed_us, per_launch_us)
        return edit.done()


@dataclass(frozen=True, slots=True)
class KernelFix:
    """A fix as text names it, before its kernels are selected in a trace (`measures.kernels.fixes`).

    Without a target they are those that the rules find; with one, what it names.
    """

    verb: str
    target: Target | None = None
    count: int | None = None

    @property
    def label(self) -> str:
        """The fix in one line, in the words of the command line."""
        return " ".join(str(part) for part in (self.verb, self.target, self.count) if part is not None)
