"""What waited for what device work: blocking calls of the host, and streams that wait for events of other streams.

Few traces record either in full. What is recorded is taken; the rest is inferred from what CUDA defines and from the
order of launches, and dropped where the observed times refute it. Inferred pairs are marked as such.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes, replay
from timesink.knowledge.calls import SYNCHRONISES, CallKind
from timesink.knowledge.op_class import COMMUNICATION, COPY
from timesink.model.arrays import BoolArray, Int64Array, IntArray
from timesink.model.nesting import numbered_rows
from timesink.model.tables import DEVICE_OPS, EVENT_WAITS, SYNCS
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.whatif.device import Blocks, Ops, launched_ns, rows_by_stream
from timesink.whatif.host import Calls

_UNNAMED, _NO_WORK = -1, -2

Pairs = tuple[IntArray, IntArray, BoolArray]
"""Call, block, and whether the pair is inferred; one row per pair."""


class LaunchOrder(Record, eq=False):
    """Launched blocks in order of launch (block, time and call of each), and per stream when which block came on it."""

    block: IntArray
    at_ns: Int64Array
    call: IntArray
    on_stream: dict[int, tuple[Int64Array, IntArray]]

    @classmethod
    def of(cls, calls: Calls, ops: Ops, blocks: Blocks) -> LaunchOrder:
        """Sort what was launched; an op without a known launch counts on its stream from its start."""
        launched = np.flatnonzero(blocks.call >= 0)
        launched = launched.astype(np.int32)
        at = calls.start_ns[blocks.call[launched]] if launched.size else np.empty(0, np.int64)
        if not _ascends(at):
            order = np.argsort(at, kind="stable")
            launched, at = launched[order], at[order]
        own_time, on_stream = launched_ns(ops.call, ops.start_ns, calls), {}
        for number, rows in rows_by_stream(ops):
            on_it, block = own_time[rows], ops.block[rows]
            if not _ascends(on_it):  # ops are in order of start, which decides where times are equal
                order = np.argsort(on_it, kind="stable")
                on_it, block = on_it[order], block[order]
            on_stream[number] = on_it, block
        return cls(launched, at, blocks.call[launched], on_stream)

    def last_on(self, stream: int, before_ns: Int64Array) -> IntArray:
        """The last block launched on a stream before each time, -1 where none was."""
        if stream not in self.on_stream:
            return np.full(before_ns.size, -1, np.int64)
        at, block = self.on_stream[stream]
        place = np.searchsorted(at, before_ns, side="left") - 1
        return np.where(place >= 0, block[np.maximum(place, 0)], -1)

    def next_on(self, stream: int, after_ns: int) -> int:
        """The first block launched on a stream at a time or later, -1 where none was."""
        if stream not in self.on_stream:
            return -1
        at, block = self.on_stream[stream]
        place = int(np.searchsorted(at, after_ns, side="left"))
        return int(block[place]) if place < block.size else -1


def _ascends(times_ns: Int64Array) -> bool:
    return not (times_ns[1:] < times_ns[:-1]).any()


def _stream_numbers(ops: Ops) -> Callable[[int, int, int], int]:
    """A function of device, stream and default: the stream's number, by its id alone where the device is another."""
    streams = list(enumerate(ops.streams))[::-1]  # of several contexts, the first counts
    by_device = {(device, stream): n for n, (device, _, stream) in streams}
    by_id = {stream: n for n, (_, _, stream) in streams}
    return lambda device, stream, default: by_device.get((device, stream), by_id.get(stream, default))


class Releases(Record, eq=False):
    """Pairs (call, block): the call returned no earlier than the block's end. `inferred` says the stream was deduced.

    `blocking` has one flag per call of the rank: whether it can wait for the device, with or without a release found.
    """

    call: IntArray
    block: IntArray
    inferred: BoolArray
    blocking: BoolArray


def find_releases(trace: Trace, rank: int, calls: Calls, ops: Ops, blocks: Blocks, launches: LaunchOrder) -> Releases:
    """Releases of device, stream and event synchronisations, of blocking copies and of calls that free memory.

    Which calls wait, and for what, is as CUDA documents it (Runtime API: synchronization behavior, stream management).
    Querying an event does not wait.
    """
    kind = calls.kind
    call, block, inferred = _concat(
        [
            _device_syncs(np.flatnonzero(kind == CallKind.DEVICE_SYNC), calls, blocks, launches),
            _freeing(np.flatnonzero(kind == CallKind.FREE), calls, blocks, launches),
            _stream_syncs(trace, rank, calls, ops, blocks, launches),
            _nearest(np.flatnonzero(kind == CallKind.EVENT_SYNC), calls, blocks, launches),
            _blocking_copies(trace, calls, ops, blocks),
        ]
    )
    blocking = np.isin(kind, SYNCHRONISES)
    blocking[call] = True
    return Releases(call, block, inferred, blocking)


def _pairs(call: IntArray, block: IntArray, inferred: BoolArray | bool = False) -> Pairs:
    """The pairs whose block is known (not -1)."""
    known = block >= 0
    return call[known], block[known], np.broadcast_to(np.asarray(inferred, bool), call.shape)[known]


def _concat(parts: list[Pairs]) -> Pairs:
    call, block, inferred = zip(*parts, strict=True)
    return np.concatenate(call), np.concatenate(block), np.concatenate(inferred)


def _device_syncs(chosen: IntArray, calls: Calls, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """The last block launched on each stream before the call, as the call waits for all streams.

    Streams with no launch since the synchronisation before it need no edge: they were waited for then.
    """
    start = calls.start_ns[chosen]
    order = np.argsort(start, kind="stable")
    chosen, start = chosen[order], start[order]
    since = np.concatenate(([np.iinfo(np.int64).min], start[:-1]))
    parts = [_pairs(np.empty(0, np.int64), np.empty(0, np.int64))]
    for at, block in launches.on_stream.values():
        place = np.searchsorted(at, start, side="left") - 1
        fresh = (place >= 0) & (at[np.maximum(place, 0)] >= since)
        fresh &= blocks.end_ns[block[np.maximum(place, 0)]] <= calls.end_ns[chosen] + replay.CLOCK_SLACK_US.ns
        parts.append(_pairs(chosen[fresh], block[place[fresh]]))
    return _concat(parts)


def _freeing(chosen: IntArray, calls: Calls, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """cudaFree and its like drain the device implicitly: only where the call is seen to outlast running work."""
    call, block, inferred = _nearest(chosen, calls, blocks, launches)
    waited = blocks.end_ns[block] > calls.start_ns[call]
    return call[waited], block[waited], inferred[waited]


def _stream_syncs(trace: Trace, rank: int, calls: Calls, ops: Ops, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """The last block launched on the stream that `syncs` names, else on the thread's latest, else the nearest.

    A stream is believed where its block ended before the call returned and, if the call lasted long, not much before.
    """
    chosen = np.flatnonzero(calls.kind == CallKind.STREAM_SYNC)
    stream = _recorded_streams(trace, rank, calls, ops)[chosen]
    named = stream != _UNNAMED
    stream = np.where(named, stream, _stream_used_last(chosen, calls, ops, launches, blocks))
    block = np.full(chosen.size, -1, np.int64)
    for number in np.unique(stream[stream >= 0]):
        on_it = stream == number
        block[on_it] = launches.last_on(int(number), calls.start_ns[chosen[on_it]])
    end = np.where(block >= 0, blocks.end_ns[np.maximum(block, 0)], np.iinfo(np.int64).max) if len(blocks) else block
    ended = (block >= 0) & (end <= calls.end_ns[chosen] + replay.CLOCK_SLACK_US.ns)
    long_wait = calls.lengths_ns[chosen] > replay.RETURN_WITHIN_US.ns
    explained = ended & (~long_wait | (calls.end_ns[chosen] - end <= replay.RETURN_WITHIN_US.ns))
    refuted = ~explained & (block >= 0) & ~ended
    unexplained = named & ended & ~explained
    return _concat(
        [
            _pairs(chosen[explained], block[explained], ~named[explained]),
            _nearest(chosen[~explained & (~named | refuted)], calls, blocks, launches),
            _pairs(chosen[unexplained], block[unexplained]),
        ]
    )


def _recorded_streams(trace: Trace, rank: int, calls: Calls, ops: Ops) -> IntArray:
    """Per call, the number of the stream that its row of `syncs` names.

    -1 (`_UNNAMED`) for no row, -2 (`_NO_WORK`) for a stream without work.
    """
    answer = np.full(len(calls), _UNNAMED, np.int64)
    rows = trace.get(SYNCS).filter(
        (pl.col("rank") == rank)
        & (pl.col("kind") == "stream")
        & (pl.col("stream") >= 0)
        & pl.col("correlation").is_not_null()
    )
    waits = np.flatnonzero((calls.kind == CallKind.STREAM_SYNC) & (calls.correlation >= 0))
    if not rows.height or not waits.size:
        return answer
    waits = waits[np.argsort(calls.correlation[waits], kind="stable")]
    ids, wanted = calls.correlation[waits], rows["correlation"].to_numpy()
    place = np.minimum(np.searchsorted(ids, wanted, side="right") - 1, ids.size - 1)
    matched = (place >= 0) & (ids[np.maximum(place, 0)] == wanted)
    number, streams = _stream_numbers(ops), rows.select("device", "stream")
    of_row, first = numbered_rows(streams)
    of_pair = np.array([number(device, stream, _NO_WORK) for device, stream in streams[first].iter_rows()], np.int64)
    answer[waits[place[matched]]] = of_pair[of_row[matched]]
    return answer


def _stream_used_last(chosen: IntArray, calls: Calls, ops: Ops, launches: LaunchOrder, blocks: Blocks) -> IntArray:
    """The stream of the last block that the calling thread launched before the call, or -1."""
    thread = calls.thread[launches.call]
    order = np.lexsort((launches.at_ns, thread))
    ordered_thread, ordered_at, block = thread[order], launches.at_ns[order], launches.block[order]
    answer = np.full(chosen.size, -1, np.int64)
    for number in np.unique(calls.thread[chosen]):
        low, high = np.searchsorted(ordered_thread, [number, number + 1])
        if high > low:
            own = calls.thread[chosen] == number
            place = low + np.searchsorted(ordered_at[low:high], calls.start_ns[chosen[own]], side="left") - 1
            answer[own] = np.where(place >= low, ops.stream[blocks.op[block[np.maximum(place, 0)]]], -1)
    return answer


def _nearest(chosen: IntArray, calls: Calls, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """The block, launched before the call, whose end came last before the return: only if the return followed soon."""
    if not chosen.size or not launches.block.size:
        return _pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    end = blocks.end_ns[launches.block]
    order = np.argsort(end, kind="stable")
    place = np.searchsorted(end[order], calls.end_ns[chosen], side="right") - 1
    candidate = order[np.maximum(place, 0)]
    near = (place >= 0) & (calls.end_ns[chosen] - end[candidate] <= replay.RETURN_WITHIN_US.ns)
    near &= (launches.at_ns[candidate] < calls.start_ns[chosen]) & (end[candidate] > calls.start_ns[chosen])
    return _pairs(chosen[near], launches.block[candidate[near]], True)


def _blocking_copies(trace: Trace, calls: Calls, ops: Ops, blocks: Blocks) -> Pairs:
    """Copies whose call waits for the copy: synchronous ones, device to pageable, long ones pageable to device."""
    copies = np.flatnonzero((blocks.call >= 0) & (ops.op_class[blocks.op] == COPY))
    call = blocks.call[copies]
    frame = trace.get(DEVICE_OPS)[ops.row[blocks.op[copies]]].select("copy_kind", "src_memory", "dst_memory", "bytes")
    pageable_out = ((frame["copy_kind"] == "d2h") & (frame["dst_memory"] == "pageable")).fill_null(False).to_numpy()
    beyond = frame["bytes"] > fixes.STAGED_BYTES.whole
    pageable_in = (frame["copy_kind"] == "h2d") & (frame["src_memory"] == "pageable") & beyond
    waits = (calls.kind[call] == CallKind.COPY_BLOCKING) | pageable_out | pageable_in.fill_null(False).to_numpy()
    waits &= blocks.end_ns[copies] <= calls.end_ns[call] + replay.CLOCK_SLACK_US.ns
    return _pairs(call[waits], copies[waits])


class EventEdges(Record, eq=False):
    """Pairs of blocks (source ends before sink starts), and whether each was inferred rather than recorded."""

    source: Int64Array
    sink: Int64Array
    inferred: BoolArray


def find_event_edges(
    trace: Trace, rank: int, calls: Calls, ops: Ops, blocks: Blocks, launches: LaunchOrder
) -> EventEdges:
    """Recorded edges where the trace has both ends of them; PyTorch's known pattern for waits that name no event."""
    source, sink, used = _recorded(trace, rank, calls, ops, launches)
    waits = np.flatnonzero(calls.kind == CallKind.STREAM_WAIT)
    unnamed = waits[~np.isin(calls.correlation[waits], used)]
    guess_source, guess_sink = _by_pattern(unnamed, calls, ops, blocks, launches)
    inferred = np.repeat([False, True], [source.size, guess_source.size])
    source, sink = np.concatenate((source, guess_source)), np.concatenate((sink, guess_sink))
    possible = (blocks.end_ns[source] <= blocks.start_ns[sink] + replay.DEVICE_SLACK_US.ns) & (source != sink)
    return EventEdges(source[possible], sink[possible], inferred[possible])


def _recorded(
    trace: Trace, rank: int, calls: Calls, ops: Ops, launches: LaunchOrder
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Source and sink of each usable row of `event_waits`; correlations of the waits that were usable.

    By CUDA's definition of an event: the source is the last block launched on the recorded stream before the record,
    the sink the next one launched on the waiting stream after the wait. A wait on a record that came after it is
    discarded: kineto before its change 1339 wrote such pairs.
    """
    rows = trace.get(EVENT_WAITS).filter(
        (pl.col("rank") == rank) & (pl.col("waited_stream") >= 0) & (pl.col("record_correlation") >= 0)
    )
    number = _stream_numbers(ops)
    records = np.flatnonzero(calls.kind == CallKind.EVENT_RECORD)
    recorded_at = dict(zip(calls.correlation[records].tolist(), calls.start_ns[records].tolist(), strict=True))
    edges: list[tuple[int, int, int]] = []
    wanted = rows.select("device", "stream", "waited_stream", "record_correlation", "correlation", "start_ns")
    for device, stream, waited, record, correlation, start in wanted.iter_rows():
        at = recorded_at.get(record)
        if at is None or at > start:
            continue
        source = int(launches.last_on(number(device, waited, -1), np.array([at]))[0])
        sink = launches.next_on(number(device, stream, -1), start)
        if source >= 0 and sink >= 0:
            edges.append((source, sink, -1 if correlation is None else correlation))
    columns = np.array(edges, np.int64).reshape(-1, 3).T  # the three parts of an edge
    return columns[0], columns[1], columns[2]


def _by_pattern(
    waits: Int64Array, calls: Calls, ops: Ops, blocks: Blocks, launches: LaunchOrder
) -> tuple[Int64Array, Int64Array]:
    """A wait call orders the thread's next launch after earlier work of another stream.

    PyTorch lets a collective wait for the computation before it, and what first uses its result wait for the collective
    (ProcessGroupNCCL). So before a collective the source is the last computation, before a computation the last
    collective; on other streams, the launch just before on another stream. The caller drops what the observed times
    refute. Launches of computation on stream 7 and of collectives on 20, and a wait after each but the last:

        launch  k0 on 7   c1 on 20   k2 on 7        c1 waits for k0, k2 for c1
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


def _next_by_thread(waits: Int64Array, calls: Calls, launches: LaunchOrder) -> Int64Array:
    """Place, in launch order, of the calling thread's next launch after each wait, or -1."""
    thread = calls.thread[launches.call]
    answer = np.full(waits.size, -1, np.int64)
    for number in np.unique(calls.thread[waits]):
        own = np.flatnonzero(thread == number)
        if own.size:
            asked = np.flatnonzero(calls.thread[waits] == number)
            place = np.searchsorted(launches.at_ns[own], calls.start_ns[waits[asked]], side="left")
            answer[asked] = np.where(place < own.size, own[np.minimum(place, own.size - 1)], -1)
    return answer
