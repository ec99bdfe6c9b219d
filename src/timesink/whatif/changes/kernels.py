"""Changes to what the device computes: faster, fused or narrower kernels.

Kernels that a fix makes shorter, each by a share of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.units import NS_PER_US
from timesink.whatif.edit import Edit, Target, chosen_ops, host_windows
from timesink.whatif.graph import Case, Graph, Range, Touches

POINTWISE: Final = Target("kernel", r"elementwise_kernel|reduce_kernel|softmax_warp|CatArrayBatchedCopy")
FP32_GEMM: Final = Target("kernel", r"(?i)sgemm|f32f32|_s(s|f32)_?gemm|gemm.*fp32|simt.*gemm|nvjet_.*_sss")
OPTIMIZER: Final = Target("range", r"^Optimizer\.step#|(?i)^optimi[sz]er([._ ]?step)?$")
_SHORTEST_US: Final = 2.0
_RATIO: Final = Range(0.5, 0.25, 0.15)
_OTHERS_LEFT: Final = Range(0.5, 0.1, 0.0)
_SHARE_SAVED: Final = Range(0.5, 0.8, 1.0)
_KERNEL_RATIO: Final = Range(0.6, 0.35, 0.2)
_FIXED_US: Final = Range(300.0, 150.0, 80.0)
_PER_LAUNCH_US: Final = Range(1.5, 0.6, 0.2)


@dataclass(frozen=True, slots=True)
class ScaleKernels:
    """The target's device ops run `factor` times as long. `by_row` gives rows of `device_ops` factors of their own."""

    target: Target
    factor: Range
    by_row: Mapping[int, Range] = field(default_factory=lambda: MappingProxyType({}))

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
        ops = graph.program.ops
        factor = np.full(len(ops), self.factor.at(case))
        chosen = (
            chosen_ops(graph, self.target) if self.target.kind != "any" or not self.by_row else np.zeros(len(ops), bool)
        )
        if self.by_row:
            place = {int(row): n for n, row in enumerate(graph.rows_of_ops())}
            for row, own in self.by_row.items():
                if row in place:
                    factor[place[row]], chosen[place[row]] = own.at(case), True
        if self.touches is Touches.COMMUNICATION:
            factor = np.maximum(factor, _least_share(graph, chosen))
        edit = Edit(graph)
        edit.scale_ops(chosen, factor)
        return edit.done()


def _least_share(graph: Graph, ops: BoolArray) -> Float64Array:
    """What of a collective is transfer at most (R14): the shortest op of the same name; the rest may be waiting."""
    program = graph.program
    name = graph.names_of_ops().to_physical().to_numpy().astype(np.int64)
    length = np.maximum(program.ops.end_ns - program.ops.start_ns, 1).astype(np.float64)
    shortest = np.full(int(name.max(initial=0)) + 1, np.inf)
    np.minimum.at(shortest, name[ops], length[ops])
    return np.where(ops, np.minimum(shortest[name] / length, 1.0), 0.0)


@dataclass(frozen=True, slots=True)
class ChangePrecision:
    """Matrix products in a narrower type, and half the bytes for pointwise work where `halves_bytes`.

    The ratio is of kernel times: peak rates differ by 8 between FP32 and TF32 on an A100 and by 7 on an H100, of which
    half to two thirds is usually reached.
    """

    to: str = "bf16"
    target: Target = FP32_GEMM
    ratio: Range = _RATIO
    halves_bytes: bool = True

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"precision {self.to} {self.target}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.DEVICE

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        edit = Edit(graph)
        products = chosen_ops(graph, self.target)
        edit.scale_ops(products, self.ratio.at(case))
        if self.halves_bytes and self.to in ("bf16", "fp16"):
            streaming = chosen_ops(graph, POINTWISE) & ~products
            edit.scale_ops(streaming, _with_floor(graph, streaming, Range(0.8, 0.6, 0.5).at(case)))
        return edit.done()


def _with_floor(graph: Graph, ops: BoolArray, factor: float) -> Float64Array:
    """A kernel does not run shorter than a kernel can."""
    length = np.maximum(graph.program.ops.end_ns - graph.program.ops.start_ns, 1)
    return np.where(ops, np.minimum(np.maximum(factor, _SHORTEST_US * NS_PER_US / length), 1.0), 1.0)


@dataclass(frozen=True, slots=True)
class FusePointwise:
    """Each run of neighbouring target kernels on a stream becomes one kernel, launched once.

    The fused kernel takes the longest member's time (it reads and writes at least what that one does); cautiously,
    half of what the others take is still needed. `share_saved` is of the host time of the launches that go.
    """

    target: Target = POINTWISE
    others_left: Range = _OTHERS_LEFT
    share_saved: Range = _SHARE_SAVED

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"fuse-pointwise {self.target}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        program = graph.program
        chosen = chosen_ops(graph, self.target) & (program.blocks.size[program.ops.block] == 1)
        run = _runs(graph, chosen)
        length = (program.ops.end_ns - program.ops.start_ns).astype(np.float64)
        longest, total = np.zeros(run.max(initial=0) + 1), np.zeros(run.max(initial=0) + 1)
        members = np.flatnonzero(run >= 0)
        np.maximum.at(longest, run[members], length[members])
        np.add.at(total, run[members], length[members])
        fused = longest + self.others_left.at(case) * (total - longest)
        factor = np.ones(length.size)
        factor[members] = (fused / np.maximum(total, 1))[run[members]]
        first = np.zeros(length.size, bool)
        first[members[np.unique(run[members], return_index=True)[1]]] = True
        followers = (run >= 0) & ~first
        edit = Edit(graph)
        edit.scale_ops(run >= 0, factor)
        edit.close_gaps(followers, 0)
        _save_launches(edit, graph, followers, self.share_saved.at(case))
        return edit.done()


def _runs(graph: Graph, chosen: BoolArray) -> Int64Array:
    """Number of each op's run of at least two neighbouring chosen ops on one stream; -1 outside of runs."""
    ops = graph.program.ops
    order = np.argsort(ops.stream, kind="stable")
    mine, stream = chosen[order], ops.stream[order]
    follows = np.zeros(order.size, bool)
    follows[1:] = mine[1:] & mine[:-1] & (stream[1:] == stream[:-1])
    run = np.full(order.size, -1, np.int64)
    run[order] = np.where(mine, np.cumsum(mine & ~follows) - 1, -1)
    size = np.bincount(run[run >= 0], minlength=1)
    return np.where((run >= 0) & (size[np.maximum(run, 0)] > 1), run, -1)


def _save_launches(edit: Edit, graph: Graph, ops: BoolArray, share: float) -> None:
    """Host time from the end of the thread's call before each launch to the end of the launch goes, by a share."""
    program = graph.program
    calls = np.unique(program.ops.call[ops & (program.ops.call >= 0)])
    previous = calls - 1
    same = (previous >= 0) & (program.calls.thread[np.maximum(previous, 0)] == program.calls.thread[calls])
    start = np.where(same, program.calls.end_ns[np.maximum(previous, 0)], program.calls.start_ns[calls])
    for thread in np.unique(program.calls.thread[calls]):
        mine = program.calls.thread[calls] == thread
        end = program.calls.end_ns[calls[mine]]
        edit.save_host_parts(int(thread), np.minimum(start[mine], end), end, np.full(end.size, share))


@dataclass(frozen=True, slots=True)
class FuseOptimizer:
    """Each optimizer step launches a few fused kernels: host time becomes a fixed part and a part per former launch.

    Device time falls by the passes over memory that fusing saves: unfused AdamW moves about five times the 28 bytes per
    parameter that one pass needs.
    """

    target: Target = OPTIMIZER
    kernel_ratio: Range = _KERNEL_RATIO
    fixed_us: Range = _FIXED_US
    per_launch_us: Range = _PER_LAUNCH_US

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"fuse-optimizer {self.target}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ops = chosen_ops(graph, self.target)
        edit = Edit(graph)
        edit.scale_ops(ops, self.kernel_ratio.at(case))
        edit.close_gaps(ops, 0)
        calls = graph.program.calls
        launches = np.unique(graph.program.ops.call[ops & (graph.program.ops.call >= 0)])
        for thread, part in host_windows(graph, self.target).items():
            starts = np.sort(calls.start_ns[launches][calls.thread[launches] == thread])
            count = np.searchsorted(starts, part.end_ns) - np.searchsorted(starts, part.start_ns)
            cost = (self.fixed_us.at(case) + count * self.per_launch_us.at(case)) * NS_PER_US
            share = 1.0 - np.minimum(cost / np.maximum(part.lengths_ns, 1), 1.0)
            edit.save_host_parts(thread, part.start_ns, part.end_ns, share)
        return edit.done()


_NONE: Final = Range.exact(0.0)


@dataclass(frozen=True, slots=True, eq=False)
class ShortenKernels:
    """Device ops at these `rows` of `device_ops` keep a share of their time; those of share 0 do not run at all.

    `keep[n]` belongs to case n (cautious, expected, hopeful), one figure per row. `launches_saved` is the share of the
    host's time for launches that goes with them. Where `entries` is None that is, for every row, from the end of the
    thread's call before to the end of the launch; else for the ops at `entries` alone, from the end of the thread's
    launch before. At 0, launches cost the host what they cost, and the fix wins at least what is replayed.
    """

    what: str
    rows: Int64Array
    keep: tuple[Float64Array, Float64Array, Float64Array]
    launches_saved: Range = _NONE
    entries: Int64Array | None = None

    @property
    def label(self) -> str:
        """The change in one line."""
        return f"shorten {self.what}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH if self.launches_saved.hopeful else Touches.DEVICE

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ops = graph.program.ops
        keep = self.keep[case.value]
        place = np.searchsorted(self.rows, ops.row)
        found = np.minimum(place, max(self.rows.size - 1, 0))
        mine = (self.rows[found] == ops.row) if self.rows.size else np.zeros(len(ops), bool)
        share = np.where(mine, keep[found] if self.rows.size else 1.0, 1.0)
        gone = mine & (share <= 0.0)
        edit = Edit(graph)
        edit.scale_ops(mine & ~gone, share)
        edit.drop_ops(gone)
        if saved := self.launches_saved.at(case):
            entered = mine if self.entries is None else np.isin(ops.row, self.entries)
            _save_shortened_launches(edit, graph, entered, saved, after_launch=self.entries is not None)
        return edit.done()


def _save_shortened_launches(edit: Edit, graph: Graph, ops: BoolArray, share: float, *, after_launch: bool) -> None:
    """Take a share of the host's time for the launches of these ops away."""
    program = graph.program
    calls = np.unique(program.ops.call[ops & (program.ops.call >= 0)])
    known = np.unique(program.ops.call[program.ops.call >= 0]) if after_launch else np.arange(program.calls.thread.size)
    place = np.searchsorted(known, calls)
    before = known[np.maximum(place - 1, 0)]
    same = (place > 0) & (program.calls.thread[before] == program.calls.thread[calls])
    start = np.where(same, program.calls.end_ns[before], program.calls.start_ns[calls])
    end = np.maximum(program.calls.end_ns[calls], start)
    for thread in np.unique(program.calls.thread[calls]).tolist():
        mine = program.calls.thread[calls] == thread
        edit.save_host_parts(thread, start[mine], end[mine], np.full(int(mine.sum()), share))
