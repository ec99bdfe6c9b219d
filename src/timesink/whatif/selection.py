"""What a change is about: device ops, host time or calls, chosen by name or by explicit windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from polars.exceptions import ComputeError

from timesink.errors import UsageError
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.whatif.graph import Graph

Flags = npt.NDArray[np.bool_]
HostWindows = Mapping[int, Intervals]

Kind = Literal["any", "kernel", "collective", "op", "range", "frame", "call", "windows"]
_HOST_TABLES: Final = {"op": HOST_OPS, "range": RANGES, "frame": FRAMES, "call": API_CALLS}
_COMMUNICATION: Final = 1


@dataclass(frozen=True, slots=True)
class Target:
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
        kind, colon, pattern = text.partition(":")
        known = [k for k in get_args(Kind) if k not in ("any", "windows")]
        if not colon or kind not in known:
            raise UsageError(
                f"{text!r} names no part of a program", remedy=f"write KIND:REGEX, KIND one of {', '.join(known)}"
            )
        try:
            pl.Series([""]).str.contains(pattern)
        except ComputeError as error:
            reason = str(error).partition("\n\n")[0].strip().splitlines()[-1]
            raise UsageError(f"{pattern!r} is no regular expression: {reason}") from error
        return next(cls(k, pattern) for k in get_args(Kind) if k == kind)

    def __str__(self) -> str:
        match self.kind:
            case "any":
                return "everything"
            case "windows":
                total = sum(part.total_ns for part in self.windows.values())
                return f"{total / 1e6:.3f} ms of host time"
            case _:
                return f"{self.kind}:{self.pattern}"


def chosen_ops(graph: Graph, target: Target) -> Flags:
    """Device ops that a target names, or that were launched inside the host time it names."""
    program = graph.program
    if target.kind == "any":
        return np.ones(len(program.ops), bool)
    if target.kind in ("kernel", "collective"):
        frame = graph.tables.get(DEVICE_OPS, DEVICE_OPS.empty())
        chosen = matches(frame["name"].gather(program.ops.row), target.pattern).to_numpy()
        return chosen & (program.ops.op_class == _COMMUNICATION) if target.kind == "collective" else chosen
    calls = calls_within(graph, host_windows(graph, target))
    return (
        (program.ops.call >= 0) & calls[np.maximum(program.ops.call, 0)]
        if len(program.calls)
        else np.zeros(len(program.ops), bool)
    )


def host_windows(graph: Graph, target: Target) -> dict[int, Intervals]:
    """Host time that a target names, by thread number. A worker thread's time counts with that of its owner.

    For `kernel` and `collective` it is the time of the calls that launched them.
    """
    program = graph.program
    number = {pair: n for n, pair in enumerate(program.calls.threads)}
    match target.kind:
        case "any":
            found = {n: _span(graph) for n in number.values()}
        case "windows":
            found = {number[pair]: part for pair, part in target.windows.items() if pair in number}
        case "kernel" | "collective":
            calls = np.unique(program.ops.call[chosen_ops(graph, target) & (program.ops.call >= 0)])
            found = _by_thread(program.calls.thread[calls], program.calls.start_ns[calls], program.calls.end_ns[calls])
        case "op" | "range" | "frame" | "call":
            found = _named_windows(graph, target, number)
    return _shared_with_workers(graph, found)


def _span(graph: Graph) -> Intervals:
    times = graph.program.points.time_ns
    return Intervals.one(int(times.min()), int(times.max()) + 1)


def _named_windows(graph: Graph, target: Target, number: Mapping[tuple[int, int], int]) -> dict[int, Intervals]:
    frame = graph.tables.get(_HOST_TABLES[target.kind])
    if frame is None or not frame.height:
        return {}
    hit = matches(frame["name"], target.pattern).to_numpy()
    found: dict[int, Intervals] = {}
    for (rank, process, thread), first, last in thread_slices(frame):
        rows = first + np.flatnonzero(hit[first:last])
        if rank == graph.program.rank and (process, thread) in number and rows.size:
            found[number[process, thread]] = Intervals.of(frame[rows].select("start_ns", "end_ns"))
    return found


def _by_thread(
    thread: npt.NDArray[np.signedinteger[Any]], start: npt.NDArray[np.int64], end: npt.NDArray[np.int64]
) -> dict[int, Intervals]:
    return {int(n): Intervals.union_of(start[thread == n], end[thread == n]) for n in np.unique(thread)}


def _shared_with_workers(graph: Graph, found: dict[int, Intervals]) -> dict[int, Intervals]:
    """A range of the thread that waits for a worker encloses what the worker does on its behalf."""
    bursts = graph.program.bursts
    for owner, worker in sorted(set(zip(bursts.owner.tolist(), bursts.worker.tolist(), strict=True))):
        if owner in found:
            found[worker] = found[owner] | found.get(worker, Intervals.none())
    return found


def calls_within(graph: Graph, windows: HostWindows) -> Flags:
    """Calls that begin inside the host time of their thread."""
    calls = graph.program.calls
    inside = np.zeros(len(calls), bool)
    for thread, part in windows.items():
        mine = np.flatnonzero(calls.thread == thread)
        inside[mine] = part.covered_ns(calls.start_ns[mine], calls.start_ns[mine] + 1) > 0
    return inside
