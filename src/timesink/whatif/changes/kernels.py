"""Changes to kernels: faster, fewer or fused ones, and what each saves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from timesink.knowledge.assumptions import fixes, machines
from timesink.knowledge.ranges import OPTIMIZER_STEP
from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import Record, field
from timesink.whatif import Case, Figure, Range, Selection, Target, Touches, calls_within, chosen_ops, host_windows
from timesink.whatif.edit import Edit, EditedChange
from timesink.whatif.graph import Graph

_NOTHING: Final = Range.exact(0.0)


class ScaleKernels(EditedChange, Record):
    """The target's device ops run `factor` times as long; of collectives, only what is surely transfer shrinks."""

    target: Target
    factor: Range

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


class ShortenKernels(EditedChange, Record, eq=False):
    """Kernels of one (rank, device) keep a share of their time; those of share 0 do not run at all.

    `rows` of `device_ops` is sorted. `keep[n]` belongs to case n (cautious, expected, hopeful), one figure per row that
    does not grow from case to case: 0 to 1, or more where a kernel takes longer, which only a replay can price. Where
    `floored`, no kernel that still runs takes less than `machines.KERNEL_FLOOR_US`.

    `launches_saved` is the share of the host's time for launches that goes with them. Where `entries` is None that is,
    for every row, from the end of the thread's call before to the end of the launch; else for the ops at `entries`
    alone, from the end of the thread's launch before. At 0, launches cost the host what they cost, and the gain is
    the kernels' own time. `beside` says which other kernels may get shorter, which are not what the fix is about.
    """

    device: tuple[int, int]
    rows: Int64Array
    keep: tuple[Float64Array, ...]
    floored: bool = False
    launches_saved: Figure = _NOTHING
    entries: Int64Array | None = None
    beside: ShortenKernels | None = None

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        longer = bool((self.keep[Case.CAUTIOUS.value] > 1.0).any())
        return Touches.BOTH if self.launches_saved.at(Case.HOPEFUL) or longer else Touches.DEVICE

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        ops, chosen = graph.program.ops, graph.ops_at(self.rows)
        place = np.searchsorted(self.rows, graph.rows_of_ops()[chosen])
        share = np.ones(len(ops))
        share[chosen] = self._kept(case, place, (ops.end_ns - ops.start_ns)[chosen])
        gone = chosen & (share <= 0.0)
        if self.beside:
            edit.draw(self.beside, case)
        edit.scale_ops(chosen & ~gone, share)
        edit.drop_ops(gone)
        if saved := self.launches_saved.at(case):
            entered = chosen if self.entries is None else graph.ops_at(self.entries)
            edit.save_launches(entered, saved, since_launch=self.entries is not None)

    def saved(self, trace: Trace, case: Case) -> Intervals:
        """The device time that goes: the last part of each kernel, as long as what it does not keep."""
        start, end = self._times(trace)
        kept = self._kept(case, np.arange(self.rows.size), end - start)
        return Intervals.union_of(start + np.ceil((end - start) * kept).astype(np.int64), end)

    def gone(self, trace: Trace, case: Case) -> Intervals:
        """The device time that goes, with that of kernels beside."""
        own = self.saved(trace, case)
        return own | self.beside.saved(trace, case) if self.beside else own

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


class OfKernels(EditedChange, Record, eq=False):
    """A change of `kernels` and of something else besides."""

    kernels: ShortenKernels

    @property
    def device(self) -> tuple[int, int]:
        """The (rank, device) of the kernels."""
        return self.kernels.device

    @property
    def rows(self) -> Int64Array:
        """The rows of the kernels."""
        return self.kernels.rows

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        edit.draw(self.kernels, case)


def shorten(kernels: Selection, floored: bool = False, **kept: Figure) -> ShortenKernels:
    """Kernels keep a share by role, other roles all of their time. A row of several roles keeps the smallest share."""
    rows = kernels.rows
    keep = np.ones((len(Case), rows.size))
    for role, share in kept.items():
        place = np.searchsorted(rows, kernels.groups.get(role, np.empty(0, np.int64)))
        for case in Case:
            keep[case.value, place] = np.minimum(keep[case.value, place], share.at(case))
    return ShortenKernels(kernels.device, rows, tuple(keep), floored)


def half_at_least(kernels: Selection, expected: Float64Array, hopeful: Float64Array) -> ShortenKernels:
    """Each kernel keeps the shares given (at most all of its time), and cautiously gains half of what is expected."""
    expected = np.minimum(expected, 1.0)
    cautious = fixes.CAUTIOUS_SHARE.value
    keep = ((1.0 - cautious) + cautious * expected, expected, np.minimum(hopeful, expected))
    return ShortenKernels(kernels.device, kernels.rows, keep)


def together(changes: Sequence[ShortenKernels]) -> ShortenKernels:
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
    joined = together(beside) if beside else None
    return ShortenKernels(changes[0].device, rows, tuple(keep), floored, beside=joined)


class GrowKernels(EditedChange, Record, eq=False):
    """Kernels and copies of one (rank, device) take so many times as long: `grown[n]` in case n (cautious, expected,
    hopeful), one figure of 1 or more for each of the sorted `rows` of `device_ops`."""

    touches: ClassVar[Touches] = Touches.DEVICE
    factor: int
    device: tuple[int, int]
    rows: Int64Array
    grown: tuple[Float64Array, ...]

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        chosen, times = graph.ops_at(self.rows), np.ones(len(graph.program.ops))
        times[chosen] = self.grown[case.value][np.searchsorted(self.rows, graph.rows_of_ops()[chosen])]
        edit.scale_ops(chosen, times)


class EnterRegions(EditedChange, Record, eq=False):
    """Compiled layers, each of which is a region: guards are asked and a wrapper is passed before the launch of each of
    the `rows` of `device_ops`, where layers start; where it `trains`, another wrapper leads to its gradient. Where
    `entry_us` was measured, all that takes the host so long."""

    touches: ClassVar[Touches] = Touches.HOST
    device: tuple[int, int]
    rows: Int64Array
    trains: bool
    entry_us: Range | None = None

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        entered = graph.ops_at(self.rows)
        if self.entry_us is not None:
            edit.delay_launches(entered, np.full(entered.size, self.entry_us.at(case)))
            return
        launches = fixes.REGION_TRAINED if self.trains else fixes.REGION_ENTERED
        edit.slow_launches(entered, np.full(entered.size, launches.at(case)), np.zeros_like(entered))


class UnderAutocast(OfKernels, eq=False):
    """Kernels in 16 bits under autocast. Beside each of `products`, rows of `device_ops` in order, the host launches so
    many `casts`, each of which takes `cast_us` where that was measured, or `convolved_us` beside a `convolved` product;
    where it is not known which are (None), as many times a launch as is assumed. So a step that waits for its host gets
    longer."""

    touches: ClassVar[Touches] = Touches.BOTH
    products: Int64Array
    casts: Float64Array
    convolved: BoolArray | None = None
    cast_us: Range | None = None
    convolved_us: Range | None = None

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        edit.draw(self.kernels, case)
        own, others = graph.ops_at(self.products), graph.ops_at(self.rows)
        place = np.searchsorted(self.products, graph.rows_of_ops()[own])
        times = np.zeros(own.size)
        if self.cast_us is None or self.convolved_us is None or self.convolved is None:
            times[own] = fixes.AUTOCAST_CASTS.at(case) * self.casts[place]
            edit.slow_launches(own, times, others & ~own)  # each an operator, as casts
            return
        times[own] = self.casts[place] * np.where(
            self.convolved[place], self.convolved_us.at(case), self.cast_us.at(case)
        )
        edit.delay_launches(own, times)


# PyTorch's own range around an optimizer's step, and the names people give theirs.
OPTIMIZER: Final = Target("range", OPTIMIZER_STEP)


class FuseOptimizer(OfKernels, eq=False):
    """Each optimizer step launches a few fused kernels: host time becomes a fixed part and a part per former launch.

    The kernels keep a third of their time: unfused AdamW moves about five times the 28 bytes per parameter that one
    pass needs (read parameter, gradient and two moments, write three of them, 4 bytes each), SGD with momentum three
    times. `host` are the ranges of the steps; launches outside of them are taken row by row.
    """

    touches: ClassVar[Touches] = Touches.BOTH
    host: Target = OPTIMIZER
    fixed_us: Figure = field(default_factory=lambda: fixes.OPTIMIZER_FIXED_US)
    per_launch_us: Figure = field(default_factory=lambda: fixes.OPTIMIZER_LAUNCH_US)

    @classmethod
    def of(cls, kernels: Selection, host: Target = OPTIMIZER) -> FuseOptimizer:
        """Fuse the kernels of the selection."""
        return cls(shorten(kernels, unfused=fixes.OPTIMIZER_KERNELS), host)

    @classmethod
    def over_lists(cls, kernels: Selection) -> FuseOptimizer:
        """Update lists of parameters in place of one after another."""
        return cls(shorten(kernels, unfused=fixes.FOREACH_KERNELS))

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        ops = graph.ops_at(self.kernels.rows)
        if not ops.any():
            return
        edit.draw(self.kernels, case)
        edit.close_gaps(ops, 0)
        launching = graph.program.launching(ops)
        fixed_us, per_launch_us = self.fixed_us.at(case), self.per_launch_us.at(case)
        windows = host_windows(graph, self.host)
        edit.replace_launches(windows, launching, fixed_us, per_launch_us)
        outside = launching & ~calls_within(graph, windows)
        edit.replace_launches(edit.launch_rows(outside), outside, fixed_us, per_launch_us)
