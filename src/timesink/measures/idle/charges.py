"""Whose doing a stretch is: of input that was being prepared, of a wait that lost the host its lead, or its own.

A stretch belongs to what the host was doing in it, with two exceptions. Whatever the host did while it prepared input,
the device waited for input. And a blocking call throws away the host's lead: `host-sync.md` says how much of the
launching after it is the wait's doing.
"""

from typing import Final, Literal

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.calls import FREE
from timesink.measures.idle.causes import CAUSE_CODE, HOST_CAUSES, LAUNCHING_CAUSES, searching
from timesink.measures.idle.pieces import Pieces
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.replay import calibrated_pricers, deflated_pricers, pricers
from timesink.model.arrays import BoolArray, Int64Array, found_at
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import State, replace
from timesink.whatif import Case
from timesink.whatif.changes.host import RemoveSyncs

_OF_HOST: Final = np.array([CAUSE_CODE[cause] for cause in HOST_CAUSES])
_LAUNCHING: Final = np.array([CAUSE_CODE[cause] for cause in LAUNCHING_CAUSES])
_FRAMEWORK: Final = np.array([CAUSE_CODE[cause] for cause in ("dispatch", "optimizer", "launch_latency")])
_NEVER: Final = np.iinfo(np.int64).min


@remembered
def wait_causes(trace: Trace) -> Int64Array:
    """For each of `api_calls`, the `CAUSE_CODE` of the device's wait where the call drained it: memory that is freed, a
    copy of data through pageable memory (the call itself, or the wait right behind it), the search of an algorithm that
    waits for each of them, or else a wait."""
    calls = trace.get(API_CALLS)
    cause = np.full(calls.height, CAUSE_CODE["sync"], np.int64)
    for direction in ("h2d", "d2h"):
        copied = pageable_calls(trace, direction)
        cause[copied[copied + 1 < cause.size] + 1] = CAUSE_CODE["copy_staging"]
        if direction == "d2h":
            cause[copied] = CAUSE_CODE["copy_staging"]
    cause[matches(calls["name"], FREE).to_numpy()] = CAUSE_CODE["allocator"]
    cause[searching(trace)] = CAUSE_CODE["compile"]
    return cause


def pageable_calls(trace: Trace, direction: Literal["h2d", "d2h"]) -> Int64Array:
    """Calls (rows of `api_calls`) that copied more than a value from or to pageable memory."""
    host_side = "src_memory" if direction == "h2d" else "dst_memory"
    ops, call = trace.get(DEVICE_OPS), launch_links(trace).call
    data = (ops["copy_kind"] == direction) & (ops[host_side] == "pageable") & (ops["bytes"] >= fixes.STAGED_BYTES.whole)
    return np.unique(call[data.fill_null(False).to_numpy() & (call >= 0)])


def won_without_waits_ns(trace: Trace, rank: int) -> tuple[float, float]:
    """What a replay without the waits wins of the profiled step of a rank, for certain and at most; 0 where the trace
    cannot be replayed.

    It is replayed as profiled, and as without the profiler: calibrated to the step time where that is known, else with
    the expected cost of recording taken off, which is no certainty. A profiler slows the host, so that waits which cost
    time without it may cost none with it.
    """
    pricer = pricers(trace).get(rank)
    if pricer is None:
        return 0.0, 0.0
    step_ns = trace.unprofiled_step_ns
    pricers_to_try = [pricer]
    if step_ns is None:
        pricers_to_try.append(deflated_pricers(trace)[rank][Case.EXPECTED.value])
    elif step_ns < pricer.step_ns:
        pricers_to_try.append(calibrated_pricers(trace)[rank])
    change = RemoveSyncs()
    won = [
        0.0 if each.refused(change) else each.gain_ns(change) * pricer.step_ns / each.step_ns for each in pricers_to_try
    ]
    return max(won[:1] if step_ns is None else won), max(won)


def latest(times_ns: Int64Array, at_ns: Int64Array) -> Int64Array:
    """The last of the ascending times at or before each instant; the least integer where there is none."""
    return np.append(_NEVER, times_ns)[places(times_ns, at_ns, True)]


def behind(gaps: pl.DataFrame, drained_ns: Int64Array, ahead_ns: Int64Array) -> Intervals:
    """The host's part of the gaps of one device that follow a drain before the host is ahead again."""
    start, end = gaps["start_ns"].to_numpy(), gaps["end_ns"].to_numpy()
    until = np.clip(gaps["launch_start_ns"].fill_null(_NEVER).to_numpy(), start, end)
    late = (latest(drained_ns, start) > latest(ahead_ns, start)) & (until > start)
    return Intervals.union_of(start[late], until[late])


class Charges(State, eq=False):
    """Charges the pieces of one device, which come a slice at a time, in order.

    `prepared`: when its host prepared input. `ahead_ns`: when work began whose launch was far ahead, ascending.
    `cause`: `wait_causes`. `call_start_ns`: of each of `api_calls`. `won_ns`: the least that a wait cost, its own
    idle time included.
    The rest is of the last wait: its call, the timeline of it, when it drained the device; and how much of what the
    host lost by waits is not charged yet.
    """

    prepared: Intervals
    ahead_ns: Int64Array
    cause: Int64Array
    call_start_ns: Int64Array
    won_ns: int
    call: int = -1
    timeline: int = -1
    drained_ns: int = _NEVER
    left_ns: int = 0

    def charge(self, pieces: Pieces) -> Pieces:
        """The pieces with their final causes, some of them in two; `sync_row` is kept while the host is not ahead.

        A call that waited 50 us until the device ran dry, before 30 us of dispatch, 80 us of an allocation and 40 us of
        dispatch, is charged with the 30 us and with the first 20 of the 40.
        """
        pieces = self._of_input(pieces)
        begins = np.flatnonzero((pieces.sync_row >= 0) & (np.diff(pieces.sync_row, prepend=-1) != 0))
        called = pieces.sync_row[begins]
        call, timeline = np.append(self.call, called), np.append(self.timeline, pieces.timeline[begins])
        drained = np.append(self.drained_ns, pieces.start_ns[begins])
        number = np.searchsorted(begins, np.arange(pieces.gap.size), side="right")
        behind = (drained[number] > latest(self.ahead_ns, pieces.start_ns)) & (timeline[number] == pieces.timeline)
        own = (pieces.cause == CAUSE_CODE["sync"]) & (pieces.call_row == call[number])
        length = pieces.end_ns - pieces.start_ns
        short = np.isin(pieces.cause, _FRAMEWORK) | (length < fixes.CAPTURED_WITHIN_US.ns)
        restart = behind & short & np.isin(pieces.cause, _LAUNCHING)
        own_ns = np.bincount(number[own], length[own], begins.size + 1)[1:]
        lost_ns = np.zeros(length.size, np.int64)
        lost_ns[begins] = np.maximum(pieces.start_ns[begins] - self.call_start_ns[called], self.won_ns - own_ns)
        charged = self._spend(lost_ns, np.where(restart, length, 0))
        self.call, self.timeline, self.drained_ns = int(call[-1]), int(timeline[-1]), int(drained[-1])
        late = behind & (np.isin(pieces.cause, _OF_HOST) | restart) & (pieces.cause != CAUSE_CODE["os_call"])
        pieces = replace(
            pieces,
            sync_row=np.where(late, call[number], -1),
            cause=np.where(own, found_at(self.cause, pieces.call_row), pieces.cause),
        )
        row, pieces = pieces.cut_at((pieces.start_ns + charged)[(charged > 0) & (charged < length)])
        return self._blamed(pieces, (charged[row] > 0) & (np.diff(row, prepend=-1) > 0))

    def _spend(self, lost_ns: Int64Array, asked_ns: Int64Array) -> Int64Array:
        """How much of what each piece asks for is left of what the host lost by all waits so far; the rest is dropped.

        Without any of the waits the host would be earlier by all that it lost by them. Waits that lose 50 and 5 before
        the first and third of four pieces that ask for 30, 10, 40 and 20 grant 30, 10, 15 and 0.
        """
        free = self.left_ns + np.cumsum(lost_ns - asked_ns)
        left = free - np.minimum(np.minimum.accumulate(free), 0)
        granted: Int64Array = np.append(self.left_ns, left[:-1]) + lost_ns - left
        self.left_ns = int(left[-1])
        return granted

    def _blamed(self, pieces: Pieces, waits: BoolArray) -> Pieces:
        """Some of the pieces as those of the wait before them."""
        of_wait = {
            "cause": found_at(self.cause, pieces.sync_row),
            "call_row": pieces.sync_row,
            "asked_ns": found_at(self.call_start_ns, pieces.sync_row),
        }
        return replace(pieces, **{name: np.where(waits, new, getattr(pieces, name)) for name, new in of_wait.items()})

    def _of_input(self, pieces: Pieces) -> Pieces:
        """The pieces, those of the host given to the preparation of input as far as they lie in it."""
        if not len(self.prepared):
            return pieces
        edges = np.unique(np.concatenate((self.prepared.start_ns, self.prepared.end_ns)))
        pieces = pieces.cut_at(edges)[1]
        loads = np.isin(pieces.cause, _OF_HOST) & (self.prepared.covered_ns(pieces.start_ns, pieces.end_ns) > 0)
        return replace(pieces, cause=np.where(loads, CAUSE_CODE["loader"], pieces.cause))
