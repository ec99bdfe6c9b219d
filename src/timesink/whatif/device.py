"""The device side of the graph: what ran where, what launched it, and what a launch and a stream cost (R8, R9, R11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.model.correlation import first_places
from timesink.model.op_class import op_class
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.host import Calls

Times = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# The intrinsic part of a launch or a gap is its low quantile: what lies above is jitter, and stays as a residual.
_INTRINSIC_QUANTILE: Final = 0.10
_USUAL_QUANTILE: Final = 0.50
_LATE_QUANTILE: Final = 0.99
# The first launch of a kernel loads its module: many times the usual latency is something else than latency.
_LATE_AT_MOST: Final = 4
_ENOUGH: Final = 5
_GAP_IF_UNSEEN_NS: Final = 1_000
_LATENCY_IF_UNSEEN_NS: Final = 4_000
_LATENCY_AT_MOST_NS: Final = 20_000


@dataclass(frozen=True, slots=True, eq=False)
class Ops:
    """Rows of `device_ops` of one rank. `block` is the unit that is replayed: an op, or all ops of one graph launch."""

    row: Rows
    start_ns: Times
    end_ns: Times
    device: Rows
    stream: Rows
    call: Rows
    block: Rows
    op_class: npt.NDArray[np.uint8]
    streams: tuple[tuple[int, int | None, int], ...]

    def __len__(self) -> int:
        return int(self.row.size)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """What is replayed as one: start and end, the op that stands for it, and the call that launched it (or -1)."""

    start_ns: Times
    end_ns: Times
    op: Rows
    call: Rows
    size: Rows

    def __len__(self) -> int:
        return int(self.op.size)


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Per op, in ns: launch latency into an empty queue and gap behind a predecessor, intrinsic, usual and late."""

    latency_ns: Times
    latency_usual_ns: Times
    latency_late_ns: Times
    gap_ns: int
    gap_usual_ns: int
    gap_late_ns: int


# `op_class` reads the kind and the name; graph ids and shapes of launches are not needed here.
_READ: Final = ("process", "device", "context", "stream", "kind", "name", "start_ns", "end_ns", "correlation")


def read_ops(trace: Trace, rank: int, calls: Calls) -> tuple[Ops, Blocks]:
    """Device ops of a rank in order of start, with streams numbered from 0 and ops of one graph launch in one block."""
    wanted = ("row", *_READ)
    rows = trace.get(DEVICE_OPS).with_row_index("row").lazy().filter(pl.col("rank") == rank).select(wanted)
    frame = rows.sort("start_ns", "end_ns", "row").collect()
    call = _launches(frame, calls)
    streams, stream = _numbered(frame)
    block, first = _blocks(call)
    classes = op_class(frame).to_physical().to_numpy().astype(np.uint8)
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    ops = Ops(
        row=frame["row"].cast(pl.Int64).to_numpy(),
        start_ns=start,
        end_ns=end,
        device=frame["device"].cast(pl.Int64).to_numpy(),
        stream=stream,
        call=call,
        block=block,
        op_class=classes,
        streams=streams,
    )
    last = np.full(first.size, np.iinfo(np.int64).min, np.int64)
    np.maximum.at(last, block, end)
    return ops, Blocks(start[first], last, first, call[first], np.bincount(block, minlength=first.size))


def _launches(frame: pl.DataFrame, calls: Calls) -> Rows:
    """The call that caused each op, by process and correlation; where calls nest, the outermost. -1 for none.

    Some profilers do not say which process a device op belongs to; correlations alone decide then.
    """
    wanted = frame["correlation"].fill_null(-1).to_numpy()
    process = frame["process"].to_numpy()
    known = calls.correlation >= 0
    if not known.any() or not wanted.size:
        return np.full(wanted.size, -1, np.int64)
    names = {int(p): n for n, p in enumerate(np.unique(calls.process))}
    if set(np.unique(process).tolist()) - set(names):
        names = dict.fromkeys(names, 0)
        mine = np.zeros(wanted.size, np.int64)
    else:
        mine = _coded(process, names)
    wanted, caused, width = _narrowed(wanted, np.where(known, calls.correlation, -1), len(names))
    keys = np.where(known, _coded(calls.process, names) * width + caused, -1)
    return first_places(np.where(wanted >= 0, mine * width + wanted, -1), keys)


def _narrowed(some: Rows, others: Rows, factor: int) -> tuple[Rows, Rows, int]:
    """Two columns of numbers and one more than their largest; renumbered where `factor` times that is no 64-bit number.

    Negative numbers stay negative.
    """
    width = int(max(some.max(), others.max())) + 1
    if width * factor <= np.iinfo(np.int64).max:
        return some, others, width
    distinct, numbers = np.unique(np.concatenate([some, others]), return_inverse=True)
    numbers = np.where(distinct[numbers] >= 0, numbers, -1)
    return numbers[: some.size], numbers[some.size :], distinct.size


def _coded(values: Rows, names: dict[int, int]) -> Rows:
    distinct, inverse = np.unique(values, return_inverse=True)
    return np.array([names[int(v)] for v in distinct], np.int64)[inverse]


def _numbered(frame: pl.DataFrame) -> tuple[tuple[tuple[int, int | None, int], ...], Rows]:
    keys = frame.select("device", "context", "stream")
    distinct = keys.unique().sort("device", "context", "stream", nulls_last=False).with_row_index("number")
    joined = keys.join(
        distinct, on=["device", "context", "stream"], how="left", nulls_equal=True, maintain_order="left"
    )
    return tuple(distinct.select("device", "context", "stream").rows()), joined["number"].cast(pl.Int64).to_numpy()


def _blocks(call: Rows) -> tuple[Rows, Rows]:
    """Block of each op and first op of each block: ops of one call together, every other op alone."""
    own = np.where(call >= 0, call, -1 - np.arange(call.size))
    _, first, inverse = np.unique(own, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size)
    return rank[inverse], first[order]


def same_stream_pairs(ops: Ops) -> tuple[Rows, Rows]:
    """Neighbouring ops of each stream, earlier and later."""
    order = np.argsort(ops.stream, kind="stable")
    same = ops.stream[order[1:]] == ops.stream[order[:-1]]
    return order[:-1][same], order[1:][same]


def stream_neighbours(ops: Ops) -> tuple[Rows, Rows]:
    """For each op, the one before it and the one after it on its stream; -1 where there is none."""
    earlier, later = same_stream_pairs(ops)
    before, after = np.full(len(ops), -1, np.int64), np.full(len(ops), -1, np.int64)
    before[later], after[earlier] = earlier, later
    return before, after


def measure_costs(ops: Ops, calls: Calls) -> Costs:
    """Launch latency per stream and kind of op, and the back-to-back gap, from where each shows undisturbed.

    Latency counts from the start of the call, since kernels often begin before it returns (R8), over ops whose stream
    was empty at the launch. The gap is taken where the next op was launched while its predecessor still ran (R9).
    """
    earlier, later = same_stream_pairs(ops)
    free_since = np.full(len(ops), np.iinfo(np.int64).min, np.int64)
    free_since[later] = ops.end_ns[earlier]
    launch = np.where(ops.call >= 0, calls.start_ns[np.maximum(ops.call, 0)], 0) if len(calls) else ops.start_ns
    latency = ops.start_ns - launch
    lone = (ops.call >= 0) & (launch >= free_since) & (latency >= 0)
    group = ops.stream * 2 + (ops.op_class == _COPY)
    low = _quantile_by(group, latency, lone, _INTRINSIC_QUANTILE)
    usual = _quantile_by(group, latency, lone, _USUAL_QUANTILE)
    late = np.minimum(_quantile_by(group, latency, lone, _LATE_QUANTILE), _LATE_AT_MOST * usual)
    queued = (ops.call[later] >= 0) & (launch[later] + low[later] < ops.end_ns[earlier])
    gaps = np.maximum(ops.start_ns[later] - ops.end_ns[earlier], 0)[queued]
    if gaps.size < _ENOUGH:
        gaps = np.array([_GAP_IF_UNSEEN_NS], np.int64)
    quantiles = np.quantile(gaps, [_INTRINSIC_QUANTILE, _USUAL_QUANTILE, _LATE_QUANTILE])
    return Costs(low, usual, late, *(int(q) for q in quantiles))


_COPY: Final = 2


def _quantile_by(group: Rows, values: Times, chosen: Flags, quantile: float) -> Times:
    """The quantile within each op's group; of all chosen where the group has too few, a usual figure where none has."""
    overall = float(np.quantile(values[chosen], quantile)) if chosen.any() else float(_LATENCY_IF_UNSEEN_NS)
    if np.count_nonzero(chosen) < _ENOUGH:  # one slow launch is no intrinsic cost: the excess is left unexplained
        overall = min(overall, float(_LATENCY_AT_MOST_NS))
    answer = np.full(int(group.max(initial=0)) + 1, overall)
    frame = pl.DataFrame({"group": group[chosen], "value": values[chosen]})
    found = frame.group_by("group").agg(pl.len(), pl.col("value").quantile(quantile, "linear"))
    enough = found.filter(pl.col("len") >= _ENOUGH)
    answer[enough["group"].to_numpy()] = enough["value"].to_numpy()
    return answer[group].astype(np.int64)
