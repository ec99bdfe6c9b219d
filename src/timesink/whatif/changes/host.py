"""Changes to what the host does: waits, loading, launching, operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from timesink.model.arrays import BoolArray
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.units import NS_PER_US
from timesink.whatif.edit import Edit, HostWindows, Target, calls_within, chosen_ops, host_windows
from timesink.whatif.graph import Case, Graph, Range, Touches

ANY: Final = Target()
# An operator that exists to hand a value to the host goes with its wait.
_VALUE_BYTES: Final = 4_096
# Launches further apart than this have something between them that is no launching.
_CAPTURED_WITHIN_US: Final = 500
_READS_A_VALUE: Final = Target("op", r"^aten::(item|_local_scalar_dense|is_nonzero)$")
LOADER: Final = Target("range", r"(?i)enumerate\(DataLoader\)#.*__next__|^data(loading|_time)?$|data_?load")
# Workers compete with the program for cores: on a public pair of captures (ResNet-50, 0 and 4 workers) a quarter of the
# loading time came back as slower host work.
_LEFT: Final = Range(0.30, 0.05, 0.0)
_FIXED_US: Final = Range(20.0, 12.0, 8.0)
_PER_KERNEL_US: Final = Range(1.0, 0.6, 0.2)
_GAP_US: Final = Range(1.5, 1.0, 0.5)


@dataclass(frozen=True, slots=True)
class RemoveSyncs:
    """The host no longer waits in the chosen blocking calls.

    Copies they waited for still run, asynchronously; but a copy of a few bytes to the host, and the operator around it,
    are there for nothing but the wait, and go with it (cautiously, they stay).
    """

    target: Target = ANY

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"remove-sync {self.target}" if self.target.kind != "any" else "remove-sync"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.HOST

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        windows = host_windows(graph, self.target)
        waits = calls_within(graph, windows) & graph.program.releases.blocking
        edit = Edit(graph)
        edit.drop_waits(waits)
        if case is not Case.CAUTIOUS:
            edit.drop_ops(_values_read(graph, waits))
            calls = graph.program.calls
            readers = host_windows(graph, _READS_A_VALUE)
            ended = {n: _holding(part, calls.start_ns[waits & (calls.thread == n)]) for n, part in readers.items()}
            launching = np.flatnonzero(
                np.bincount(graph.program.ops.call[graph.program.ops.call >= 0], minlength=len(calls))
            )
            kept = Intervals.union_of(calls.start_ns[launching], calls.end_ns[launching])
            edit.save_host({n: part - kept for n, part in ended.items()}, 1.0)
        return edit.done()


def _values_read(graph: Graph, waits: BoolArray) -> BoolArray:
    """Copies of a few bytes to the host that the calls waited for."""
    program = graph.program
    frame = graph.tables[DEVICE_OPS][program.ops.row].select("copy_kind", "bytes")
    small = ((frame["copy_kind"] == "d2h") & (frame["bytes"] <= _VALUE_BYTES)).fill_null(False).to_numpy()
    awaited = np.zeros(len(program.blocks), bool)
    awaited[program.releases.block[waits[program.releases.call]]] = True
    return np.asarray(small & awaited[program.ops.block], np.bool_)


def _holding(intervals: Intervals, times_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Intervals:
    """The intervals that hold any of the times."""
    place = np.searchsorted(np.sort(times_ns), intervals.start_ns)
    after = np.searchsorted(np.sort(times_ns), intervals.end_ns)
    return Intervals(intervals.start_ns[after > place], intervals.end_ns[after > place])


@dataclass(frozen=True, slots=True)
class ScaleHost:
    """The host's own time in the target takes `factor` times as long."""

    target: Target
    factor: float

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"scale-host {self.target} {self.factor:g}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.HOST

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        edit = Edit(graph)
        edit.save_host(host_windows(graph, self.target), 1.0 - self.factor)
        return edit.done()


@dataclass(frozen=True, slots=True)
class FeedLoader:
    """Batches come from workers: a fetch costs what is left of work / workers after the time since the last fetch.

    Without `workers` they always keep up; the share of its time that `left` gives is what the program pays for them.
    """

    target: Target = LOADER
    workers: int | None = None
    left: Range = _LEFT

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"feed-loader {self.target}" + (f" workers={self.workers}" if self.workers else "")

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.HOST

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        edit = Edit(graph)
        for thread, part in host_windows(graph, self.target).items():
            length = np.maximum(part.lengths_ns, 1)
            keep = np.full(length.size, self.left.at(case))
            if self.workers:
                since = np.concatenate(([0], part.start_ns[1:] - part.end_ns[:-1]))
                keep = np.maximum(keep, np.clip((length / self.workers - since) / length, 0.0, 1.0))
            edit.save_host_parts(thread, part.start_ns, part.end_ns, 1.0 - keep)
        return edit.done()


@dataclass(frozen=True, slots=True)
class DropOperator:
    """The target does not happen: its host time, its waits and the device work launched in it go."""

    target: Target

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"drop {self.target}"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        windows = host_windows(graph, self.target)
        edit = Edit(graph)
        edit.drop_waits(calls_within(graph, windows) & graph.program.releases.blocking)
        edit.save_host(windows, 1.0)
        edit.drop_ops(chosen_ops(graph, self.target))
        return edit.done()


@dataclass(frozen=True, slots=True)
class CaptureGraph:
    """Each stretch of the target's host time between two waits becomes one graph launch.

    A replay costs the host a fixed part and a part per kernel (0.6 us per node beside 6.4 us per eager launch was
    measured on one machine), and the device a gap per kernel. Waits inside stay: a capture cannot contain them.
    """

    target: Target = ANY
    fixed_us: Range = _FIXED_US
    per_kernel_us: Range = _PER_KERNEL_US
    gap_us: Range = _GAP_US

    @property
    def label(self) -> str:
        """The change in one line, in the words of the command line."""
        return f"capture-graph {self.target}" if self.target.kind != "any" else "capture-graph"

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        return Touches.BOTH

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        edit = Edit(graph)
        calls, ops = graph.program.calls, graph.program.ops
        launching = np.zeros(len(calls), bool)
        launching[ops.call[ops.call >= 0]] = True
        windows = _launching(graph, host_windows(graph, self.target), launching)
        for thread, part in windows.items():
            starts = np.sort(calls.start_ns[launching & (calls.thread == thread)])
            count = np.searchsorted(starts, part.end_ns) - np.searchsorted(starts, part.start_ns)
            cost = (self.fixed_us.at(case) + count * self.per_kernel_us.at(case)) * NS_PER_US
            share = np.where(count > 1, 1.0 - np.minimum(cost / np.maximum(part.lengths_ns, 1), 1.0), 0.0)
            edit.save_host_parts(thread, part.start_ns, part.end_ns, share)
        captured = np.append(calls_within(graph, windows) & launching, False)
        edit.close_gaps(captured[ops.call], int(self.gap_us.at(case) * NS_PER_US))
        return edit.done()


def _launching(graph: Graph, windows: HostWindows, launching: BoolArray) -> dict[int, Intervals]:
    """The windows from launch to launch, without blocking calls and without what takes long between two launches.

    A thread and those that work for it launch in turns, so their launches count as one sequence. Loading a batch or
    writing a checkpoint is not captured with the launches around it.
    """
    calls, bursts = graph.program.calls, graph.program.bursts
    leader = np.arange(len(calls.threads))
    leader[bursts.worker] = bursts.owner
    found: dict[int, Intervals] = {}
    for thread, part in windows.items():
        together = leader[calls.thread] == leader[thread]
        mine = np.flatnonzero(launching & together)
        mine = mine[np.argsort(calls.start_ns[mine], kind="stable")]
        start, end = calls.start_ns[mine[:-1]], calls.end_ns[mine[1:]]
        close = calls.start_ns[mine[1:]] - calls.end_ns[mine[:-1]] <= _CAPTURED_WITHIN_US * NS_PER_US
        waits = np.flatnonzero(graph.program.releases.blocking & together)
        captured = part & Intervals.union_of(start[close], end[close])
        found[thread] = captured - Intervals.union_of(calls.start_ns[waits], calls.end_ns[waits])
    return found
