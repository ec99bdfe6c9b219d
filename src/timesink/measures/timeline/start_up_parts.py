"""Where the time before the first steady step goes, every nanosecond once.

Where the program told it, since its process began: `capture` looks at its main thread. Else since the recording began:
of a rank, an instant belongs to the first of these kinds that goes on in it, whatever else does: what is rare and
names its cause comes before what is usual.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge import ranges
from timesink.knowledge.calls import (
    LAUNCH,
    LOADS_LIBRARY,
    LOADS_MODULE,
    MAKES_CONTEXT,
    OF_MEMORY,
    SETTING_UP,
    WAITS_FOR_DEVICE,
    call_kinds,
)
from timesink.knowledge.frames import IMPORTS
from timesink.measures.steps import steps
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.start_up import start_up
from timesink.model.arrays import BoolArray
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, OS_CALLS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_RECORDED: Final = (API_CALLS, HOST_OPS, RANGES, FRAMES, OS_CALLS, DEVICE_OPS)
_WAY_IN: Final = 2.0  # steps
NOTHING, UNSEEN = "nothing recorded", "not seen"


class StartUpParts(Record):
    """Of one rank: `parts` are kind, detail and time; they sum to `span_ns`, the time to the first steady step from the
    first thing recorded, or from the process's begin where the program `is_told` of itself."""

    rank: int
    span_ns: int
    parts: tuple[tuple[str, str, int], ...]
    is_told: bool = False

    @property
    def owned_ratio(self) -> float:
        """The share in which something was recorded or seen."""
        nameless_ns = sum(time_ns for kind, _, time_ns in self.parts if kind in (NOTHING, UNSEEN))
        return 1 - nameless_ns / self.span_ns if self.span_ns else 1.0


@remembered
def start_up_parts(trace: Trace) -> tuple[StartUpParts, ...]:
    """One per rank, by rank: of those that told it; else of those with steady steps that something was recorded
    before."""
    if trace.start_up:
        told: dict[int, list[tuple[str, str, int]]] = {}
        for rank, *part in trace.start_up:
            told.setdefault(rank, []).append(tuple(part))  # type: ignore[arg-type]
        return tuple(
            StartUpParts(one, sum(part[2] for part in parts), tuple(parts), True) for one, parts in told.items()
        )
    windows = steps(trace).windows
    firsts = windows.group_by("rank").agg(pl.col("start_ns").min()).sort("rank")
    found = (_of_rank(trace, int(rank), int(first_ns)) for rank, first_ns in firsts.iter_rows())
    return tuple(one for one in found if one.span_ns > 0)


def long_starts(trace: Trace) -> tuple[StartUpParts, ...]:
    """Those worth a table: told by the program, or longer than the way into the first step."""
    longest_ns = max((one.p50_ns or 0.0 for one in steps(trace).by_rank.values()), default=0.0)
    return tuple(one for one in start_up_parts(trace) if one.is_told or one.span_ns > _WAY_IN * longest_ns)


def _of_rank(trace: Trace, rank: int, first_step_ns: int) -> StartUpParts:
    own = {table: trace.get(table).filter(pl.col("rank") == rank) for table in _RECORDED}
    begins = [int(frame["start_ns"].min()) for frame in own.values() if frame.height]  # type: ignore[arg-type]
    left = Intervals.one(min(begins), first_step_ns) if begins and min(begins) < first_step_ns else Intervals.none()
    span_ns, parts = left.total_ns, []
    for name, busy in _kinds(trace, rank, own):
        taken = left & busy
        left = left - taken
        if taken.total_ns:
            parts.append((name, "", taken.total_ns))
    return StartUpParts(rank, span_ns, (*parts, *([(NOTHING, "", left.total_ns)] if left.total_ns else [])))


def _kinds(trace: Trace, rank: int, own: dict[Table, pl.DataFrame]) -> Iterator[tuple[str, Intervals]]:
    """What may own an instant, the first that goes on in it first."""
    calls, ops, named, frames = own[API_CALLS], own[HOST_OPS], own[RANGES], own[FRAMES]
    kinds = call_kinds(calls["name"])
    yield "compilation", _named(named, ranges.COMPILE_WORK) | _named(ops, ranges.COMPILE_WORK)
    yield "weights and checkpoints", _named(named, ranges.CHECKPOINTING)
    loads = matches(calls["name"], LOADS_LIBRARY) | matches(calls["name"], LOADS_MODULE)
    yield "libraries and kernels loaded", _rows(calls, loads.to_numpy())
    yield "the GPU's context", _rows(calls, matches(calls["name"], MAKES_CONTEXT).to_numpy())
    yield "memory taken from the driver", _rows(calls, np.isin(kinds, OF_MEMORY))
    yield "pinned memory, graphs", _rows(calls, matches(calls["name"], SETTING_UP).to_numpy())
    yield "first calls that load", start_up(trace).calls.get(rank, Intervals.none())
    yield "imports", _named(frames, IMPORTS)
    yield "first batches", _named(named, ranges.LOADING) | _named(frames, ranges.LOADING)
    busy = [line.busy for (of_rank, _), line in device_timeline(trace).by_device.items() if of_rank == rank]
    yield "work of the GPU", Intervals.union_all(busy)
    yield "waits for the GPU", _rows(calls, np.isin(kinds, WAITS_FOR_DEVICE))
    yield "launches", _rows(calls, matches(calls["name"], LAUNCH).to_numpy())
    yield "other calls of CUDA", Intervals.of(calls)
    yield "framework operators", Intervals.of(ops)
    yield "Python", Intervals.of(frames)
    yield "calls of the operating system", Intervals.of(own[OS_CALLS])
    yield "named ranges", Intervals.of(named)


def _named(frame: pl.DataFrame, pattern: str) -> Intervals:
    return _rows(frame, matches(frame["name"], pattern).to_numpy())


def _rows(frame: pl.DataFrame, chosen: BoolArray) -> Intervals:
    return Intervals.of(frame.filter(pl.Series(chosen, dtype=pl.Boolean)))
