"""Pin host memory and copy without waiting.

Let collectives run beside computation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from timesink.knowledge.kernels import COMMUNICATION
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, IntArray
from timesink.model.tables import DEVICE_OPS
from timesink.whatif.device import stream_neighbours
from timesink.whatif.edit import Edit, Target, chosen_ops
from timesink.whatif.graph import Case, Graph, Range, Touches
from timesink.whatif.network import EdgeKind

ANY: Final = Target()
_STAGED_BYTES: Final = 65_536
_RATIO: Final = Range(0.8, 0.5, 0.25)


@dataclass(frozen=True, slots=True)
class PinCopies:
    """Pageable copies of the target come from pinned memory, on a stream of their own, and nobody waits for them.

    The call costs what a launch does; the wait for the copy goes; the copy overlaps earlier kernels and still precedes
    the next one of its former stream. Pinned copies run at the best rate that pinned copies of the trace show, else at
    `ratio` of the pageable time. Pinning memory anew for every copy costs more than it wins, and is not priced here.
    """

    target: Target = ANY
    direction: Literal["h2d", "d2h"] = "h2d"
    ratio: Range = _RATIO

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"pin-copies {self.target}" if self.target.kind != "any" else "pin-copies"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        program = graph.program
        pageable, factor = self._copies(graph, case)
        copies = np.flatnonzero(pageable & (program.blocks.size[program.ops.block] == 1))
        edit = Edit(graph)
        edit.scale_ops(pageable, factor)
        self._free_the_host(edit, graph, copies)
        blocks = program.ops.block[copies]
        moved = np.zeros(graph.network.observed_ns.size, bool)
        moved[program.start_node(blocks)] = True
        before, after = stream_neighbours(program.ops)
        edit.disable(graph.edges_of(EdgeKind.STREAM), moved)
        edit.start_promptly(moved)
        pairs = _bridges(copies.tolist(), before, after)
        if pairs.size:
            src, dst = program.end_node(program.ops.block[pairs[0]]), program.start_node(program.ops.block[pairs[1]])
            seen = graph.network.observed_ns[dst] - graph.network.observed_ns[src]
            edit.add(EdgeKind.STREAM, src, dst, np.minimum(program.costs.gap_ns, seen))
        chain = program.ops.block[copies]
        edit.add(EdgeKind.STREAM, program.end_node(chain[:-1]), program.start_node(chain[1:]), 0)
        return edit.done()

    def _copies(self, graph: Graph, case: Case) -> tuple[BoolArray, Float64Array]:
        """Pageable copies of the target, and how their times change."""
        ops = graph.program.ops
        frame = graph.tables[DEVICE_OPS][ops.row].select("copy_kind", "src_memory", "dst_memory", "bytes")
        side = "src_memory" if self.direction == "h2d" else "dst_memory"
        towards = (frame["copy_kind"] == self.direction).fill_null(False)
        pageable = (towards & (frame[side] == "pageable").fill_null(False)).to_numpy() & chosen_ops(graph, self.target)
        size = frame["bytes"].fill_null(0).to_numpy()
        length = np.maximum(ops.end_ns - ops.start_ns, 1)
        large = size > _STAGED_BYTES
        pinned = (towards & (frame[side] == "pinned").fill_null(False)).to_numpy() & (size > 16 * _STAGED_BYTES)
        if pinned.any():
            rate = float(np.quantile(size[pinned] / length[pinned], 0.9))
            factor = np.minimum(size / rate / length, 1.0)
        else:
            factor = np.full(length.size, self.ratio.at(case))
        return pageable, np.where(large, factor, 1.0)

    def _free_the_host(self, edit: Edit, graph: Graph, copies: Int64Array) -> None:
        program = graph.program
        calls, releases = program.calls, program.releases
        own = np.unique(program.ops.call[copies][program.ops.call[copies] >= 0])
        waits = np.zeros(len(calls), bool)
        waits[releases.call[np.isin(releases.block, program.ops.block[copies])]] = True
        edit.drop_waits(waits)
        others = np.setdiff1d(program.ops.call[program.ops.call >= 0], own)
        usual = int(np.median(calls.lengths_ns[others])) if others.size else 0
        length = np.maximum(calls.lengths_ns[own], 1)
        share = 1.0 - np.minimum(usual / length, 1.0)
        for thread in np.unique(calls.thread[own]):
            mine = calls.thread[own] == thread
            edit.save_host_parts(int(thread), calls.start_ns[own[mine]], calls.end_ns[own[mine]], share[mine])


def _bridges(copies: list[int], before: IntArray, after: IntArray) -> IntArray:
    """The neighbours of each run of moved ops: what preceded it still precedes what followed it."""
    moved = set(copies)
    pairs = []
    for op in copies:
        if before[op] >= 0 and int(before[op]) not in moved:
            last = op
            while int(after[last]) in moved:
                last = int(after[last])
            if after[last] >= 0:
                pairs.append((int(before[op]), int(after[last])))
    return np.array(pairs, np.int64).reshape(-1, 2).T


COLLECTIVES: Final = Target("collective", "")
_SLOWDOWN: Final = Range(0.4, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class OverlapCollectives:
    """Computation no longer waits for the target's collectives, which run on a stream of their own.

    Nothing says what really needs their result, so the gain is at most what this replays. While both run they contend
    for multiprocessors and memory: computation is slowed by `slowdown` of the collective's time (R12: 0.1 to 0.4).
    """

    target: Target = COLLECTIVES
    slowdown: Range = _SLOWDOWN

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"overlap {self.target}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.COMMUNICATION

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        program = graph.program
        chosen = chosen_ops(graph, self.target) & (program.blocks.size[program.ops.block] == 1)
        slowed = (self.slowdown.at(case) * (program.ops.end_ns - program.ops.start_ns)).astype(np.int64)
        edit = Edit(graph)
        _leave_shared_streams(edit, graph, chosen, slowed)
        _release_waiters(edit, graph, chosen, slowed)
        return edit.done()


def _leave_shared_streams(edit: Edit, graph: Graph, chosen: BoolArray, slowed_ns: Int64Array) -> None:
    """On a stream shared with computation, what followed collectives follows what preceded them."""
    program = graph.program
    before, _ = stream_neighbours(program.ops)
    late = np.flatnonzero(~chosen & (before >= 0) & chosen[before])
    early, delay = before[late], np.zeros(late.size, np.int64)
    while (passing := (early >= 0) & chosen[early]).any():
        delay[passing] += slowed_ns[early[passing]]
        early[passing] = before[early[passing]]
    freed = np.zeros(graph.network.observed_ns.size, bool)
    freed[program.start_node(program.ops.block[late])] = True
    edit.disable(graph.edges_of(EdgeKind.STREAM), freed)
    held = early >= 0
    source, sink = program.ops.block[early[held]], program.ops.block[late[held]]
    edit.add(EdgeKind.STREAM, program.end_node(source), program.start_node(sink), delay[held])


def _release_waiters(edit: Edit, graph: Graph, chosen: BoolArray, slowed_ns: Int64Array) -> None:
    """What waited for a collective's event goes on once the computation beside the collective is done, slowed by it."""
    program, edges = graph.program, graph.network.edges
    ended = np.zeros(graph.network.observed_ns.size, bool)
    ended[program.end_node(program.ops.block[chosen])] = True
    waits = graph.edges_of(EdgeKind.EVENT)
    waits = waits[ended[edges.src[waits]]]
    block = graph.block_of(edges.src[waits])
    beside = _last_computation_before(graph, block)
    edit.disable_from(waits, ended)
    known = beside >= 0
    delay = slowed_ns[program.blocks.op[block[known]]]
    edit.add(EdgeKind.EVENT, program.end_node(beside[known]), edges.dst[waits[known]], delay)


def _last_computation_before(graph: Graph, blocks: IntArray) -> IntArray:
    """The last block of computation that ended before each block started, or -1."""
    program = graph.program
    compute = np.flatnonzero(program.ops.op_class[program.blocks.op] != COMMUNICATION)
    order = compute[np.argsort(program.blocks.end_ns[compute], kind="stable")]
    if not order.size:
        return np.full(blocks.size, -1, np.int64)
    place = np.searchsorted(program.blocks.end_ns[order], program.blocks.start_ns[blocks], side="right") - 1
    return np.where(place >= 0, order[np.maximum(place, 0)], -1)
