"""Calls that make the host wait for the GPU, how long they wait, and how long the GPU then waits for the host.

Whether the program's own instrumentation waits for the GPU at the end of every block it times.

Such a trace says where GPU time goes, block by block, and nothing of how fast the program runs: no launch runs ahead,
nothing overlaps. It is a fact about the capture, not a fault of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.idle.gaps import device_gaps
from timesink.measures.timeline.host_places import host_places, push_pop_ranges
from timesink.measures.timeline.launches import launches
from timesink.measures.timeline.links import launch_links
from timesink.model.arrays import Int64Array
from timesink.model.names import mapped, matches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered

SyncCallKind = pl.Enum(["device", "stream", "event", "copy", "pageable_copy"])

_VERSION: Final = r"(_v\d+)?(_ptsz|_ptds)?(_v\d+)?$"
DEVICE_SYNC: Final = r"^(cuda(Device|Thread)|hipDevice|cuCtx|hipCtx)Synchronize" + _VERSION
STREAM_SYNC: Final = r"^(cuda|cu|hip)StreamSynchronize" + _VERSION
EVENT_SYNC: Final = r"^(cuda|cu|hip)EventSynchronize" + _VERSION
SYNC_COPY: Final = (
    r"^(cuda|hip)Memcpy(2D|3D)?(ToSymbol|FromSymbol|ToArray|FromArray|ArrayToArray|Peer|WithStream)?"
    + _VERSION
    + r"|^(cu|hip)Memcpy(HtoD|DtoH|DtoD|AtoH|HtoA|2D|3D)?"
    + _VERSION
)


@dataclass(frozen=True, slots=True, eq=False)
class Synchronisations:
    """`calls`: one row per blocking call, in order of rank, process, thread and start.

    Columns: rank, process, thread, call (row of api_calls), name, kind, start_ns, end_ns, blocked_ns, host_op, range
    (innermost around it, null where none), drain_ns. `blocked_ns` is the call's whole duration: mostly waiting, a few
    microseconds of it the call itself. `drains`: rank, device, start_ns, end_ns, call; the device idle time that
    began while the call waited and ended with work launched only after it returned. No gap is charged to two calls.
    A cudaEventQuery does not block and is not here.
    """

    calls: pl.DataFrame
    drains: pl.DataFrame


@remembered
def synchronisations(trace: Trace) -> Synchronisations:
    """Find blocking calls, the time they block, and the drains they cause."""
    calls = trace.get(API_CALLS)
    kind = _kinds(trace)
    rows = np.flatnonzero(kind.is_not_null().to_numpy())
    places = host_places(trace)
    found = calls[rows].select("rank", "process", "thread", "name", "start_ns", "end_ns")
    found = found.with_columns(
        pl.col("name").cast(pl.String),
        kind[rows].alias("kind"),
        pl.Series("call", rows),
        (pl.col("end_ns") - pl.col("start_ns")).alias("blocked_ns"),
        places.host_op_names(rows),
        places.range_names(rows),
    )
    drains = _drains(trace, found)
    charged = drains.group_by("call").agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("drain_ns"))
    found = found.join(charged, on="call", how="left", maintain_order="left").with_columns(
        pl.col("drain_ns").fill_null(0)
    )
    return Synchronisations(calls=found, drains=drains)


def _kinds(trace: Trace) -> pl.Series:
    """The kind of each API call that blocks, null for all others."""
    calls = trace.get(API_CALLS)
    kind = mapped(calls["name"], _kind_of_names, SyncCallKind)  # type: ignore[arg-type]
    ops, links = trace.get(DEVICE_OPS), launch_links(trace)
    to_pageable = ((ops["kind"] == "copy") & (ops["copy_kind"] == "d2h") & (ops["dst_memory"] == "pageable")).fill_null(
        False
    )
    pageable = np.zeros(calls.height, np.bool_)
    pageable[links.call[to_pageable.to_numpy() & links.linked]] = True
    return pl.select(
        pl.when(kind.is_null() & pl.Series(pageable)).then(pl.lit("pageable_copy", SyncCallKind)).otherwise(kind)
    ).to_series()


def _kind_of_names(names: pl.Series) -> pl.Series:
    name = pl.col("name")
    kinds = (("device", DEVICE_SYNC), ("stream", STREAM_SYNC), ("event", EVENT_SYNC), ("copy", SYNC_COPY))
    answer = pl.coalesce(pl.when(name.str.contains(pattern)).then(pl.lit(kind)) for kind, pattern in kinds)
    return names.to_frame("name").select(answer.cast(SyncCallKind)).to_series()


def _drains(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Gaps that began while a call of the device's process waited, and that end with work launched after it returned.

    Of several such calls the first to return is the cause: it was the one that let the queue run dry.
    """
    parts = [_DRAINS.clear()]
    waits = calls.sort("end_ns", "call").partition_by("rank", "process", as_dict=True, maintain_order=True)
    for gaps in device_gaps(trace).slices():
        parts += [_drained(gaps.filter(_of(*process)), mine) for process, mine in waits.items()]
    return pl.concat(parts).sort("rank", "device", "start_ns")


def _of(rank: object, process: object) -> pl.Expr:
    return pl.col("rank").eq(rank) & pl.col("process").eq(process)


def _drained(gaps: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    row = _first_waiting(gaps, calls)
    held = row >= 0
    drained = gaps.filter(pl.Series(held)).select("rank", "device", "start_ns", "end_ns")
    return drained.with_columns(pl.Series("call", calls["call"].to_numpy()[row[held]]))


def _first_waiting(gaps: pl.DataFrame, calls: pl.DataFrame) -> Int64Array:
    """For each gap, the index of the first call to return after the gap began that was waiting when it began; or -1.

    `calls` come in order of return. The call must return before the launch of the work that ends the gap.
    """
    start = gaps["start_ns"].to_numpy()
    limit = gaps.select(pl.coalesce("launch_start_ns", "end_ns")).to_series().to_numpy()
    call_start, call_end = calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy()
    at = np.searchsorted(call_end, start, side="left")
    found = np.full(start.size, -1, np.int64)
    open_ = np.arange(start.size)
    while open_.size:
        index = at[open_]
        possible = index < call_end.size
        open_, index = open_[possible], index[possible]
        in_time = call_end[index] <= limit[open_]
        open_, index = open_[in_time], index[in_time]
        waiting = call_start[index] < start[open_]
        found[open_[waiting]] = index[waiting]
        open_ = open_[~waiting]
        at[open_] += 1
    return found


_DRAINS = pl.DataFrame(
    schema={"rank": pl.Int32, "device": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "call": pl.Int64}
)


NEEDS: Final = 6  # blocks that launch work: fewer are no instrumentation
SHARE: Final = 0.9  # of them end in a wait
_NO_BLOCK: Final = r"^ProfilerStep#|^Torch-Compiled Region|^Optimizer\.|^## Call CompiledFxGraph"
_THREAD: Final = ["rank", "process", "thread"]


@dataclass(frozen=True, slots=True)
class SynchronisedRanges:
    """`blocks`: ranges that launch work and enclose no other such range; `waiting` of them end in a blocking call,
    with no launch behind it."""

    blocks: int
    waiting: int

    @property
    def attribution_only(self) -> bool:
        """Whether nearly every block ends in a wait."""
        return self.blocks >= NEEDS and self.waiting >= SHARE * self.blocks


@remembered
def synchronised_ranges(trace: Trace) -> SynchronisedRanges:
    """Look at the innermost ranges around launches."""
    ranges, calls = push_pop_ranges(trace), trace.get(API_CALLS)
    ranges = ranges.filter(~matches(ranges["name"], _NO_BLOCK))
    if not ranges.height or not calls.height or not list(launches(trace)):
        return SynchronisedRanges(0, 0)
    made = calls.filter(pl.Series(launch_links(trace).launching(calls.height))).select(*_THREAD, "start_ns")
    waits = synchronisations(trace).calls.select(*_THREAD, "start_ns", "end_ns")
    blocks = waiting = 0
    for key, mine in sorted(ranges.partition_by(_THREAD, as_dict=True).items()):
        here = pl.all_horizontal(pl.col(name) == value for name, value in zip(_THREAD, key, strict=True))
        starts = np.sort(made.filter(here)["start_ns"].to_numpy())
        blocking = waits.filter(here).sort("start_ns")
        begin, end = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        first, last = np.searchsorted(starts, begin), np.searchsorted(starts, end)
        full = last > first
        leaf = full & ~_encloses(begin, end, full)
        blocks += int(leaf.sum())
        latest = np.where(leaf, starts[np.maximum(last - 1, 0)], 0) if starts.size else begin
        after = np.searchsorted(blocking["start_ns"].to_numpy(), latest)
        until = np.searchsorted(blocking["start_ns"].to_numpy(), end)
        waiting += int((leaf & (until > after)).sum())
    return SynchronisedRanges(blocks, waiting)


def _encloses(begin: np.ndarray, end: np.ndarray, full: np.ndarray) -> np.ndarray:
    """Whether a range holds another that launches work; ranges are in order of start, and nest."""
    answer = np.zeros(begin.size, bool)
    order = np.lexsort((-end, begin))
    order = order[full[order]]
    inside = (begin[order[1:]] >= begin[order[:-1]]) & (end[order[1:]] <= end[order[:-1]])
    answer[order[:-1]] = inside
    return answer
