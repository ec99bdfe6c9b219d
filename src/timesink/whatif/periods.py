"""Step periods of a replay: how far the anchors of one step are from those of the next.

An anchor is where a step boundary of the program falls on the host or on the device.
"""

from functools import cached_property
from typing import Final, Self

import numpy as np

from timesink.knowledge.op_class import COMMUNICATION, COPY
from timesink.model.arrays import BoolArray, Float64Array, Int64Array, IntArray
from timesink.model.intervals import Intervals
from timesink.records import Record
from timesink.whatif.device import launched_ns
from timesink.whatif.graph import Graph, Program
from timesink.whatif.network import Replay

TO_P90: Final = 1.28
"""Standard deviations from the middle of normal errors to their ninetieth percentile."""


class StepWindows(Record, eq=False):
    """Host windows of steady steps, in order: one begins where the program begins a step, not where the GPU does.

    `weight` is what each counts for in a mean step: 1, but where slow steps come more or less often than here.
    """

    start_ns: Int64Array
    end_ns: Int64Array
    weight: Float64Array

    @classmethod
    def alike(cls, start_ns: Int64Array, end_ns: Int64Array) -> Self:
        """Windows that all count alike."""
        return cls(start_ns, end_ns, np.ones(start_ns.size))

    @property
    def uneven(self) -> bool:
        """Whether some steps count for more than others."""
        return bool((self.weight != 1.0).any())

    def mean(self, per_step: Float64Array) -> float:
        """The mean of a figure per step, 0 without steps."""
        return float(np.average(per_step, weights=self.weight)) if per_step.size else 0.0

    def __len__(self) -> int:
        return int(self.start_ns.size)


class Anchors:
    """Where a graph's step boundaries fall in a replay. The observed times that do not change are worked out once."""

    def __init__(self, graph: Graph, windows: StepWindows) -> None:
        self.program = graph.program
        self.windows = windows
        calls, ops, blocks = self.program.calls, self.program.ops, self.program.blocks
        launched = launched_ns(blocks.call, blocks.start_ns, calls)
        if len(windows):
            launched = np.where(_in_flight(self.program), np.minimum(launched, windows.start_ns[0] - 1), launched)
        self._order = np.argsort(launched, kind="stable")
        self._launched_ns = launched[self._order]
        self._device = ops.device[blocks.op]
        # times become floats only as distances: nanoseconds since 1970 have more digits than a float holds
        self.origin_ns = int(graph.network.observed_ns.min()) if graph.network.observed_ns.size else 0

    @cached_property
    def main_thread(self) -> int | None:
        """The number of the thread that launches the most and works on nobody's behalf; of all calls where none launch.

        Threads that only ask whether collectives are over, many times a step, set no pace.
        """
        calls, workers, launched = self.program.calls, np.unique(self.program.bursts.worker), self.program.blocks.call
        launches = np.bincount(calls.thread[launched[launched >= 0]], minlength=len(calls.threads))
        launches[workers] = 0
        count = launches if launches.any() else np.bincount(calls.thread, minlength=len(calls.threads))
        count[workers] = 0
        return int(np.argmax(count)) if count.size and count.max() > 0 else None

    def periods(self, replay: Replay) -> Float64Array:
        """Time of each step: between host anchors or device anchors, whichever are further apart over all steps.

        The device anchor of an instant is the completion of all work launched before it. Where the host runs ahead, the
        device sets the pace; where the device catches up, the host does. In ns, one entry per window.
        """
        start, end = self.boundaries(replay)
        return end - start

    def boundaries(self, replay: Replay) -> tuple[Float64Array, Float64Array]:
        """Where each step starts and ends, after `origin_ns`, by the anchors that set the pace."""
        host, device = self.host_ns(replay), self.device_ns(replay)
        if host is None or device is None:
            known = host if host is not None else device
            return (
                known if known is not None else (self._plain(self.windows.start_ns), self._plain(self.windows.end_ns))
            )
        return host if float((host[1] - host[0]).sum()) > float((device[1] - device[0]).sum()) else device

    def _plain(self, instants: Int64Array) -> Float64Array:
        return np.asarray(instants - self.origin_ns, np.float64)

    def host_ns(self, replay: Replay) -> tuple[Float64Array, Float64Array] | None:
        """When the main thread passes the starts and ends of the windows, after `origin_ns`; None without a thread.

        Between two of its points the thread moves evenly: a boundary half-way between points observed at 100 and 200
        and replayed at 80 and 120 is passed at 100. Beyond its first and last point it keeps its distance to them.
        """
        if self.main_thread is None:
            return None
        on_main, seen = self._bracket
        now = (replay.time_ns[on_main] - self.origin_ns).astype(np.float64)

        def passed(instants: Int64Array) -> Float64Array:
            wanted = (instants - self.origin_ns).astype(np.float64)
            beyond = np.minimum(wanted - seen[0], 0) + np.maximum(wanted - seen[-1], 0)
            return np.asarray(np.interp(wanted, seen, now) + beyond, np.float64)

        return passed(self.windows.start_ns), passed(self.windows.end_ns)

    @cached_property
    def _bracket(self) -> tuple[IntArray, Float64Array]:
        """Of the main thread's points its first and last, and the two around each start and end of a window, with when
        they were observed, after `origin_ns`."""
        points, windows = self.program.points, self.windows
        on_main = np.flatnonzero(points.thread == self.main_thread)
        seen = (points.time_ns[on_main] - self.origin_ns).astype(np.float64)
        instants = (np.concatenate((windows.start_ns, windows.end_ns)) - self.origin_ns).astype(np.float64)
        before = np.searchsorted(seen, instants, side="right") - 1
        around = np.concatenate((before, before + 1, (0, seen.size - 1)))
        kept = np.unique(np.clip(around, 0, seen.size - 1))
        return on_main[kept], seen[kept]

    def device_ns(self, replay: Replay) -> tuple[Float64Array, Float64Array] | None:
        """When all work launched before the starts and ends of the windows is complete, after `origin_ns`.

        The running maximum of ends in order of launch: of blocks launched at 0, 10, 20 that end at 30, 25, 50, all work
        launched before 20 is complete at 30. None where nothing ran on a device.
        """
        if not self._order.size:
            return None
        nodes, parts, place = self._completed
        complete = np.maximum.accumulate(np.maximum.reduceat(replay.time_ns[nodes], parts))
        first = replay.time_ns[self.program.start_node(self._order[:1])]
        done = np.where(place >= 0, complete[np.maximum(place, 0)], first) - self.origin_ns
        start, end = np.asarray(done, np.float64).reshape(2, -1)
        return start, end

    @cached_property
    def _completed(self) -> tuple[IntArray, IntArray, IntArray]:
        """The ends of blocks in order of launch, where each part of them begins, and up to which part they are launched
        before each start and each end of a window; -1 where none is."""
        count = np.searchsorted(self._launched_ns, np.concatenate((self.windows.start_ns, self.windows.end_ns)))
        parts = np.unique(np.append(count[count < self._order.size], 0))
        return self.program.end_node(self._order), parts, np.searchsorted(parts, count, side="left") - 1

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

    def busy_ns(self, replay: Replay, before: Replay | None = None) -> float:
        """Time per step in which the busiest device ran work launched in the windows.

        Kernels of which those `before` did not run at once need as long as then, less what each is shorter: they share
        the device, also where nothing makes one wait for another. Of kernels [0, 4) and [5, 9) that become [0, 3) and
        [1, 5), 4 + 4 - 1 = 7.
        """
        count, devices = self._launched_in
        most_ns = np.zeros(count)
        for stretch, starts, ends, computes in devices:
            most_ns = np.maximum(most_ns, _covered_ns(stretch, replay.time_ns[starts], replay.time_ns[ends], count))
            if before is not None and computes.any():
                of, start, end = stretch[computes], starts[computes], ends[computes]
                lengths = [each.time_ns[end] - each.time_ns[start] for each in (before, replay)]
                less_ns = np.bincount(of, lengths[0] - lengths[1], minlength=count)
                apart_ns = _covered_ns(of, before.time_ns[start], before.time_ns[end], count)
                most_ns = np.maximum(most_ns, apart_ns - less_ns)
        return self.windows.mean(most_ns) if self.windows.uneven else float(most_ns.sum()) / max(len(self.windows), 1)

    def carried_ns(self, replay: Replay) -> float:
        """How much longer per step the devices are busy between the boundaries than with what was launched there: work
        that steps before left them, where steps are of different lengths. At least nothing."""
        start, end = (self.origin_ns + at.astype(np.int64) for at in self.boundaries(replay))
        begins, ends = (replay.time_ns[node(self._order)] for node in (self.program.start_node, self.program.end_node))
        device, most_ns = self._device[self._order], 0.0
        for one in np.unique(device):
            busy = Intervals.union_of(begins[device == one], ends[device == one])
            most_ns = max(most_ns, self.windows.mean(np.asarray(busy.covered_ns(start, end), np.float64)))
        return max(most_ns - self.busy_ns(replay), 0.0)

    @cached_property
    def _launched_in(self) -> tuple[int, list[tuple[IntArray, IntArray, IntArray, BoolArray]]]:
        """The number of stretches, windows or rows of windows that meet; of each device the blocks launched in one: in
        which, the nodes at which they start and end, and whether they compute."""
        windows = self.windows
        apart = np.flatnonzero((windows.start_ns[1:] > windows.end_ns[:-1]) | windows.uneven)
        begins, ends = windows.start_ns[np.append(0, apart + 1)], windows.end_ns[np.append(apart, len(windows) - 1)]
        first, last = (np.searchsorted(self._launched_ns, at) for at in (begins, ends))
        stretch = np.repeat(np.arange(first.size), last - first)
        blocks = self._order[np.concatenate([np.empty(0, np.int64), *map(np.arange, first, last)])]
        start, end, device = self.program.start_node(blocks), self.program.end_node(blocks), self._device[blocks]
        each = [device == one for one in np.unique(device)]
        computes = ~np.isin(self.program.ops.op_class[self.program.blocks.op[blocks]], (COPY, COMMUNICATION))
        return first.size, [(stretch[own], start[own], end[own], computes[own]) for own in each]


def _covered_ns(stretch: IntArray, start: Int64Array, end: Int64Array, count: int) -> Float64Array:
    """How long something runs in each of `count` stretches, by the one that each thing belongs to."""
    span = int(end.max() - start.min()) + 1
    shift = stretch * span - start.min()  # so that the work of no two stretches meets
    busy = Intervals.union_of(start + shift, end + shift)
    return np.asarray(np.bincount(busy.start_ns // span, busy.end_ns - busy.start_ns, minlength=count), np.float64)


def _in_flight(program: Program) -> BoolArray:
    """Blocks launched before the recording began; one flag per block.

    Their launch is not in the trace, and on their stream they run before every block whose launch is.
    """
    ops, blocks = program.ops, program.blocks
    stream, linked = ops.stream[blocks.op], blocks.call >= 0
    first = np.full(len(ops.streams), np.iinfo(np.int64).min)
    if linked.any():
        first[stream[linked]] = np.iinfo(np.int64).max
        np.minimum.at(first, stream[linked], blocks.start_ns[linked])
    return np.asarray(~linked & (blocks.start_ns < first[stream]), np.bool_)
