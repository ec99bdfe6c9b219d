"""Let collectives run beside computation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from timesink.whatif.changes.case import Case, Range, Touches
from timesink.whatif.device import stream_neighbours
from timesink.whatif.edit import Edit
from timesink.whatif.graph import Graph
from timesink.whatif.network import EdgeKind
from timesink.whatif.selection import Target, chosen_ops

Times = npt.NDArray[np.int64]
Rows = npt.NDArray[np.signedinteger[Any]]
Flags = npt.NDArray[np.bool_]

COLLECTIVES: Final = Target("collective", "")
_COMMUNICATION: Final = 1
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


def _leave_shared_streams(edit: Edit, graph: Graph, chosen: Flags, slowed_ns: Times) -> None:
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


def _release_waiters(edit: Edit, graph: Graph, chosen: Flags, slowed_ns: Times) -> None:
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


def _last_computation_before(graph: Graph, blocks: Rows) -> Rows:
    """The last block of computation that ended before each block started, or -1."""
    program = graph.program
    compute = np.flatnonzero(program.ops.op_class[program.blocks.op] != _COMMUNICATION)
    order = compute[np.argsort(program.blocks.end_ns[compute], kind="stable")]
    if not order.size:
        return np.full(blocks.size, -1, np.int64)
    place = np.searchsorted(program.blocks.end_ns[order], program.blocks.start_ns[blocks], side="right") - 1
    return np.where(place >= 0, order[np.maximum(place, 0)], -1)
