"""Pin host memory and copy without waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from timesink.model.tables import DEVICE_OPS
from timesink.whatif.changes.case import Case, Range, Touches
from timesink.whatif.device import stream_neighbours
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph
from timesink.whatif.network import EdgeKind
from timesink.whatif.selection import Target, chosen_ops

Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.signedinteger[Any]]

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

    def _copies(self, graph: Graph, case: Case) -> tuple[Flags, npt.NDArray[np.float64]]:
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

    def _free_the_host(self, edit: Edit, graph: Graph, copies: npt.NDArray[np.int64]) -> None:
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


def _bridges(copies: list[int], before: Rows, after: Rows) -> Rows:
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
