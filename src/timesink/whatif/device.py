"""The device side of the graph: what ran where, what launched it, and what a launch and a stream cost by themselves."""

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.knowledge.assumptions import replay
from timesink.knowledge.op_class import COPY, class_of_ops
from timesink.model.alignment import launching_calls
from timesink.model.arrays import Int32Array, Int64Array, IntArray, slices
from timesink.model.nesting import key_slices, slice_of
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.whatif.host import Calls, calls_of_rank

_REPLAYED: Final = 2  # the group of replays on a stream, after its other work and its copies


class Ops(Record, eq=False):
    """Rows of `device_ops` of one rank, by start.

    `row` is the row of the table, `call` the number of the call that launched the op (-1 for none), `stream` numbers
    the (device, context, stream) triples of `streams`, and `block` is the number of the unit that is replayed: an op,
    or all ops of one CUDA graph launch, whose dependencies inside the graph no trace records. `first_row` is the row
    of the first op where those of the others follow it, one by one.
    """

    row: Int32Array
    start_ns: Int64Array
    end_ns: Int64Array
    device: Int32Array
    stream: Int32Array
    call: Int32Array
    block: Int32Array
    op_class: npt.NDArray[np.uint8]
    streams: tuple[tuple[int, int | None, int], ...]
    first_row: int | None = None

    def __len__(self) -> int:
        return int(self.row.size)

    def places_of(self, rows: IntArray) -> IntArray:
        """The number of the op of each of these rows of `device_ops`; every one must be an op of the rank."""
        if self.first_row is not None:
            return rows - self.first_row
        order = np.argsort(self.row)
        return order[np.searchsorted(self.row, rows, sorter=order)]


class Blocks(Record, eq=False):
    """What is replayed as one: start and end, first op, the call that launched it (or -1), and number of ops."""

    start_ns: Int64Array
    end_ns: Int64Array
    op: IntArray
    call: IntArray
    size: IntArray

    def __len__(self) -> int:
        return int(self.op.size)


class Costs(Record, eq=False):
    """In ns: the gap after a predecessor, and the launch latency into an empty queue, each intrinsic, usual and late.

    Latencies are per group of ops (a stream's copies, its replays of graphs, which start late in a long call, and its
    other work); `group` says which group an op is of.
    """

    group: Int32Array
    latency_of_group: tuple[Int64Array, Int64Array, Int64Array]
    gap_ns: int
    gap_usual_ns: int
    gap_late_ns: int

    def latency_ns(self, op: IntArray) -> Int64Array:
        """The intrinsic latency of these ops."""
        return self.latency_of_group[0][self.group[op]]

    def latency_usual_ns(self, op: IntArray) -> Int64Array:
        """The usual latency of these ops."""
        return self.latency_of_group[1][self.group[op]]

    def latency_late_ns(self, op: IntArray) -> Int64Array:
        """The latency of these ops that is seldom exceeded."""
        return self.latency_of_group[2][self.group[op]]


# Kinds and names are told by the class; graph ids and shapes of launches are not needed here.
_READ: Final = ("rank", "process", "device", "context", "stream", "start_ns", "end_ns", "correlation")


def read_ops(trace: Trace, rank: int, calls: Calls) -> tuple[Ops, Blocks]:
    """Device ops of a rank in order of start, with streams numbered from 0 and ops of one graph launch in one block.

    The ops of one device have that order in their table, and their times are then not copied.
    """
    frame, row = _in_order(trace.get(DEVICE_OPS), rank)
    called, _ = calls_of_rank(trace.get(API_CALLS), rank)
    call = _launching_calls(frame, called, {process for process, _ in calls.threads})
    streams, stream = _number_streams(frame)
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    block, first = _blocks(call)
    ops = Ops(
        row=row,
        start_ns=start,
        end_ns=end,
        device=frame["device"].to_numpy(),
        stream=stream,
        call=call,
        block=block,
        op_class=class_of_ops(trace).to_physical().to_numpy()[row].astype(np.uint8),
        streams=streams,
        first_row=None if (np.diff(row) != 1).any() else int(row[0]) if row.size else 0,
    )
    if first.size == row.size:  # no op shares its launch
        return ops, Blocks(start, end, first, call, np.broadcast_to(np.int64(1), first.size))
    last = np.full(first.size, np.iinfo(np.int64).min, np.int64)
    np.maximum.at(last, block, end)
    return ops, Blocks(start[first], last, first, call[first], np.bincount(block, minlength=first.size))


def _in_order(ops: pl.DataFrame, rank: int) -> tuple[pl.DataFrame, Int32Array]:
    """What is read of a rank's ops, by start, end and row; and their rows."""
    first, last = slice_of(ops, ("rank",), (rank,))
    frame, row = ops.select(_READ)[first:last], np.arange(first, last, dtype=np.int32)
    if len(list(key_slices(ops[first:last], ("device",)))) <= 1:
        return frame, row
    order = frame.with_columns(pl.Series("row", row)).select(pl.arg_sort_by("start_ns", "end_ns", "row")).to_series()
    return frame[order], row[order.to_numpy()]


def _launching_calls(ops: pl.DataFrame, calls: pl.DataFrame, processes: Collection[int]) -> Int32Array:
    """The number of the call that caused each op (`model.alignment`), -1 for none.

    Some profilers do not say which process a device op belongs to; correlations alone decide then.
    """
    if not ops["process"].is_in(list(processes)).all():
        ops, calls = ops.with_columns(process=pl.lit(0)), calls.with_columns(process=pl.lit(0))
    return launching_calls(ops, calls)


def _number_streams(frame: pl.DataFrame) -> tuple[tuple[tuple[int, int | None, int], ...], Int32Array]:
    names = ["device", "context", "stream"]
    keys = frame.select(names)
    distinct = keys.unique().sort(names, nulls_last=False).with_row_index("number")
    number = np.zeros(frame.height, np.int32)
    varying = [name for name in names if distinct[name].n_unique() > 1]
    for rows in slices(0, frame.height if varying else 0):
        part = keys.select(varying)[rows]
        if varying == ["stream"]:
            numbered = np.searchsorted(distinct["stream"].to_numpy(), part["stream"].to_numpy())
        else:
            joined = part.join(distinct, on=varying, how="left", nulls_equal=True, maintain_order="left")
            numbered = joined["number"].to_numpy()
        number[rows] = numbered
    return tuple(distinct.select(names).rows()), number


def _blocks(call: IntArray) -> tuple[IntArray, IntArray]:
    """Block of each op and first op of each block: ops of one call together, every other op alone.

    Blocks are numbered by their first op. With ops launched by the calls 4, 7, 4 and none (-1):

        call 4 7 4 -1   ->   block of each op 0 1 0 2, first op of each block 0 1 3
    """
    linked = call[call >= 0]
    if linked.size == 0 or np.bincount(linked).max() == 1:
        alone = np.arange(call.size, dtype=np.int32)
        return alone, alone
    own = np.where(call >= 0, call, -1 - np.arange(call.size))
    _, first, inverse = np.unique(own, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(order.size, np.int32)
    rank[order] = np.arange(order.size)
    return rank[inverse], first[order].astype(np.int32)


def launched_ns(call: IntArray, start_ns: Int64Array, calls: Calls) -> Int64Array:
    """When each op or block was launched: the start of its call, or its own start where no call is known."""
    return np.where(call >= 0, calls.start_ns[np.maximum(call, 0)], start_ns) if len(calls) else start_ns


def rows_by_stream(ops: Ops) -> Iterator[tuple[int, Int32Array]]:
    """Each stream with any op, and the numbers of its ops."""
    order = np.arange(ops.stream.size, dtype=np.int32)
    if order.size and ops.stream.min() != ops.stream.max():
        order = np.argsort(ops.stream, kind="stable").astype(np.int32)
    for rows in np.split(order, np.flatnonzero(np.diff(ops.stream[order])) + 1):
        if rows.size:
            yield int(ops.stream[rows[0]]), rows


def same_stream_pairs(ops: Ops) -> tuple[IntArray, IntArray]:
    """Neighbouring ops of each stream, earlier and later."""
    rows = [rows for _, rows in rows_by_stream(ops)]
    none = np.empty(0, np.int32)
    return np.concatenate([none, *(part[:-1] for part in rows)]), np.concatenate([none, *(part[1:] for part in rows)])


def stream_neighbours(ops: Ops) -> tuple[IntArray, IntArray]:
    """For each op, the one before it and the one after it on its stream; -1 where there is none."""
    earlier, later = same_stream_pairs(ops)
    before, after = np.full(ops.stream.size, -1, np.int32), np.full(ops.stream.size, -1, np.int32)
    before[later], after[earlier] = earlier, later
    return before, after


def measure_costs(ops: Ops, calls: Calls) -> Costs:
    """Launch latency per stream and kind of op, and the back-to-back gap, from where each shows undisturbed.

    Latency is (start of the op - start of its call) over ops whose stream was empty when they were launched; it counts
    from the start of the call, since many kernels begin before it returns. The gap is (start - end of the op before),
    where the op was launched so early that the one before still ran. The 10th percentile is taken for the intrinsic
    cost, because delays only ever add to it; the median is the usual one and the 99th percentile a late one.
    """
    of_graph = np.bincount(ops.block)[ops.block] > 1
    kind = np.where(of_graph, np.int32(_REPLAYED), ops.op_class == COPY)
    group = (ops.stream * np.int32(_REPLAYED + 1) + kind).astype(np.int32, copy=False)
    before, _ = stream_neighbours(ops)
    groups, latencies, gaps = [group[:0]], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for rows, launch, drained in _against_earlier(ops, calls, before):
        latency = ops.start_ns[rows] - launch
        lone = (ops.call[rows] >= 0) & (latency >= 0) & (launch >= drained)
        groups.append(group[rows][lone])
        latencies.append(latency[lone])
    count = int(group.max(initial=0)) + 1
    low, usual, late = _quantiles_by(np.concatenate(groups), np.concatenate(latencies), count, _quantiles())
    for rows, launch, drained in _against_earlier(ops, calls, before):
        queued = (ops.call[rows] >= 0) & (launch + low[group[rows]] < drained)
        gaps.append(np.maximum(ops.start_ns[rows][queued] - drained[queued], 0))
    gap = np.concatenate(gaps)
    if gap.size < replay.ENOUGH.value:
        gap = np.array([replay.GAP_IF_UNSEEN_US.ns], np.int64)
    quantiles = np.quantile(gap, _quantiles())
    return Costs(group, (low, usual, np.minimum(late, replay.LATE_AT_MOST.whole * usual)), *(int(q) for q in quantiles))


def _against_earlier(ops: Ops, calls: Calls, before: IntArray) -> Iterator[tuple[slice, Int64Array, Int64Array]]:
    """A slice of the ops after another: when each was launched, and when the one before it on its stream was over, the
    least integer where there is none."""
    for rows in slices(0, ops.stream.size):
        over = np.where(before[rows] >= 0, ops.end_ns[before[rows]], np.iinfo(np.int64).min)
        yield rows, launched_ns(ops.call[rows], ops.start_ns[rows], calls), over


def _quantiles() -> tuple[float, ...]:
    """Which quantiles are an intrinsic, a usual and a late cost."""
    return replay.INTRINSIC_QUANTILE.value, replay.USUAL_QUANTILE.value, replay.LATE_QUANTILE.value


def _quantiles_by(
    group: Int32Array, values: Int64Array, group_count: int, quantiles: tuple[float, ...]
) -> list[Int64Array]:
    """Per quantile its value in each group; of all values where a group has too few, a usual one where none has."""
    sizes = np.bincount(group, minlength=group_count)
    values_of = []
    for quantile in quantiles:
        overall = float(np.quantile(values, quantile)) if values.size else float(replay.LATENCY_IF_UNSEEN_US.ns)
        if values.size < replay.ENOUGH.value:  # one slow launch is no intrinsic cost: the excess is left unexplained
            overall = min(overall, float(replay.LATENCY_AT_MOST_US.ns))
        values_of.append(np.full(group_count, overall))
    for number in np.flatnonzero(sizes >= replay.ENOUGH.value).tolist():
        own = pl.Series(values[group == number]).sort()
        for answer, quantile in zip(values_of, quantiles, strict=True):
            answer[number] = own.quantile(quantile, "linear")
    return [answer.astype(np.int64) for answer in values_of]
