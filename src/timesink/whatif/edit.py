"""The strokes of which changes are made: shorter ops, saved host time, waits that go, edges that come.

A stroke changes costs of edges. It never moves a node: what moves, and what waits instead, is for the replay to find.
Which edges it changes, and how, is said by the program alone, not by costs: so what a change draws is worked out once,
and drawn again on every graph that has the same edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from timesink import _native
from timesink.knowledge.assumptions import fixes
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, IntArray
from timesink.model.intervals import Intervals, begun_in
from timesink.records import Record
from timesink.units import NS_PER_US
from timesink.whatif import Case, Change, HostWindows, Touches
from timesink.whatif.graph import Graph, Program
from timesink.whatif.network import DISABLED, EdgeKind, Edges

Stroke = tuple[Callable[..., None], tuple[Any, ...]]
"""A method of `Edit` that changes costs, and what it is given besides the edit."""
_Windows = tuple[IntArray, Int64Array, Int64Array, Int64Array, Int64Array]
_Slowed = tuple[IntArray, Float64Array, _Windows]
"""Edges, when they begin and end, and when intervals do."""
_KEPT_BYTES: Final = 64_000_000  # of what was drawn on the graphs with the same edges


class Edit:
    """Works on copies of a graph's costs; `done()` is the changed graph. Strokes of different kinds may follow."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._weight = graph.network.edges.weight_ns.copy()
        self._unexplained = graph.network.edges.unexplained_ns  # copied before anything is written there
        self._more: list[Edges] = []
        self._drawn: list[Stroke] = []

    def done(self) -> Graph:
        """The changed graph."""
        self._settle()
        return self.graph.with_network(self.graph.network.with_costs(self._weight, self._unexplained))

    def draw(self, change: EditedChange, case: Case) -> None:
        """Draw a change, by what it drew before on a graph with these edges if there is such."""
        kept = self.graph.network.once("drawn", Drawn)
        known = kept.strokes_of(change, case)
        if known is None:
            outer, self._drawn = self._drawn, []
            change._strokes(self, self.graph, case)
            if self._more:
                self._stroke(Edit._settle)
            known, self._drawn = self._drawn, outer + self._drawn
            kept.keep(change, case, known)
            return
        for stroke, given in known:
            self._stroke(stroke, *given)

    def _stroke(self, stroke: Callable[..., None], *given: Any) -> None:
        drawn, self._drawn = self._drawn, []  # what a stroke draws is its own
        stroke(self, *given)
        self._drawn = drawn
        drawn.append((stroke, given))

    def scale_ops(self, ops: BoolArray, factor: float | Float64Array) -> None:
        """Multiply how long the marked ops run; `factor` is one number, or one per op of the program.

        The ops of a CUDA graph launch are replayed as one rigid block, whose order inside the trace does not tell. Of
        such a block only time in which no unmarked op runs can shrink: with ops at 10-40 (marked), 30-60 and 70-80
        (marked) and a factor of 0.5, half of 10-30 and of 70-80 goes, and the block becomes 70 - 15 long.
        """
        program = self.graph.program
        ops_of, blocks = program.ops, program.blocks
        saved = (1.0 - np.broadcast_to(np.asarray(factor, np.float64), ops.shape)) * ops
        alone = blocks.size[ops_of.block] == 1
        share = np.zeros(len(blocks))  # of the block's time that goes
        np.add.at(share, ops_of.block[alone], saved[alone])
        together = np.flatnonzero(~alone & (saved > 0))
        if together.size:
            block = ops_of.block[together]
            mates = np.isin(ops_of.block, np.unique(block)) & ~ops
            others = Intervals.union_of(ops_of.start_ns[mates], ops_of.end_ns[mates])
            start, end = ops_of.start_ns[together], ops_of.end_ns[together]
            exclusive = (end - start).astype(np.float64) - others.covered_ns(start, end)
            run = np.maximum(blocks.end_ns - blocks.start_ns, 1)
            np.add.at(share, block, saved[together] * exclusive / run[block])
        self._shorten(_run_edges(self.graph)[share != 0], np.minimum(share[share != 0], 1.0))

    def drop_ops(self, ops: BoolArray) -> None:
        """Take ops away: they run for no time, start without delay, and leave no gap."""
        if not ops.any():
            return
        self.scale_ops(ops, 0.0)
        self.close_gaps(ops, 0)
        launches = self.graph.edges_of(EdgeKind.LAUNCH)
        gone = launches[ops[self.graph.program.blocks.op[self.graph.block_of(self.graph.network.edges.dst[launches])]]]
        self._stroke(Edit._lower, gone, 0)

    def close_gaps(self, ops: BoolArray, gap_ns: int) -> None:
        """Let blocks of these ops alone follow their predecessors on the stream after at most `gap_ns`, promptly."""
        if not ops.any():
            return
        graph, edges = self.graph, self.graph.network.edges
        whole = np.bincount(graph.program.ops.block[~ops], minlength=len(graph.program.blocks)) == 0
        into = graph.edges_of(EdgeKind.STREAM)
        into = into[whole[graph.block_of(edges.dst[into])]]
        self._stroke(Edit._lower, into, gap_ns)
        self.start_promptly(graph.marks(graph.program.start_node(np.flatnonzero(whole))))

    def save_host(self, windows: HostWindows, share: float) -> None:
        """Take a share of the host's own time in the windows away. Waiting is not host time and stays what it is."""
        for thread, part in windows.items():
            self.save_host_parts(thread, part.start_ns, part.end_ns, np.full(len(part), share))

    def save_host_parts(self, thread: int, start_ns: Int64Array, end_ns: Int64Array, share: Float64Array) -> None:
        """The same for disjoint intervals of one thread, in order, each with a share of its own.

        What is saved up to an instant grows linearly through each interval, so that an edge of the thread saves the
        difference between its ends. Half of 0-100 and all of 200-220:

            instant  0  100  200  220      an edge from 50 to 210 saves (50 + 10) - 25 = 35 ns,
            saved    0   50   50   70      which is 35 / 160 of its weight
        """
        if start_ns.size:
            self._shorten(*_native.savings(*self.graph.edges_of_thread(thread), start_ns, end_ns, share))

    def save_calls(self, calls: IntArray, start_ns: Int64Array, end_ns: Int64Array, share: Float64Array) -> None:
        """The same for an interval of each of these calls, on its thread."""
        thread = self.graph.program.calls.thread[calls]
        for number in np.flatnonzero(np.bincount(thread)).tolist():
            own = thread == number
            self.save_host_parts(number, start_ns[own], end_ns[own], share[own])

    def save_launches(self, ops: BoolArray, share: float, *, since_launch: bool = False) -> None:
        """Take a share of the host time for the launches of these ops away (`launch_windows`)."""
        calls, start, end = self.launch_windows(ops, since_launch=since_launch)
        self.save_calls(calls, start, end, np.full(calls.size, share))

    def launch_windows(
        self, ops: BoolArray | None = None, *, since_launch: bool = False
    ) -> tuple[IntArray, Int64Array, Int64Array]:
        """The calls that launch these ops, or any, and when the host was at each: from the end of the thread's call
        before it that launches or waits to its own end, so that what an operator asks of CUDA before it launches counts
        for it; or, `since_launch`, from the end of the launch before it."""
        calls, start, end = self.graph.once(
            ("launches", since_launch), lambda: _every_launch(self.graph.program, since_launch)
        )
        if ops is None:
            return calls, start, end
        own = self.graph.program.launching(ops)[calls]
        return calls[own], start[own], end[own]

    def launch_rows(self, calls: BoolArray) -> HostWindows:
        """When the host is at these launches: of each row of them that no other launch of the thread breaks, nor much
        time, from the end of what any thread launched or waited for before, if that is soon enough, to its last."""
        program = self.graph.program
        every, launching = program.calls, np.flatnonzero(program.launching())
        before = np.sort(every.end_ns[program.launching() | program.releases.blocking])
        windows: dict[int, Intervals] = {}
        for thread in np.unique(every.thread[calls]).tolist():
            own = launching[every.thread[launching] == thread]
            marked, start, end = calls[own], every.start_ns[own], every.end_ns[own]
            follows = marked[1:] & marked[:-1] & (start[1:] - end[:-1] <= fixes.CAPTURED_WITHIN_US.ns)
            first = start[marked & ~np.concatenate(([False], follows))]
            last = end[marked & ~np.concatenate((follows, [False]))]
            since = np.minimum(before[np.searchsorted(before, first, side="right") - 1], first)
            soon = first - since <= fixes.CAPTURED_WITHIN_US.ns
            windows[thread] = Intervals.union_of(np.where(soon, since, first), last)
        return windows

    def slow_launches(self, ops: BoolArray, times: Float64Array, alike: BoolArray) -> None:
        """Let the host take so many `times`, one for each op, as long more for the launch of each of these ops as a
        launch takes by now, of those whose ops still run: on average of all, or of ops `alike` if that is more."""
        (calls, _, _), every = self.launch_windows(), self.graph.program.ops
        at = np.zeros(len(self.graph.program.calls), np.int64)
        at[calls] = np.arange(calls.size)
        launches = np.flatnonzero(every.call >= 0)
        runs, of_calls = _run_edges(self.graph)[every.block[launches]], at[every.call[launches]]
        like = np.flatnonzero(alike[launches])
        each = [(runs, of_calls), (runs[like], of_calls[like])]
        self._stroke(Edit._slow_launches, self._windows_of(ops, times), each)

    def delay_launches(self, ops: BoolArray, more_us: Float64Array) -> None:
        """Let the host take so many microseconds more, one figure for each op, for the launch of each of these ops."""
        self._stroke(Edit._delay_launches, self._windows_of(ops, more_us), NS_PER_US)

    def _windows_of(self, ops: BoolArray, times: Float64Array) -> list[_Slowed]:
        """By thread the launches of these ops, the figure of each, and where they are."""
        program, (calls, start, end) = self.graph.program, self.launch_windows()
        more = np.zeros(len(program.calls))
        is_launched = program.ops.call >= 0
        launched = ops & is_launched
        np.maximum.at(more, program.ops.call[launched], times[launched])
        own = np.flatnonzero(program.launching(ops)[calls])
        parts = []
        for number in np.flatnonzero(np.bincount(program.calls.thread[calls[own]])).tolist():
            part = own[program.calls.thread[calls[own]] == number]
            (edges, begin, end_of), place = self.graph.edges_of_thread(number), np.searchsorted
            near = place(end[part], begin, side="right") < place(start[part], end_of)  # edges that any of it meets
            windows = edges[near], begin[near], end_of[near], start[part], end[part]
            parts.append((part, more[calls[part]], windows))
        return parts

    def _slow_launches(self, parts: list[_Slowed], each: list[tuple[IntArray, IntArray]]) -> None:
        taken, one_ns = self._taken_ns(), 0.0
        for runs, of_calls in each:
            launching = np.zeros(taken.size, bool)
            launching[of_calls[self._weight[runs] > 0]] = True
            soon = taken[launching]
            soon = soon[soon <= fixes.CAPTURED_WITHIN_US.ns]  # what takes longer is no launching
            one_ns = max(one_ns, float(soon.mean()) if soon.size else 0.0)
        self._delay_launches(parts, one_ns)

    def _delay_launches(self, parts: list[_Slowed], one_ns: float) -> None:
        taken = self._taken_ns()
        for part, more, windows in parts:
            self._shorten(*_native.savings(*windows, -more * one_ns / np.maximum(taken[part], 1.0)))

    def _taken_ns(self) -> Float64Array:
        """The host's own time in the interval of each launch, with what was saved of it so far. Intervals lead from one
        point of a thread to another, so no edge is in one in part."""
        calls, start_ns, end_ns = self.launch_windows()

        def placed() -> list[tuple[BoolArray, IntArray, IntArray, IntArray]]:
            found, thread = [], self.graph.program.calls.thread[calls]
            for number in np.flatnonzero(np.bincount(thread)).tolist():
                own, (edges, _, ends) = thread == number, self.graph.edges_of_thread(number)
                begun, over = (np.searchsorted(ends, times[own], side="right") for times in (start_ns, end_ns))
                found.append((own, edges, begun, over))
            return found

        taken = np.zeros(calls.size)
        for own, edges, begun, over in self.graph.network.once("launches of each thread", placed):
            taken[own] = _native.passed(self._weight, edges, begun, over)
        return taken

    def replace_launches(
        self, windows: HostWindows, launching: BoolArray, fixed_us: float, per_launch_us: float, least: int = 0
    ) -> None:
        """Let each window cost the host a fixed part and a part for each of the marked calls that begin in it.

        A window with fewer such calls than `least` keeps its cost, and none costs more than it did.
        """
        calls = self.graph.program.calls
        for thread, part in windows.items():
            begun_ns = calls.start_ns[launching & (calls.thread == thread)]
            count = begun_in(begun_ns, part.start_ns, part.end_ns)
            cost_ns = (fixed_us + count * per_launch_us) * NS_PER_US
            share = 1.0 - np.minimum(cost_ns / np.maximum(part.lengths_ns, 1), 1.0)
            self.save_host_parts(thread, part.start_ns, part.end_ns, np.where(count >= least, share, 0.0))

    def drop_waits(self, calls: BoolArray) -> None:
        """Let calls return at once instead of waiting for the device; they cost nothing any more."""
        graph = self.graph
        ends = graph.marks(graph.program.points.end_of[calls])
        self.disable(graph.edges_of(EdgeKind.RELEASE, EdgeKind.QUEUE), into=ends)
        own = graph.edges_of(EdgeKind.HOST)
        self._stroke(Edit._cost, own[ends[graph.network.edges.dst[own]]], 0)
        self.start_promptly(ends)

    def disable(self, among: Int64Array, *, into: BoolArray | None = None, out_of: BoolArray | None = None) -> None:
        """Take edges away that enter, or that leave, the marked nodes."""
        edges = self.graph.network.edges
        if into is not None:
            self._stroke(Edit._cost, among[into[edges.dst[among]]], DISABLED)
        if out_of is not None:
            self._stroke(Edit._cost, among[out_of[edges.src[among]]], DISABLED)

    def start_promptly(self, nodes: BoolArray) -> None:
        """Forget the delays of the marked nodes that no weight explains."""
        if (edges := np.flatnonzero(nodes[self.graph.network.edges.dst])).size:
            self._stroke(Edit._explain, edges)

    def add(self, kind: EdgeKind, src: Int64Array, dst: Int64Array, weight_ns: Int64Array | int) -> None:
        """Demand more: dst happens no earlier than that after src."""
        self._stroke(Edit._add, Edges.of(kind, src, dst, weight_ns))

    def _shorten(self, edges: Int64Array, share: Float64Array) -> None:
        if edges.size:
            self._stroke(Edit._keep_less, edges, share)

    def _add(self, more: Edges) -> None:
        self._more.append(more)

    def _settle(self) -> None:
        """From here on edges are numbered as with those that came."""
        if self._more:
            network = self.graph.network.with_costs(self._weight, self._unexplained)
            network = network.with_edges(Edges.concat(self._more))
            self.graph, self._more = self.graph.with_network(network), []
            self._weight, self._unexplained = network.edges.weight_ns, network.edges.unexplained_ns

    def _lower(self, edges: IntArray, most_ns: int) -> None:
        self._weight[edges] = np.minimum(self._weight[edges], most_ns)

    def _cost(self, edges: IntArray, weight_ns: int) -> None:
        self._weight[edges] = weight_ns

    def _explain(self, edges: IntArray) -> None:
        if self._unexplained is self.graph.network.edges.unexplained_ns:
            self._unexplained = self._unexplained.copy()
        self._unexplained[edges] = 0

    def _keep_less(self, edges: Int64Array, share: Float64Array) -> None:
        """Edges whose weight is disabled stay so; rounding keeps the order of two savings."""
        _native.shorten(self._weight, edges, share)


class EditedChange:
    """A change that strokes make: `_strokes` draws them on a copy of the costs."""

    __slots__ = ()

    @property
    def parts(self) -> tuple[EditedChange, ...]:
        """The changes that it consists of, made one after another."""
        return (self,)

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        edit = Edit(graph)
        for part in self.parts:
            edit.draw(part, case)
        return edit.done()

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        """What the change does to the costs of a graph; it asks for none of them."""
        raise NotImplementedError


class Together(EditedChange, Record):
    """Changes made one after another. What they win together is less than the sum where they win the same time."""

    changes: tuple[Change, ...]

    @property
    def parts(self) -> tuple[EditedChange, ...]:
        """What they all consist of."""
        return tuple(part for change in self.changes for part in change.parts)

    @property
    def touches(self) -> Touches:
        """Whose time they take away: both sides', unless all take the same side's."""
        sides = {change.touches for change in self.changes}
        return sides.pop() if len(sides) == 1 else Touches.BOTH


class Drawn:
    """What changes drew on graphs with the same edges: the latest, `_KEPT_BYTES` of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, Case], tuple[EditedChange, list[Stroke], int]] = {}

    def strokes_of(self, change: EditedChange, case: Case) -> list[Stroke] | None:
        """What this very change drew; None where it did not, or long ago."""
        known = self._known.get((id(change), case))
        return known and known[1]

    def keep(self, change: EditedChange, case: Case, strokes: list[Stroke]) -> None:
        """Keep it, and the change, so that no other has its identity; forget the oldest where it gets too much."""
        size = sum([one.nbytes for _, given in strokes for one in given if isinstance(one, np.ndarray)])
        self._known[id(change), case] = change, strokes, size
        while sum(size for _, _, size in self._known.values()) > _KEPT_BYTES and len(self._known) > 1:
            self._known.pop(next(iter(self._known)))


def _run_edges(graph: Graph) -> Int64Array:
    """The number of the edge that each block's run is."""

    def worked_out() -> Int64Array:
        run = graph.edges_of(EdgeKind.RUN)
        run_edge = np.empty(len(graph.program.blocks), np.int64)
        run_edge[graph.block_of(graph.network.edges.dst[run])] = run
        return run_edge

    return graph.network.once("run of each block", worked_out)


def _every_launch(program: Program, since_launch: bool) -> tuple[IntArray, Int64Array, Int64Array]:
    every, launching = program.calls, program.launching()
    known = np.flatnonzero(launching | (program.releases.blocking & (not since_launch)))
    calls = np.flatnonzero(launching)
    place = np.searchsorted(known, calls)
    before = known[place - 1]
    same = (place > 0) & (every.thread[before] == every.thread[calls])
    start, end = np.where(same, every.end_ns[before], every.start_ns[calls]), every.end_ns[calls]
    return calls, np.minimum(start, end), end
