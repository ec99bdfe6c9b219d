"""Changes to what the device computes: faster, fused or narrower kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.units import NS_PER_US
from timesink.whatif.change import Case, Range, Target, TargetedChange, Touches, chosen_ops, host_windows
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph

POINTWISE: Final = Target("kernel", r"elementwise_kernel|reduce_kernel|softmax_warp|CatArrayBatchedCopy")
FP32_GEMM: Final = Target("kernel", r"(?i)sgemm|f32f32|_s(s|f32)_?gemm|gemm.*fp32|simt.*gemm|nvjet_.*_sss")
OPTIMIZER: Final = Target("range", r"^Optimizer\.step#|(?i)^optimi[sz]er([._ ]?step)?$")
# No kernel runs shorter, whatever it does.
_SHORTEST_US: Final = 2.0
# Time of a matrix product in a narrower type. Peak rates differ by 8 between FP32 and TF32 on an A100 and by 7 on an
# H100 (NVIDIA's data sheets), of which half to two thirds is usually reached.
_PRODUCT_RATIO: Final = Range(0.5, 0.25, 0.15)
# Time of a pointwise kernel that moves half the bytes.
_HALF_BYTES_RATIO: Final = Range(0.8, 0.6, 0.5)
# Of fused kernels: what of all but the longest one's time is still needed, and what of their launches' host time goes.
_OTHERS_LEFT: Final = Range(0.5, 0.1, 0.0)
_LAUNCHES_SAVED: Final = Range(0.5, 0.8, 1.0)
_NOTHING: Final = Range.exact(0.0)
# Device time of a fused optimizer: unfused AdamW moves about five times the 28 bytes per parameter that one pass needs
# (read parameter, gradient and two moments, write three of them, 4 bytes each).
_OPTIMIZER_RATIO: Final = Range(0.6, 0.35, 0.2)
# Host time of a fused optimizer step: its own, and for gathering the list of parameters, a part per former launch.
_OPTIMIZER_FIXED_US: Final = Range(300.0, 150.0, 80.0)
_OPTIMIZER_PER_LAUNCH_US: Final = Range(1.5, 0.6, 0.2)


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


@dataclass(frozen=True, slots=True)
class ChangePrecision:
    """Matrix products in a narrower type and, where that has 16 bits, half the bytes for pointwise work."""

    touches: ClassVar[Touches] = Touches.DEVICE
    to: str = "bf16"
    target: Target = FP32_GEMM

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"precision {self.to} {self.target}"

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        edit = Edit(graph)
        products = chosen_ops(graph, self.target)
        edit.scale_ops(products, _PRODUCT_RATIO.at(case))
        if self.to in ("bf16", "fp16"):
            streaming = chosen_ops(graph, POINTWISE) & ~products
            length = np.maximum(graph.program.ops.end_ns - graph.program.ops.start_ns, 1)
            factor = np.maximum(_HALF_BYTES_RATIO.at(case), _SHORTEST_US * NS_PER_US / length)
            edit.scale_ops(streaming, np.where(streaming, np.minimum(factor, 1.0), 1.0))
        return edit.done()


@dataclass(frozen=True, slots=True)
class FusePointwise(TargetedChange):
    """Each run of neighbouring target kernels on a stream becomes one kernel, launched once.

    The fused kernel takes longest + others_left * (total - longest): the longest member's time, since it reads and
    writes at least what that one does, and a share of what the others take. Of 20 and 50 us with a share of 0.1 that is
    52 us. `share_saved` is of the host time of the launches that go.
    """

    verb: ClassVar[str] = "fuse-pointwise"
    touches: ClassVar[Touches] = Touches.BOTH
    target: Target = POINTWISE
    others_left: Range = _OTHERS_LEFT
    share_saved: Range = _LAUNCHES_SAVED

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
        followers = run >= 0
        followers[members[np.unique(run[members], return_index=True)[1]]] = False
        edit = Edit(graph)
        edit.scale_ops(run >= 0, factor)
        edit.close_gaps(followers, 0)
        edit.save_launches(followers, self.share_saved.at(case))
        return edit.done()


def _runs(graph: Graph, chosen: BoolArray) -> Int64Array:
    """Number of each op's run of at least two neighbouring chosen ops on one stream; -1 outside of runs.

    Runs of one op keep the number they would have had. On one stream, ops a to f of which all but c are chosen:

        a b c d e f   ->   0 0 -1 1 1 1        and with b not chosen either:  -1 -1 -1 1 1 1
    """
    ops = graph.program.ops
    order = np.argsort(ops.stream, kind="stable")
    marked, stream = chosen[order], ops.stream[order]
    follows = np.zeros(order.size, bool)
    follows[1:] = marked[1:] & marked[:-1] & (stream[1:] == stream[:-1])
    run = np.full(order.size, -1, np.int64)
    run[order] = np.where(marked, np.cumsum(marked & ~follows) - 1, -1)
    size = np.bincount(run[run >= 0], minlength=1)
    return np.where((run >= 0) & (size[np.maximum(run, 0)] > 1), run, -1)


@dataclass(frozen=True, slots=True)
class FuseOptimizer(TargetedChange):
    """Each optimizer step launches a few fused kernels: host time becomes a fixed part and a part per former launch.

    Device time falls by the passes over memory that fusing saves.
    """

    verb: ClassVar[str] = "fuse-optimizer"
    touches: ClassVar[Touches] = Touches.BOTH
    target: Target = OPTIMIZER

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ops = chosen_ops(graph, self.target)
        edit = Edit(graph)
        edit.scale_ops(ops, _OPTIMIZER_RATIO.at(case))
        edit.close_gaps(ops, 0)
        windows, launching = host_windows(graph, self.target), graph.program.launching(ops)
        edit.replace_launches(windows, launching, _OPTIMIZER_FIXED_US.at(case), _OPTIMIZER_PER_LAUNCH_US.at(case))
        return edit.done()


@dataclass(frozen=True, slots=True, eq=False)
class ShortenKernels:
    """Device ops at these `rows` of `device_ops` keep a share of their time; those of share 0 do not run at all.

    `rows` is sorted. `keep[n]` belongs to case n (cautious, expected, hopeful), one figure per row. `launches_saved` is
    the share of the host's time for launches that goes with them. Where `entries` is None that is, for every row, from
    the end of the thread's call before to the end of the launch; else for the ops at `entries` alone, from the end of
    the thread's launch before. At 0, launches cost the host what they cost, and the fix wins at least what is replayed.
    """

    what: str
    rows: Int64Array
    keep: tuple[Float64Array, ...]
    launches_saved: Range = _NOTHING
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
        chosen = np.isin(ops.row, self.rows)
        share = np.ones(len(ops))
        share[chosen] = self.keep[case.value][np.searchsorted(self.rows, ops.row[chosen])]
        gone = chosen & (share <= 0.0)
        edit = Edit(graph)
        edit.scale_ops(chosen & ~gone, share)
        edit.drop_ops(gone)
        if saved := self.launches_saved.at(case):
            entered = chosen if self.entries is None else np.isin(ops.row, self.entries)
            edit.save_launches(entered, saved, since_launch=self.entries is not None)
        return edit.done()
