"""The what-if engine: the dependency graph of a trace and its replay with one thing changed.

What every change has: a target, the side it touches, and figures that are known only as ranges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeVar, get_args

import numpy as np

from timesink.errors import UsageError
from timesink.knowledge.assumptions import Assumption
from timesink.knowledge.op_class import COMMUNICATION
from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.patterns import part_named, pattern_fault
from timesink.model.tables import API_CALLS, FRAMES, HOST_OPS, RANGES
from timesink.records import Record, field
from timesink.whatif.graph import Graph
from timesink.whatif.host import thread_rows

HostWindows = Mapping[int, Intervals]
"""Host time by thread number."""

_Found = TypeVar("_Found")
Kind = Literal["any", "kernel", "collective", "op", "range", "frame", "call", "windows"]
_HOST_TABLES: Final = {"op": HOST_OPS, "range": RANGES, "frame": FRAMES, "call": API_CALLS}


class Case(Enum):
    """Which end of its ranges a change is replayed at: what wins least, what is expected, what wins most."""

    CAUTIOUS = 0
    EXPECTED = 1
    HOPEFUL = 2


class Range(Record):
    """A figure at each case."""

    cautious: float
    expected: float
    hopeful: float

    @classmethod
    def exact(cls, value: float) -> Range:
        """A figure that is known."""
        return cls(value, value, value)

    def at(self, case: Case) -> float:
        """The figure at a case."""
        return (self.cautious, self.expected, self.hopeful)[case.value]


Figure = Range | Assumption
"""What a change takes for a figure: one that its caller gives, or one that is declared."""


class Selection(Record, eq=False):
    """Kernels of one (rank, device) that a measure found: rows of `device_ops`, ascending, by their role in a fix.

    `usual` and `best` are there for some: per row of `rows`, the share of its time that it would take as such kernels
    usually run, and at best; NaN where that is not known. They are facts of shapes, grids and machines, not of a fix.
    `beside` are kernels that were not looked for, and may get shorter with the others.
    """

    device: tuple[int, int]
    groups: Mapping[str, Int64Array]
    usual: Float64Array = field(default_factory=lambda: np.empty(0))
    best: Float64Array = field(default_factory=lambda: np.empty(0))
    beside: Selection | None = None

    @property
    def rows(self) -> Int64Array:
        """The rows of all roles, ascending."""
        rows = np.sort(np.concatenate([np.empty(0, np.int64), *self.groups.values()]), kind="stable")
        return rows[np.append(True, rows[1:] != rows[:-1])] if rows.size else rows

    def without(self, role: str) -> Selection:
        """The same but for one role. For selections that say nothing of single rows."""
        return Selection(self.device, {k: rows for k, rows in self.groups.items() if k != role}, beside=self.beside)


class Touches(Enum):
    """Whose time a change takes away: that decides which bound holds and which claims a profiler's own cost forbids."""

    HOST = "host"
    DEVICE = "device"
    BOTH = "CPU and GPU"
    COMMUNICATION = "communication"


class Change(Protocol):
    """A change that a graph can replay. `rewrite` leaves the graph it is given as it is; changes can follow another."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """The changes that it consists of, made one after another."""
        ...

    @property
    def touches(self) -> Touches:
        """Whose time it takes away."""
        ...

    def rewrite(self, graph: Graph, case: Case = Case.EXPECTED) -> Graph:
        """The graph as it would be after the change."""
        ...


class Target(Record):
    """Part of a program. `pattern` is a regular expression, searched anywhere in a name.

    kernel and collective choose device ops by name; op, range, frame and call choose host time inside what bears the
    name, and the device work launched there; windows chooses host time by (process, thread); any is everything.
    """

    kind: Kind = "any"
    pattern: str = ""
    windows: Mapping[tuple[int, int], Intervals] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def parse(cls, text: str) -> Target:
        """From `kind:pattern`; raises `UsageError` for an unknown kind or a pattern that is no regular expression."""
        kind, pattern = part_named(text)
        if reason := pattern_fault(pattern):
            raise UsageError(f"{pattern!r} is not a regular expression: {reason}")
        return next(cls(k, pattern) for k in get_args(Kind) if k == kind)

    def __str__(self) -> str:
        match self.kind:
            case "any":
                return "everything"
            case "windows":
                total = sum(part.total_ns for part in self.windows.values())
                return f"{total / 1e6:.3f} ms of CPU time"
            case _:
                return f"{self.kind}:{self.pattern}"


EVERYTHING: Final = Target()


def chosen_ops(graph: Graph, target: Target) -> BoolArray:
    """Device ops that a target names, or that were launched inside the host time it names; one flag per op."""
    ops = graph.program.ops
    if target.kind == "any":
        return np.ones(len(ops), bool)
    if target.kind in ("kernel", "collective"):
        named = matches(graph.names_of_ops(), target.pattern).to_numpy()
        return named & (ops.op_class == COMMUNICATION) if target.kind == "collective" else named
    return np.append(calls_of(graph, target), False)[ops.call]


def calls_of(graph: Graph, target: Target) -> BoolArray:
    """Calls that begin inside the host time that a target names; one flag per call."""
    return once_of_target(graph, "calls", target, lambda: calls_within(graph, host_windows(graph, target)))


def once_of_target(graph: Graph, what: str, target: Target, work_out: Callable[[], _Found]) -> _Found:
    """What a target names, worked out once for all costs of a graph. Its windows are kept: they tell it from others."""
    key = (what, target.kind, target.pattern, id(target.windows) if target.kind == "windows" else None)
    return graph.once(key, lambda: (work_out(), target.windows))[0]


def calls_within(graph: Graph, windows: HostWindows) -> BoolArray:
    """Calls that begin inside the host time of their thread; one flag per call."""
    calls = graph.program.calls
    inside = np.zeros(len(calls), bool)
    for thread, part in windows.items():
        own = np.flatnonzero(calls.thread == thread)
        inside[own] = part.covered_ns(calls.start_ns[own], calls.start_ns[own] + 1) > 0
    return inside


def host_windows(graph: Graph, target: Target) -> HostWindows:
    """Host time that a target names, by thread number. A worker thread's time counts with that of its owner.

    For `kernel` and `collective` it is the time of the calls that launched them.
    """
    return once_of_target(graph, "windows", target, lambda: _host_windows(graph, target))


def _host_windows(graph: Graph, target: Target) -> dict[int, Intervals]:
    program = graph.program
    calls, bursts = program.calls, program.bursts
    match target.kind:
        case "any":
            times = program.points.time_ns
            windows = {n: Intervals.one(int(times.min()), int(times.max()) + 1) for n in range(len(calls.threads))}
        case "windows":
            number = {pair: n for n, pair in enumerate(calls.threads)}
            windows = {number[pair]: part for pair, part in target.windows.items() if pair in number}
        case "kernel" | "collective":
            launched = np.flatnonzero(program.launching(chosen_ops(graph, target)))
            windows = {}
            for n in np.unique(calls.thread[launched]).tolist():
                own = launched[calls.thread[launched] == n]
                windows[n] = Intervals.union_of(calls.start_ns[own], calls.end_ns[own])
        case "op" | "range" | "frame" | "call":
            windows = _named_windows(graph, target)
    # a range of the thread that waits for a worker encloses what the worker does on its behalf
    for owner, worker in sorted(set(zip(bursts.owner.tolist(), bursts.worker.tolist(), strict=True))):
        if owner in windows:
            windows[worker] = windows[owner] | windows.get(worker, Intervals.none())
    return windows


def _named_windows(graph: Graph, target: Target) -> dict[int, Intervals]:
    frame = graph.table(_HOST_TABLES[target.kind])
    named = matches(frame["name"], target.pattern).to_numpy()
    windows: dict[int, Intervals] = {}
    for thread, first, last in thread_rows(frame, graph.program.rank, graph.program.calls.threads):
        rows = first + np.flatnonzero(named[first:last])
        if rows.size:
            windows[thread] = Intervals.of(frame[rows].select("start_ns", "end_ns"))
    return windows
