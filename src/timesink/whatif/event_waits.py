"""Orders between streams (R10): which op had to end before which op on another stream could start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.calls import CallKind
from timesink.knowledge.kernels import COMMUNICATION
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.tables import EVENT_WAITS
from timesink.model.trace import Trace
from timesink.whatif.device import Blocks, Ops
from timesink.whatif.host import Calls
from timesink.whatif.releases import Launches

# A source that ended this long after its sink started cannot have been waited for: the inference was wrong.
_CLOCK_SLACK_NS: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class EventEdges:
    """Pairs of blocks (source ends before sink starts), and whether each was recorded or inferred."""

    source: Int64Array
    sink: Int64Array
    inferred: BoolArray


def find_event_edges(trace: Trace, rank: int, calls: Calls, ops: Ops, blocks: Blocks) -> EventEdges:
    """Recorded edges where the trace has both ends of them; PyTorch's known pattern for waits that name no event."""
    launches = Launches.of(calls, ops, blocks)
    source, sink, known = _recorded(trace, rank, calls, ops, launches)
    waits = np.flatnonzero(calls.kind == CallKind.STREAM_WAIT)
    unnamed = waits[~np.isin(calls.correlation[waits], known)]
    guess_source, guess_sink = _by_pattern(unnamed, calls, ops, blocks, launches)
    inferred = np.repeat([False, True], [source.size, guess_source.size])
    source, sink = np.concatenate((source, guess_source)), np.concatenate((sink, guess_sink))
    possible = (blocks.end_ns[source] <= blocks.start_ns[sink] + _CLOCK_SLACK_NS) & (source != sink)
    return EventEdges(source[possible], sink[possible], inferred[possible])


def _recorded(
    trace: Trace, rank: int, calls: Calls, ops: Ops, launches: Launches
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Source and sink of each usable row of `event_waits`; correlations of the waits that were usable.

    A wait on a record that came after it is discarded: kineto before its change 1339 wrote such pairs.
    """
    empty = np.empty(0, np.int64)
    rows = trace.get(EVENT_WAITS).filter(
        (pl.col("rank") == rank) & (pl.col("waited_stream") >= 0) & (pl.col("record_correlation") >= 0)
    )
    if not rows.height or not len(calls):
        return empty, empty, empty
    number = {(device, stream): n for n, (device, _, stream) in reversed(list(enumerate(ops.streams)))}
    any_device = {stream: n for n, (_, _, stream) in reversed(list(enumerate(ops.streams)))}
    records = np.flatnonzero(calls.kind == CallKind.EVENT_RECORD)
    recorded_at = dict(zip(calls.correlation[records].tolist(), calls.start_ns[records].tolist(), strict=True))
    found: list[tuple[int, int, int]] = []
    wanted = rows.select("device", "stream", "waited_stream", "record_correlation", "correlation", "start_ns")
    for device, stream, waited, record, correlation, start in wanted.iter_rows():
        at = recorded_at.get(record)
        if at is None or at > start:
            continue
        source = launches.last_on(number.get((device, waited), any_device.get(waited, -1)), np.array([at]))[0]
        sink = _next_on(launches, number.get((device, stream), any_device.get(stream, -1)), start)
        if source >= 0 and sink >= 0:
            found.append((int(source), sink, -1 if correlation is None else correlation))
    if not found:
        return empty, empty, empty
    columns = np.array(found, np.int64).T
    return columns[0], columns[1], columns[2]


def _next_on(launches: Launches, stream: int, after_ns: int) -> int:
    if stream not in launches.on_stream:
        return -1
    at, block = launches.on_stream[stream]
    place = int(np.searchsorted(at, after_ns, side="left"))
    return int(block[place]) if place < block.size else -1


def _by_pattern(
    waits: Int64Array, calls: Calls, ops: Ops, blocks: Blocks, launches: Launches
) -> tuple[Int64Array, Int64Array]:
    """A wait call orders the thread's next launch behind earlier work of another stream.

    Before a collective that is the last computation; before a computation, the last collective; on other streams, the
    launch just before on another stream. The caller drops what the observed times refute.
    """
    empty = np.empty(0, np.int64)
    if not waits.size or not launches.block.size:
        return empty, empty
    talks = ops.op_class[blocks.op[launches.block]] == COMMUNICATION
    places = np.arange(launches.block.size)
    last_talk = np.maximum.accumulate(np.where(talks, places, -1))
    last_work = np.maximum.accumulate(np.where(talks, -1, places))
    stream = ops.stream[blocks.op[launches.block]]
    sink = _next_by_thread(waits, calls, launches)
    waits, sink = waits[sink >= 0], sink[sink >= 0]
    before = np.searchsorted(launches.at_ns, calls.start_ns[waits], side="left") - 1
    waits, sink, before = waits[before >= 0], sink[before >= 0], before[before >= 0]
    source = np.where(talks[sink], last_work[before], last_talk[before])
    source = np.where((source < 0) & (stream[before] != stream[sink]), before, source)
    usable = (source >= 0) & (stream[np.maximum(source, 0)] != stream[sink])
    return launches.block[source[usable]], launches.block[sink[usable]]


def _next_by_thread(waits: Int64Array, calls: Calls, launches: Launches) -> Int64Array:
    """Place, in launch order, of the calling thread's next launch after each wait, or -1."""
    thread = calls.thread[launches.call]
    answer = np.full(waits.size, -1, np.int64)
    for number in np.unique(calls.thread[waits]):
        mine = np.flatnonzero(thread == number)
        asked = np.flatnonzero(calls.thread[waits] == number)
        place = np.searchsorted(launches.at_ns[mine], calls.start_ns[waits[asked]], side="left")
        answer[asked] = np.where(place < mine.size, mine[np.minimum(place, mine.size - 1)], -1) if mine.size else -1
    return answer
