"""Step periods of a replay: how far the anchors of one step lie from those of the next."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from timesink.model.intervals import Intervals
from timesink.whatif.graph import Graph
from timesink.whatif.network import Replay
from timesink.whatif.program import Program

Times = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StepWindows:
    """Host windows of steady steps, in order: one begins where the program begins a step, not where the GPU does."""

    start_ns: Times
    end_ns: Times

    def __len__(self) -> int:
        return int(self.start_ns.size)


class Anchors:
    """Where a graph's step boundaries fall in a replay. The observed times that do not change are worked out once."""

    def __init__(self, graph: Graph, windows: StepWindows) -> None:
        self.program = graph.program
        self.windows = windows
        calls, ops, blocks = self.program.calls, self.program.ops, self.program.blocks
        launched = (
            np.where(blocks.call >= 0, calls.start_ns[np.maximum(blocks.call, 0)], blocks.start_ns)
            if len(calls)
            else blocks.start_ns
        )
        if len(windows):
            launched = np.where(_in_flight(self.program), np.minimum(launched, windows.start_ns[0] - 1), launched)
        self._order = np.argsort(launched, kind="stable")
        self._launched_ns = launched[self._order]
        self._device = ops.device[blocks.op]
        # times become floats only as distances: nanoseconds since 1970 have more digits than a float holds
        self.origin_ns = int(graph.network.observed_ns.min()) if graph.network.observed_ns.size else 0

    @cached_property
    def main_thread(self) -> int | None:
        """The number of the thread that makes the most calls and works on nobody's behalf."""
        calls, workers = self.program.calls, np.unique(self.program.bursts.worker)
        count = np.bincount(calls.thread, minlength=len(calls.threads))
        count[workers] = 0
        return int(np.argmax(count)) if count.size and count.max() > 0 else None

    def periods(self, replay: Replay) -> Floats:
        """Time of each step: between host anchors or device anchors, whichever are further apart over all steps.

        The device anchor of an instant is the completion of all work launched before it. Where the host runs ahead, the
        device sets the pace; where the device catches up, the host does.
        """
        start, end = self.boundaries(replay)
        return end - start

    def boundaries(self, replay: Replay) -> tuple[Floats, Floats]:
        """Where each step starts and ends, after `origin_ns`, by the anchors that set the pace."""
        host, device = self.host_ns(replay), self.device_ns(replay)
        if host is None or device is None:
            found = host if host is not None else device
            return (
                found if found is not None else (self._plain(self.windows.start_ns), self._plain(self.windows.end_ns))
            )
        return host if float((host[1] - host[0]).sum()) > float((device[1] - device[0]).sum()) else device

    def _plain(self, instants: Times) -> Floats:
        return np.asarray(instants - self.origin_ns, np.float64)

    def host_ns(self, replay: Replay) -> tuple[Floats, Floats] | None:
        """When the main thread passes the starts and ends of the windows, after `origin_ns`."""
        if self.main_thread is None:
            return None
        points = self.program.points
        mine = np.flatnonzero(points.thread == self.main_thread)
        seen = (points.time_ns[mine] - self.origin_ns).astype(np.float64)
        now = (replay.time_ns[mine] - self.origin_ns).astype(np.float64)

        def passed(instants: Times) -> Floats:
            wanted = (instants - self.origin_ns).astype(np.float64)
            beyond = np.minimum(wanted - seen[0], 0) + np.maximum(wanted - seen[-1], 0)
            return np.asarray(np.interp(wanted, seen, now) + beyond, np.float64)

        return passed(self.windows.start_ns), passed(self.windows.end_ns)

    def device_ns(self, replay: Replay) -> tuple[Floats, Floats] | None:
        """When all work launched before the starts and ends of the windows is complete, after `origin_ns`."""
        if not self._order.size:
            return None
        blocks = self._order
        complete = np.maximum.accumulate(replay.time_ns[self.program.end_node(blocks)])
        first = replay.time_ns[self.program.start_node(blocks[:1])]

        def done(instants: Times) -> Floats:
            place = np.searchsorted(self._launched_ns, instants, side="left") - 1
            reached = np.where(place >= 0, complete[np.maximum(place, 0)], first)
            return np.asarray(reached - self.origin_ns, np.float64)

        return done(self.windows.start_ns), done(self.windows.end_ns)

    def first_ns(self, replay: Replay) -> int:
        """When the first window begins in the replay."""
        host = self.host_ns(replay)
        return self.origin_ns + int(host[0][0]) if host is not None else int(self.windows.start_ns[0])

    def last_node(self, replay: Replay) -> int:
        """The node at which the last window is over: the device work launched in it, or the host's last point in it."""
        last = int(self.windows.end_ns[-1])
        blocks = self._order[: np.searchsorted(self._launched_ns, last, side="left")]
        nodes = self.program.end_node(blocks)
        points = np.flatnonzero(self.program.points.time_ns <= last)
        every = np.concatenate((nodes, points))
        return int(every[np.argmax(replay.time_ns[every])]) if every.size else 0

    def busy_ns(self, replay: Replay) -> float:
        """Time per step in which the busiest device ran work launched in the windows."""
        first, last = np.searchsorted(self._launched_ns, [self.windows.start_ns[0], self.windows.end_ns[-1]])
        blocks = self._order[first:last]
        start, end = replay.time_ns[self.program.start_node(blocks)], replay.time_ns[self.program.end_node(blocks)]
        device = self._device[blocks]
        totals = [Intervals.union_of(start[device == d], end[device == d]).total_ns for d in np.unique(device)]
        return max(totals, default=0) / max(len(self.windows), 1)


def _in_flight(program: Program) -> npt.NDArray[np.bool_]:
    """Blocks launched before the recording began: their launch is not in the trace, and on their stream they run
    before every block whose launch is."""
    ops, blocks = program.ops, program.blocks
    stream, linked = ops.stream[blocks.op], blocks.call >= 0
    first = np.full(len(ops.streams), np.iinfo(np.int64).min)
    if linked.any():
        first[stream[linked]] = np.iinfo(np.int64).max
        np.minimum.at(first, stream[linked], blocks.start_ns[linked])
    return np.asarray(~linked & (blocks.start_ns < first[stream]), np.bool_)
