"""Small programs and a plain simulator of host, launch queue and streams: what a what-if has to agree with.

The simulator walks the program once, instruction by instruction, and knows nothing of graphs. Its constants are those
that the graph assumes where a trace shows none.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from tests.strategies import frame

from timesink.model.tables import API_CALLS, DEVICE_OPS, SYNCS
from timesink.model.trace import Trace
from timesink.whatif.periods import StepWindows

LATENCY_NS = 4_000
GAP_NS = 1_000
WAIT_NS = 5_000
LAUNCH_NS = 6_000


@dataclass(frozen=True)
class Host:
    """The host works for itself."""

    ns: int


@dataclass(frozen=True)
class Launch:
    """The host launches a kernel."""

    ns: int
    stream: int = 7
    name: str = "gemm"
    call_ns: int = LAUNCH_NS


@dataclass(frozen=True)
class Wait:
    """The host waits for a stream, or for the device where it is None."""

    stream: int | None = None
    call_ns: int = WAIT_NS


@dataclass(frozen=True)
class Step:
    """A step begins here."""


Instruction = Host | Launch | Wait | Step


@dataclass
class Simulated:
    """What happened: rows of calls and of device ops, and when the program was over."""

    calls: list[dict[str, object]] = field(default_factory=list)
    ops: list[dict[str, object]] = field(default_factory=list)
    syncs: list[dict[str, object]] = field(default_factory=list)
    marks_ns: list[int] = field(default_factory=list)
    end_ns: int = 0

    def windows(self) -> StepWindows:
        """The steps, from mark to mark."""
        marks = np.array(self.marks_ns, np.int64)
        return StepWindows.alike(marks[:-1], marks[1:])

    def trace(self) -> Trace:
        """The tables a profiler would have written."""
        tables = {API_CALLS: self.calls, DEVICE_OPS: self.ops, SYNCS: self.syncs}
        return Trace("simulated", {table: frame(table, rows) for table, rows in tables.items()})


def simulate(program: list[Instruction], start_ns: int = 1_000_000) -> Simulated:
    """Run a program on one thread. Every program ends by waiting for the device."""
    done, now, free = Simulated(), start_ns, dict[int, int]()
    for number, step in enumerate([*program, Wait()]):
        match step:
            case Step():
                done.marks_ns.append(now)
            case Host(ns):
                now += ns
            case Launch(ns, stream, name, call_ns):
                begin = max(now + LATENCY_NS, free.get(stream, -(10**15)) + GAP_NS)
                done.calls.append(_call(number, "cudaLaunchKernel", now, now + call_ns))
                done.ops.append(_op(number, stream, name, begin, begin + ns))
                free[stream] = begin + ns
                now += call_ns
            case Wait(stream, call_ns):
                kind: Literal["Stream", "Device"] = "Device" if stream is None else "Stream"
                awaited = [end for s, end in free.items() if stream in (None, s)]
                end = max([now + call_ns, *(a + WAIT_NS for a in awaited)])
                done.calls.append(_call(number, f"cuda{kind}Synchronize", now, end))
                done.syncs.append(
                    {
                        "rank": 0,
                        "process": 1,
                        "device": 0,
                        "stream": stream,
                        "kind": kind.lower(),
                        "start_ns": now,
                        "end_ns": end,
                        "correlation": number,
                    }
                )
                now = end
    done.end_ns = now
    return done


def _call(number: int, name: str, start_ns: int, end_ns: int) -> dict[str, object]:
    return {
        "rank": 0,
        "process": 1,
        "thread": 1,
        "name": name,
        "start_ns": start_ns,
        "end_ns": end_ns,
        "correlation": number,
    }


def _op(number: int, stream: int, name: str, start_ns: int, end_ns: int) -> dict[str, object]:
    return {
        "rank": 0, "device": 0, "process": 1, "context": 1, "stream": stream, "kind": "kernel", "name": name,
        "start_ns": start_ns, "end_ns": end_ns, "correlation": number,
    }  # fmt: skip
