"""Changes to kernels: faster, fewer or fused ones, and what each saves. Types, compilers, optimizers: beside this file.

A measure finds the kernels (`Selection`), a function here makes the change of them: the share of its time that each
keeps, at three cases. Diagnoses and `timesink plan --change` price that same change. "Measured" without more is: on the
captures of the split `tune` of benchmarks/faults, whose gains were measured on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from timesink.knowledge.assumptions import Assumption, fixes, machines
from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass, replace
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.change import Case, Figure, Range, Selection, Target, Touches, chosen_ops
from timesink.whatif.edit import Edit, EditedChange
from timesink.whatif.graph import Graph

_NOTHING: Final = Range.exact(0.0)


@dataclass(frozen=True, slots=True)
class ScaleKernels(EditedChange):
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

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        chosen = chosen_ops(graph, self.target)
        factor = np.full(chosen.size, self.factor.at(case))
        if self.touches is Touches.COMMUNICATION:
            factor = np.maximum(factor, _transfer_share(graph, chosen))
        edit.scale_ops(chosen, factor)


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

    `rows` of `device_ops` is sorted. `keep[n]` belongs to case n (cautious, expected, hopeful), one figure per row that
    does not grow from case to case: 0 to 1, or more where a kernel takes longer, which only a replay can price. Where
    `floored`, no kernel that still runs takes less than `machines.KERNEL_FLOOR_US`.

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
        longer = any((keep > 1.0).any() for keep in self.keep)
        return Touches.BOTH if self.launches_saved.hopeful or longer else Touches.DEVICE

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


@dataclass(frozen=True, slots=True, eq=False)
class OfKernels:
    """A change of `kernels` and of something else besides."""

    kernels: ShortenKernels

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
        return self.kernels.rewrite(graph, case)


def shorten(label: str, kernels: Selection, floored: bool = False, **kept: Figure) -> ShortenKernels:
    """Kernels keep a share by role, other roles all of their time. A row of several roles keeps the smallest share."""
    rows = kernels.rows
    keep = np.ones((len(Case), rows.size))
    for role, share in kept.items():
        place = np.searchsorted(rows, kernels.groups.get(role, np.empty(0, np.int64)))
        for case in Case:
            keep[case.value, place] = np.minimum(keep[case.value, place], share.at(case))
    return ShortenKernels(label, kernels.device, rows, tuple(keep), floored)


def half_at_least(label: str, kernels: Selection, expected: Float64Array, hopeful: Float64Array) -> ShortenKernels:
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
    return replace(change, launches_saved=range_of(fixes.ATTENTION_LAUNCHES)) if launches else change


def range_of(figure: Assumption) -> Range:
    """The figure's three cases."""
    return Range(*(figure.at(case) for case in Case))


def fuse_pointwise(kernels: Selection) -> ShortenKernels:
    """Chains become one kernel each, which takes at least as long as its longest member; these are the others."""
    return shorten("fuse-pointwise", kernels, other=fixes.POINTWISE_OTHERS)


def keep_layout(kernels: Selection, launches: bool = False) -> ShortenKernels:
    """Kernels that only change a layout go, but for `grouped` ones; with `launches`, theirs as far as converters do.

    A copy of what a concatenation has just `packed` may be there for its reader: hopefully it goes. Other kernels are
    chosen `beside` them, too: of the normalisations that have one block a channel, the share of the device stays that
    those blocks fill, and cautiously they gain half of that. What stays of each: `fixes`.
    """
    kernels = kernels.without("grouped")
    change = shorten(
        "keep-layout",
        kernels,
        strided=fixes.LAYOUT_STRIDED,
        packed=fixes.LAYOUT_PACKED,
        converter=fixes.LAYOUT_CONVERTERS,
    )
    if launches:
        change = replace(change, launches_saved=Range(*(1.0 - fixes.LAYOUT_CONVERTERS.at(case) for case in Case)))
    if kernels.beside is None:
        return change
    others = shorten("keep-layout", kernels.beside, convolution=fixes.CONVOLUTIONS_BESIDE)
    filled = np.where(np.isnan(kernels.beside.best), 1.0, kernels.beside.best)
    filling = half_at_least("keep-layout", kernels.beside, filled, filled)
    keep = np.minimum(others.keep, filling.keep)
    return replace(change, beside=replace(others, keep=tuple(keep)))


def convert_groups(kernels: Selection) -> ShortenKernels:
    """With channels last, what the compiled converters of convolutions did between `grouped` normalisations, copies of
    PyTorch do, there and back, and take longer."""
    rows = kernels.groups["grouped"]
    keep = tuple(np.full(rows.size, fixes.LAYOUT_GROUPED.at(case)) for case in Case)
    return ShortenKernels("channels-last", kernels.device, rows, keep)


def align_products(kernels: Selection) -> ShortenKernels:
    """Products of aligned operands: they usually reach `fixes.ALIGNED_REACH` of the attainable bound (`best`), and
    cautiously gain half of the way there. Where nothing but a name is known, only products since Hopper gain much."""
    named = shorten(
        "align-products", kernels, named=fixes.ALIGNED_BY_NAME, named_since_hopper=fixes.ALIGNED_SINCE_HOPPER
    )
    known = half_at_least("align-products", kernels, kernels.best / fixes.ALIGNED_REACH.value, kernels.best)
    shares = zip(named.keep, known.keep, strict=True)
    return replace(known, keep=tuple(np.where(np.isnan(share), by_name, share) for by_name, share in shares))


def spread_grids(kernels: Selection) -> ShortenKernels:
    """Kernels spread over all multiprocessors, of which they fill `best`: half of the gain is expected, since the same
    work is cut in more pieces."""
    return half_at_least("spread-grids", kernels, fixes.GRIDS_SPREAD.value * kernels.best, kernels.best)


def batch_calls(kernels: Selection) -> ShortenKernels:
    """Calls of a model as one: `usual` of the time of each kernel but the first call's stays, cautiously half-way to
    all of it, and nobody launches it."""
    change = half_at_least("batch-calls", kernels, kernels.usual, kernels.best)
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
    return half_at_least("reach-bound", kernels, kernels.best / fixes.BOUND_REACHED.value, kernels.best)


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
