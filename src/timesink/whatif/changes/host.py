"""Changes to what the host does: waits, loading, launching, operators."""

from collections.abc import Mapping
from typing import ClassVar, Final, Self

import numpy as np

from timesink.knowledge.assumptions import fixes
from timesink.knowledge.calls import CallKind
from timesink.knowledge.op_class import COMMUNICATION
from timesink.knowledge.operators import READS_A_VALUE
from timesink.knowledge.ranges import NEXT_BATCH
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.records import Record, field
from timesink.units import NS_PER_US
from timesink.whatif import (
    EVERYTHING,
    Case,
    Figure,
    Range,
    Target,
    Touches,
    calls_of,
    calls_within,
    chosen_ops,
    host_windows,
    once_of_target,
)
from timesink.whatif.edit import Edit, EditedChange
from timesink.whatif.graph import Graph

_READS_A_VALUE: Final = Target("op", READS_A_VALUE)
LOADER: Final = Target("range", NEXT_BATCH)


class RemoveSyncs(EditedChange, Record):
    """The host no longer waits in the chosen blocking calls; where none are named, in none but those that free memory,
    which another change spares (`KeepMemory`).

    Copies they waited for still run, asynchronously; but a copy of a few bytes to the host, and the operator around it,
    are there for nothing but the wait, and go with it (cautiously, they stay).
    """

    touches: ClassVar[Touches] = Touches.HOST
    target: Target = EVERYTHING

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        calls = graph.program.calls
        waits = calls_of(graph, self.target) & graph.program.releases.blocking
        waits &= (self.target != EVERYTHING) | (calls.kind != CallKind.FREE)
        edit.drop_waits(waits)
        if case is not Case.CAUTIOUS and waits.any():
            edit.drop_ops(_values_read(graph, waits))
            launching = graph.program.launching()
            kept = Intervals.union_of(calls.start_ns[launching], calls.end_ns[launching])
            for thread, part in host_windows(graph, _READS_A_VALUE).items():
                reads = _holding(part, calls.start_ns[waits & (calls.thread == thread)]) - kept
                edit.save_host({thread: reads}, 1.0)


def _values_read(graph: Graph, waits: BoolArray) -> BoolArray:
    """Copies of a few bytes to the host that the marked calls waited for; one flag per op."""
    program, small = graph.program, graph.once("values", lambda: _small_reads(graph))
    awaited = np.zeros(len(program.blocks), bool)
    awaited[program.releases.block[waits[program.releases.call]]] = True
    return np.asarray(small & awaited[program.ops.block], np.bool_)


def _small_reads(graph: Graph) -> BoolArray:
    frame = graph.tables[DEVICE_OPS][graph.program.ops.row].select("copy_kind", "bytes")
    few = (frame["copy_kind"] == "d2h") & (frame["bytes"] <= fixes.VALUE_BYTES.whole)
    return np.asarray(few.fill_null(False).to_numpy(), np.bool_)


def _holding(intervals: Intervals, times_ns: Int64Array) -> Intervals:
    """The intervals that hold any of the times."""
    ordered = np.sort(times_ns)
    held = np.searchsorted(ordered, intervals.end_ns) > np.searchsorted(ordered, intervals.start_ns)
    return Intervals(intervals.start_ns[held], intervals.end_ns[held])


class ScaleHost(EditedChange, Record):
    """The host's own time in the target takes `factor` times as long, which may be another at each case."""

    touches: ClassVar[Touches] = Touches.HOST
    target: Target
    factor: float | Figure

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        factor = self.factor if isinstance(self.factor, float | int) else self.factor.at(case)
        edit.save_host(host_windows(graph, self.target), 1.0 - factor)


class KeepMemory(EditedChange, Record):
    """Memory is taken once: calls that take or give it back in the target's host time do not happen.

    Nor do their waits: a cudaFree that returns 70 us after the kernel it waited for keeps the device idle for those.
    """

    touches: ClassVar[Touches] = Touches.HOST
    target: Target

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        calls, windows = graph.program.calls, host_windows(graph, self.target)
        dropped = np.isin(calls.kind, (CallKind.ALLOCATE, CallKind.FREE))
        for thread, part in windows.items():
            own = calls.thread == thread
            dropped[own] &= part.covered_ns(calls.start_ns[own], calls.end_ns[own]) > 0
        dropped &= np.isin(calls.thread, list(windows))
        edit.save_host(windows, 1.0)
        edit.drop_waits(np.asarray(dropped, np.bool_))


class MergeUnits(EditedChange, Record):
    """Of the host's time in the target the share `kept` stays: fewer, larger units cost it less often."""

    touches: ClassVar[Touches] = Touches.HOST
    target: Target
    kept: Range

    @classmethod
    def of(cls, host: Mapping[tuple[int, int], Intervals], unit_bytes: float | None) -> Self:
        """Units of that size become units of 25 MB; cautiously half as many go, hopefully half as many stay."""
        share = fixes.UNITS_KEPT.value if unit_bytes is None else min(unit_bytes / fixes.UNIT_BYTES.value, 1.0)
        hopeful = share / 2.0 if share < 1.0 else 1.0
        return cls(Target("windows", windows=host), Range((1.0 + share) / 2.0, share, hopeful))

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        edit.save_host(host_windows(graph, self.target), 1.0 - self.kept.at(case))


class MergeExchanges(MergeUnits):
    """Of exchanges launched one after the other in the target one stays: the host pays once, and so does the device,
    unless the cautious case, in which each byte took its time."""

    touches: ClassVar[Touches] = Touches.BOTH

    @classmethod
    def rows(cls, host: Mapping[tuple[int, int], Intervals], in_row: float) -> Self:
        """One of `in_row` stays; cautiously half of what that wins."""
        share = 1.0 / max(in_row, 1.0)
        return cls(Target("windows", windows=host), Range((1.0 + share) / 2.0, share, share))

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        MergeUnits._strokes(self, edit, graph, case)
        if case is not Case.CAUTIOUS:
            ops = chosen_ops(graph, self.target)
            edit.scale_ops(ops & (graph.program.ops.op_class == COMMUNICATION), self.kept.at(case))
            edit.close_gaps(ops, 0)


class FeedLoader(EditedChange, Record):
    """Batches come from workers: a fetch costs what is left of work / workers after the time since the last fetch.

    A fetch of 300 us every 400 us with 2 workers: a batch takes 150 us, 100 us pass between fetches, so 50 us are left.
    Without `workers` they keep up; in the cautious case there is one. In either case the program pays for them with a
    share of the loading time, and at least what it took to take a batch over where that was measured: `fetch_us`, and
    `megabyte_us` for each megabyte that is then copied to the device.
    """

    touches: ClassVar[Touches] = Touches.HOST
    target: Target = LOADER
    workers: int | None = None
    fetch_us: Range = Range.exact(0.0)
    megabyte_us: Range = Range.exact(0.0)

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        windows = host_windows(graph, self.target)
        workers = self.workers or (1 if case is Case.CAUTIOUS else None)
        fetches = sum(len(part) for part in windows.values())
        taken_ns = fetches and self._taken_ns(fetches, graph, case)
        for thread, part in windows.items():
            length = np.maximum(part.lengths_ns, 1)
            keep = np.maximum(fixes.LOADING_LEFT.at(case), taken_ns / length)
            if workers:
                since = np.concatenate(([0], part.start_ns[1:] - part.end_ns[:-1]))
                keep = np.maximum(keep, 1 / workers - since / length)
            edit.save_host_parts(thread, part.start_ns, part.end_ns, 1.0 - keep)

    def _taken_ns(self, fetches: int, graph: Graph, case: Case) -> float:
        ops = graph.table(DEVICE_OPS)
        copied = ops["bytes"].filter(ops["copy_kind"] == "h2d").sum()  # of those whose size is told
        return NS_PER_US * (self.fetch_us.at(case) + self.megabyte_us.at(case) * float(copied) / 1e6 / fetches)


class DropOperator(EditedChange, Record):
    """The target does not happen: its host time, its waits and the device work launched in it go."""

    touches: ClassVar[Touches] = Touches.BOTH
    target: Target

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        edit.drop_waits(calls_of(graph, self.target) & graph.program.releases.blocking)
        edit.save_host(host_windows(graph, self.target), 1.0)
        edit.drop_ops(chosen_ops(graph, self.target))


class DropCompiler(EditedChange, Record):
    """Nothing is compiled: the host's time in `target` goes, hopefully all that happens in `trials` too.

    A compiler runs what it made to choose among variants; which launches were such trials no trace says.
    """

    touches: ClassVar[Touches] = Touches.BOTH
    target: Target
    trials: Target

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        edit.save_host(host_windows(graph, self.target), 1.0)
        if case is Case.HOPEFUL:
            DropOperator(self.trials)._strokes(edit, graph, case)


class CaptureGraph(EditedChange, Record):
    """Each stretch of the target's host time between two waits becomes one graph launch.

    A replay costs the host a fixed part and a part per kernel, and the device a gap per kernel. Waits inside stay: a
    capture cannot contain them.
    """

    touches: ClassVar[Touches] = Touches.BOTH
    target: Target = EVERYTHING
    fixed_us: Figure = field(default_factory=lambda: fixes.GRAPH_REPLAY_US)
    per_kernel_us: Figure = field(default_factory=lambda: fixes.GRAPH_KERNEL_US)
    gap_us: Figure = field(default_factory=lambda: fixes.GRAPH_GAP_US)

    def _strokes(self, edit: Edit, graph: Graph, case: Case) -> None:
        launching = graph.program.launching()
        windows = once_of_target(graph, "launching", self.target, lambda: _launching_windows(graph, self.target))
        edit.replace_launches(windows, launching, self.fixed_us.at(case), self.per_kernel_us.at(case), least=2)
        captured = np.append(calls_within(graph, windows) & launching, False)
        edit.close_gaps(captured[graph.program.ops.call], int(self.gap_us.at(case) * NS_PER_US))


def _launching_windows(graph: Graph, target: Target) -> dict[int, Intervals]:
    """The target's windows from launch to launch, without blocking calls and what takes long between two launches.

    A thread and those that work for it launch in turns, so their launches count as one sequence. Loading a batch or
    writing a checkpoint is not captured with the launches around it.
    """
    calls, bursts = graph.program.calls, graph.program.bursts
    windows, launching, leader = host_windows(graph, target), graph.program.launching(), np.arange(len(calls.threads))
    leader[bursts.worker] = bursts.owner
    captured: dict[int, Intervals] = {}
    for thread, part in windows.items():
        together = leader[calls.thread] == leader[thread]
        launches = np.flatnonzero(launching & together)
        launches = launches[np.argsort(calls.start_ns[launches], kind="stable")]
        start, end = calls.start_ns[launches[:-1]], calls.end_ns[launches[1:]]
        apart = calls.start_ns[launches[1:]] - calls.end_ns[launches[:-1]]
        close = apart <= fixes.CAPTURED_WITHIN_US.ns
        waits = np.flatnonzero(graph.program.releases.blocking & together)
        waiting = Intervals.union_of(calls.start_ns[waits], calls.end_ns[waits])
        captured[thread] = (part & Intervals.union_of(start[close], end[close])) - waiting
    return captured
