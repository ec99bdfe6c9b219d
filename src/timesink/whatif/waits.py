"""What each blocking call waited for (R3): the device work whose end let it go on.

Orders between streams (R10): which op had to end before which op on another stream could start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.calls import CallKind
from timesink.knowledge.kernels import COMMUNICATION, COPY
from timesink.model.arrays import BoolArray, Int64Array, IntArray
from timesink.model.tables import DEVICE_OPS, EVENT_WAITS, SYNCS
from timesink.model.trace import Trace
from timesink.whatif.device import Blocks, Ops
from timesink.whatif.host import Calls

# Device and host stamps of one instant differ by this much at most; a release may seem to follow the return it caused.
_CLOCK_SLACK_NS: Final = 20_000
# A call returns this soon after its release. An inferred release further back is not taken for the cause.
_RETURN_WITHIN_NS: Final = 100_000
# Below this a pageable copy is staged and the call returns at once (CUDA: API synchronization behavior).
_STAGED_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Releases:
    """Pairs (call, block): the call returned no earlier than the block's end. `inferred` says the stream was deduced.

    `blocking` marks every call that can wait for the device, whether or not a release was found for it.
    """

    call: IntArray
    block: IntArray
    inferred: BoolArray
    blocking: BoolArray


def find_releases(trace: Trace, rank: int, calls: Calls, ops: Ops, blocks: Blocks) -> Releases:
    """Releases of device, stream and event synchronisations, of blocking copies and of calls that free memory."""
    launches = LaunchOrder.of(calls, ops, blocks)
    kind = calls.kind
    parts = [
        _device_syncs(np.flatnonzero(kind == CallKind.DEVICE_SYNC), calls, blocks, launches),
        _freeing(np.flatnonzero(kind == CallKind.FREE), calls, blocks, launches),
        _stream_syncs(trace, rank, calls, ops, blocks, launches),
        _nearest(np.flatnonzero(kind == CallKind.EVENT_SYNC), calls, blocks, launches),
    ]
    copies = _blocking_copies(trace, calls, ops, blocks)
    call = np.concatenate([*(p[0] for p in parts), copies[0]])
    block = np.concatenate([*(p[1] for p in parts), copies[1]])
    inferred = np.concatenate([*(p[2] for p in parts), np.zeros(copies[0].size, bool)])
    blocking = np.isin(kind, [CallKind.DEVICE_SYNC, CallKind.STREAM_SYNC, CallKind.EVENT_SYNC])
    blocking[call] = True
    return Releases(call, block, inferred, blocking)


@dataclass(frozen=True, slots=True, eq=False)
class LaunchOrder:
    """Launched blocks in order of launch, and per stream the blocks on it in that order."""

    block: IntArray
    at_ns: Int64Array
    call: IntArray
    on_stream: dict[int, tuple[Int64Array, IntArray]]

    @classmethod
    def of(cls, calls: Calls, ops: Ops, blocks: Blocks) -> LaunchOrder:
        """Sort what was launched."""
        launched = np.flatnonzero(blocks.call >= 0)
        at = calls.start_ns[blocks.call[launched]] if launched.size else np.empty(0, np.int64)
        order = np.argsort(at, kind="stable")
        own_time = (
            np.where(ops.call >= 0, calls.start_ns[np.maximum(ops.call, 0)], ops.start_ns)
            if len(calls)
            else ops.start_ns
        )
        by_stream = np.lexsort((ops.start_ns, own_time, ops.stream))
        cuts = np.flatnonzero(np.diff(ops.stream[by_stream])) + 1
        on_stream = {
            int(ops.stream[part[0]]): (own_time[part], ops.block[part])
            for part in np.split(by_stream, cuts)
            if part.size
        }
        return cls(launched[order], at[order], blocks.call[launched][order], on_stream)

    def last_on(self, stream: int, before_ns: Int64Array) -> IntArray:
        """The last block launched on a stream before each time, -1 where none was."""
        if stream not in self.on_stream:
            return np.full(before_ns.size, -1, np.int64)
        at, block = self.on_stream[stream]
        place = np.searchsorted(at, before_ns, side="left") - 1
        return np.where(place >= 0, block[np.maximum(place, 0)], -1)


_UNNAMED, _NO_WORK = -1, -2
Pairs = tuple[IntArray, IntArray, BoolArray]


def _pairs(call: IntArray, block: IntArray, inferred: BoolArray | bool = False) -> Pairs:
    found = block >= 0
    flags = np.broadcast_to(np.asarray(inferred, bool), call.shape)
    return call[found], block[found], flags[found]


def _device_syncs(chosen: IntArray, calls: Calls, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """The last block launched on each stream before the call. Streams idle since the call before need no edge."""
    start = calls.start_ns[chosen]
    order = np.argsort(start, kind="stable")
    chosen, start = chosen[order], start[order]
    since = np.concatenate(([np.iinfo(np.int64).min], start[:-1]))
    parts: list[Pairs] = []
    for at, block in launches.on_stream.values():
        place = np.searchsorted(at, start, side="left") - 1
        fresh = (place >= 0) & (at[np.maximum(place, 0)] >= since)
        fresh &= blocks.end_ns[block[np.maximum(place, 0)]] <= calls.end_ns[chosen] + _CLOCK_SLACK_NS
        parts.append(_pairs(chosen[fresh], block[place[fresh]]))
    if not parts:
        return _pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))  # type: ignore[return-value]


def _freeing(chosen: IntArray, calls: Calls, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """cudaFree and its like drain the device: taken so only where the call is seen to outlast running work (R4)."""
    call, block, inferred = _nearest(chosen, calls, blocks, launches)
    waited = blocks.end_ns[block] > calls.start_ns[call]
    return call[waited], block[waited], inferred[waited]


def _stream_syncs(trace: Trace, rank: int, calls: Calls, ops: Ops, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """The last block launched on the stream that `syncs` names, else on the thread's latest, else the nearest."""
    chosen = np.flatnonzero(calls.kind == CallKind.STREAM_SYNC)
    stream = _recorded_streams(trace, rank, calls, ops)[chosen]
    known = stream != _UNNAMED
    stream = np.where(known, stream, _stream_used_last(chosen, calls, ops, launches, blocks))
    block = np.full(chosen.size, -1, np.int64)
    for number in np.unique(stream[stream >= 0]):
        mine = stream == number
        block[mine] = launches.last_on(int(number), calls.start_ns[chosen[mine]])
    end = np.where(block >= 0, blocks.end_ns[np.maximum(block, 0)], np.iinfo(np.int64).max) if len(blocks) else block
    held = (block >= 0) & (end <= calls.end_ns[chosen] + _CLOCK_SLACK_NS)
    long_wait = calls.lengths_ns[chosen] > _RETURN_WITHIN_NS
    explained = held & (~long_wait | (calls.end_ns[chosen] - end <= _RETURN_WITHIN_NS))
    direct = _pairs(chosen[explained], block[explained], ~known[explained])
    refuted = ~explained & (block >= 0) & ~held
    guessed = _nearest(chosen[~explained & (~known | refuted)], calls, blocks, launches)
    kept = _pairs(chosen[known & held & ~explained], block[known & held & ~explained])
    return tuple(np.concatenate(columns) for columns in zip(direct, guessed, kept, strict=True))  # type: ignore[return-value]


def _recorded_streams(trace: Trace, rank: int, calls: Calls, ops: Ops) -> IntArray:
    """Per call, the number of the stream that its row of `syncs` names; -1 for no row, -2 for a stream without work."""
    answer = np.full(len(calls), -1, np.int64)
    rows = trace.get(SYNCS).filter(
        (pl.col("rank") == rank)
        & (pl.col("kind") == "stream")
        & (pl.col("stream") >= 0)
        & pl.col("correlation").is_not_null()
    )
    if not rows.height or not len(calls):
        return answer
    number = {(device, stream): n for n, (device, _, stream) in reversed(list(enumerate(ops.streams)))}
    any_device = {stream: n for n, (_, _, stream) in reversed(list(enumerate(ops.streams)))}
    waits = np.flatnonzero((calls.kind == CallKind.STREAM_SYNC) & (calls.correlation >= 0))
    if not waits.size:
        return answer
    waits = waits[np.argsort(calls.correlation[waits], kind="stable")]
    ids, wanted = calls.correlation[waits], rows["correlation"].to_numpy()
    place = np.minimum(np.searchsorted(ids, wanted, side="right") - 1, ids.size - 1)
    found = (place >= 0) & (ids[np.maximum(place, 0)] == wanted)
    pairs = rows.select("device", "stream")
    named = {pair: number.get(pair, any_device.get(pair[1], _NO_WORK)) for pair in pairs.unique().iter_rows()}
    codes = pairs.select(pl.struct("device", "stream").rank("dense").alias("code"))["code"].to_numpy() - 1
    of_code = pairs.with_columns(pl.Series("code", codes)).unique("code").sort("code")
    streams = np.array([named[device, stream] for device, stream, _ in of_code.iter_rows()], np.int64)
    answer[waits[place[found]]] = streams[codes[found]]
    return answer


def _stream_used_last(chosen: IntArray, calls: Calls, ops: Ops, launches: LaunchOrder, blocks: Blocks) -> IntArray:
    """The stream of the last block that the calling thread launched before the call, or -1."""
    thread = calls.thread[launches.call]
    order = np.lexsort((launches.at_ns, thread))
    ordered_thread, ordered_at, block = thread[order], launches.at_ns[order], launches.block[order]
    answer = np.full(chosen.size, -1, np.int64)
    for number in np.unique(calls.thread[chosen]):
        low, high = np.searchsorted(ordered_thread, [number, number + 1])
        mine = calls.thread[chosen] == number
        place = low + np.searchsorted(ordered_at[low:high], calls.start_ns[chosen[mine]], side="left") - 1
        answer[mine] = (
            np.where(place >= low, ops.stream[blocks.op[block[np.maximum(place, 0)]]], -1) if high > low else -1
        )
    return answer


def _nearest(chosen: IntArray, calls: Calls, blocks: Blocks, launches: LaunchOrder) -> Pairs:
    """The block, launched before the call, whose end came last before the return: only if the return followed soon."""
    if not chosen.size or not launches.block.size:
        return _pairs(np.empty(0, np.int64), np.empty(0, np.int64))
    end = blocks.end_ns[launches.block]
    order = np.argsort(end, kind="stable")
    place = np.searchsorted(end[order], calls.end_ns[chosen], side="right") - 1
    candidate = order[np.maximum(place, 0)]
    near = (place >= 0) & (calls.end_ns[chosen] - end[candidate] <= _RETURN_WITHIN_NS)
    near &= (launches.at_ns[candidate] < calls.start_ns[chosen]) & (end[candidate] > calls.start_ns[chosen])
    return _pairs(chosen[near], launches.block[candidate[near]], True)


def _blocking_copies(trace: Trace, calls: Calls, ops: Ops, blocks: Blocks) -> tuple[IntArray, IntArray]:
    """Copies whose call waits for the copy: synchronous ones, device to pageable, long ones pageable to device."""
    copies = (
        np.flatnonzero((blocks.call >= 0) & (ops.op_class[blocks.op] == COPY)) if len(ops) else np.empty(0, np.int64)
    )
    call = blocks.call[copies]
    frame = trace.get(DEVICE_OPS)[ops.row[blocks.op[copies]]].select("copy_kind", "src_memory", "dst_memory", "bytes")
    pageable_out = ((frame["copy_kind"] == "d2h") & (frame["dst_memory"] == "pageable")).fill_null(False).to_numpy()
    pageable_in = (frame["copy_kind"] == "h2d") & (frame["src_memory"] == "pageable") & (frame["bytes"] > _STAGED_BYTES)
    waits = (calls.kind[call] == CallKind.COPY_BLOCKING) | pageable_out | pageable_in.fill_null(False).to_numpy()
    waits &= blocks.end_ns[copies] <= calls.end_ns[call] + _CLOCK_SLACK_NS
    return call[waits], copies[waits]


# A source that ended this long after its sink started cannot have been waited for: the inference was wrong.
_EVENT_WAITS_CLOCK_SLACK_NS: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class EventEdges:
    """Pairs of blocks (source ends before sink starts), and whether each was recorded or inferred."""

    source: Int64Array
    sink: Int64Array
    inferred: BoolArray


def find_event_edges(trace: Trace, rank: int, calls: Calls, ops: Ops, blocks: Blocks) -> EventEdges:
    """Recorded edges where the trace has both ends of them; PyTorch's known pattern for waits that name no event."""
    launches = LaunchOrder.of(calls, ops, blocks)
    source, sink, known = _recorded(trace, rank, calls, ops, launches)
    waits = np.flatnonzero(calls.kind == CallKind.STREAM_WAIT)
    unnamed = waits[~np.isin(calls.correlation[waits], known)]
    guess_source, guess_sink = _by_pattern(unnamed, calls, ops, blocks, launches)
    inferred = np.repeat([False, True], [source.size, guess_source.size])
    source, sink = np.concatenate((source, guess_source)), np.concatenate((sink, guess_sink))
    possible = (blocks.end_ns[source] <= blocks.start_ns[sink] + _EVENT_WAITS_CLOCK_SLACK_NS) & (source != sink)
    return EventEdges(source[possible], sink[possible], inferred[possible])


def _recorded(
    trace: Trace, rank: int, calls: Calls, ops: Ops, launches: LaunchOrder
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


def _next_on(launches: LaunchOrder, stream: int, after_ns: int) -> int:
    if stream not in launches.on_stream:
        return -1
    at, block = launches.on_stream[stream]
    place = int(np.searchsorted(at, after_ns, side="left"))
    return int(block[place]) if place < block.size else -1


def _by_pattern(
    waits: Int64Array, calls: Calls, ops: Ops, blocks: Blocks, launches: LaunchOrder
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


def _next_by_thread(waits: Int64Array, calls: Calls, launches: LaunchOrder) -> Int64Array:
    """Place, in launch order, of the calling thread's next launch after each wait, or -1."""
    thread = calls.thread[launches.call]
    answer = np.full(waits.size, -1, np.int64)
    for number in np.unique(calls.thread[waits]):
        mine = np.flatnonzero(thread == number)
        asked = np.flatnonzero(calls.thread[waits] == number)
        place = np.searchsorted(launches.at_ns[mine], calls.start_ns[waits[asked]], side="left")
        answer[asked] = np.where(place < mine.size, mine[np.minimum(place, mine.size - 1)], -1) if mine.size else -1
    return answer
