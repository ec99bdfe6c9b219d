"""When a launching thread waits for something to do, or may: a server for its next request."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge import frames
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.calls import WAITS
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.known import trains
from timesink.measures.timeline.synchronisations import blocking_calls
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, FRAMES, HOST_STACKS, OS_CALLS
from timesink.model.trace import Trace, remembered

_THREAD: Final = ("rank", "process", "thread")
_SHOW_THREADS: Final = (FRAMES, OS_CALLS, HOST_STACKS)


@remembered
def waits_for_work(trace: Trace) -> dict[int, Intervals]:
    """Per rank, when a thread that launches was in a frame or call that waits for somebody else, in a program that only
    infers. Where nothing of what its threads do was recorded, also when it may have waited (`_between_passes`)."""
    found = _between_passes(trace)
    for table, pattern in ((FRAMES, frames.WAITS), (OS_CALLS, WAITS)):
        if (rows := trace.get(table)).height and (waits := rows.filter(matches(rows["name"], pattern))).height:
            calls = trace.get(API_CALLS)
            launching = calls.select(_THREAD).filter(pl.Series(launch_links(trace).launching(calls.height)))
            own = waits.join(launching.unique(), on=_THREAD, how="semi")
            for (rank,), of_rank in own.partition_by("rank", as_dict=True).items():
                waited = Intervals.union_of(*of_rank.select("start_ns", "end_ns"))
                found[rank] = waited | found.get(rank, Intervals.none())
    return {} if not found or trains(trace) else found


def _between_passes(trace: Trace) -> dict[int, Intervals]:
    """Per rank where nothing tells whether threads run: from the end of a blocking call, which gave an answer, to the
    thread's next call, where that is long, and most of a thread's time."""
    found: dict[int, Intervals] = {}
    calls = trace.get(API_CALLS)
    if any(trace.get(table).height for table in _SHOW_THREADS):
        return found
    answers, launches = np.zeros(calls.height, bool), launch_links(trace).launching(calls.height)
    answers[blocking_calls(trace)["call"].to_numpy()] = True
    start, end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    for (rank, _, _), first, last in thread_slices(calls):
        rows = first + np.flatnonzero((answers | launches)[first:last])
        long = answers[rows[:-1]] & (start[rows[1:]] - end[rows[:-1]] > fixes.CAPTURED_WITHIN_US.ns)
        waited = Intervals.union_of(end[rows[:-1]][long], start[rows[1:]][long])
        if rows.size and 2 * waited.total_ns > end[rows[-1]] - start[rows[0]]:
            found[rank] = waited | found.get(rank, Intervals.none())
    return found
