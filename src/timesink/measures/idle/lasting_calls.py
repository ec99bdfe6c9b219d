"""How long calls last that a program makes one after another: what it does between two of them is theirs.

Calls into the operating system: formatting text, serialising and compressing happen between calls that write. Time
between two such calls of a thread is theirs, where it is short and the thread did nothing else that was recorded. A
thread that asks again and again whether work is done does nothing else between its questions.
"""

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.calls import POLLS, READS_OR_WRITES, SLEEPS, WAITS_FOR_THREAD
from timesink.measures.timeline.attribution import host_nesting, range_nesting
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.names import matches
from timesink.model.nesting import Nesting, thread_slices
from timesink.model.tables import API_CALLS, HOST_OPS, OS_CALLS
from timesink.model.trace import Trace, remembered
from timesink.records import Record


class OsTime(Record, eq=False):
    """For each row of `os_calls`: `until_ns`, its end, or the start of the thread's next call that it belongs to;
    `own`, whether it is a call of the program's, and no part of a CUDA call or of an operator; `for_thread`, whether
    it waits for another thread."""

    until_ns: Int64Array
    own: BoolArray
    for_thread: BoolArray


@remembered
def os_time(trace: Trace) -> OsTime:
    """Take the calls into the operating system that are no part of something else that was recorded.

    Calls at 0, 5 and 9 ms, of 1 ms each, and a CUDA call at 7 ms; only the first two are of one kind of work::

        call    start  end  until
        write   0      1    5
        write   5      6    6, a CUDA call lies between
        write   9      10   10, the last
    """
    calls = trace.get(OS_CALLS)
    if not calls.height:
        nothing, never = np.empty(0, np.int64), np.empty(0, np.bool_)
        return OsTime(nothing, never, never)
    within = Nesting.of(trace.get(API_CALLS)).innermost_of(calls) >= 0
    within |= host_nesting(trace).innermost_of(calls) >= 0
    moves = matches(calls["name"], READS_OR_WRITES).to_numpy() & ~within
    for_thread = matches(calls["name"], WAITS_FOR_THREAD).to_numpy()
    own = moves | ((matches(calls["name"], SLEEPS).to_numpy() | for_thread) & ~within)
    start, until = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy().copy()
    place = range_nesting(trace).innermost_of(calls)
    other = _other_starts(trace)
    for key, first, last in thread_slices(calls):
        rows = first + np.flatnonzero(moves[first:last])
        before, after = rows[:-1], rows[1:]
        starts = other.get(key, np.empty(0, np.int64))
        quiet = np.searchsorted(starts, until[before]) == np.searchsorted(starts, start[after])
        near = start[after] - until[before] <= assumed.WRITES_APART_US.ns
        joined = quiet & near & (place[before] == place[after])
        until[before[joined]] = np.maximum(start[after[joined]], until[before[joined]])
    return OsTime(until, own, for_thread)


def _other_starts(trace: Trace) -> dict[tuple[int, int, int], Int64Array]:
    """When each thread began a CUDA call or an operator, in order."""
    columns = ["rank", "process", "thread", "start_ns"]
    both = pl.concat(trace.get(table).select(columns) for table in (API_CALLS, HOST_OPS)).sort(columns)
    starts = both["start_ns"].to_numpy()
    return {key: starts[first:last] for key, first, last in thread_slices(both)}


@remembered
def polling_until(trace: Trace) -> Int64Array:
    """When each of `api_calls` is over: its end, and of one that asks whether work is done the start of its thread's
    next call, where that asks again soon: the loop around them does nothing else."""
    calls = trace.get(API_CALLS)
    polls, start, end = (
        matches(calls["name"], POLLS).to_numpy(),
        calls["start_ns"].to_numpy(),
        calls["end_ns"].to_numpy(),
    )
    if not polls.any():
        return end
    until = end.copy()
    for _, first, last in thread_slices(calls):
        again = np.flatnonzero(polls[first : last - 1] & polls[first + 1 : last]) + first
        soon = again[
            (start[again + 1] - end[again] > 0) & (start[again + 1] - end[again] <= assumed.DISPATCH_MOST_US.ns)
        ]
        until[soon] = start[soon + 1]
    return until
