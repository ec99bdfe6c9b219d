"""Why each device was idle: every gap is cut into stretches of one cause each; their lengths sum to the idle time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.idle.causes import CAUSE_CODE, CAUSES, HostActivity, IdleCause, host_activity
from timesink.measures.idle.pieces import Pieces, cut_gaps
from timesink.measures.timeline.device_timeline import Device, device_gaps, device_timeline
from timesink.measures.timeline.replay import work_of
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.nesting import key_slices, slice_of
from timesink.model.record import dataclass
from timesink.model.schema import Table, stacked
from timesink.model.tables import API_CALLS, FRAMES, HOST_OPS, OS_CALLS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.whatif.graph import RankWork

_PLACES: Final = {"host_op": HOST_OPS, "range": RANGES, "frame": FRAMES}
_OF_CODE: Final = pl.Series(CAUSES, dtype=IdleCause)
_SCHEMA: Final = pl.Schema(
    dict.fromkeys(("rank", "device"), pl.Int32())
    | dict.fromkeys(("start_ns", "end_ns"), pl.Int64())
    | {"cause": IdleCause}
    | dict.fromkeys(("process", "thread"), pl.Int64())
    | dict.fromkeys(("call_row", "sync_row", "op_row", "host_op_row", "range_row", "frame_row"), pl.Int32())
    | dict.fromkeys(("call", "host_op", "range", "frame"), pl.Categorical())
)


@dataclass(frozen=True, slots=True, eq=False)
class IdleBlame:
    """`frame`: one row per stretch of idle time, in order of rank, device, start. Their lengths sum to the idle time.

    - rank, device, start_ns, end_ns: the stretch. cause: an `IdleCause`.
    - process, thread: who kept the device waiting; null for causes on the device.
    - call_row: row of `api_calls` that the stretch is blamed on: the blocking call of `sync`, the call that the thread
      was in, or the launch of `launch_latency`; null where none.
    - sync_row: row of `api_calls` of the blocking call that drained the device before this gap, whatever the stretch's
      own cause. A drain charges to `sync` as much of the restart as the host had lost by waiting; what is left would
      have kept the device waiting without the wait too, and keeps its own cause.
    - call: name of that call; of `os_call` stretches, that of the call into the operating system.
    - op_row: row of `device_ops` that ended the gap. host_op_row, range_row, frame_row: innermost operator, range and
      Python frame around the stretch's start (for `sync`: around the blocking call), rows of their tables.
    - host_op, range, frame: the names that go with those rows; names are untrusted text.

    `untraced` is host time in which no operator, call or frame was recorded: Python where no stacks were captured, or a
    thread that waited. `unexplained` means that the op was queued, nothing known held it up, and it started late.
    """

    frame: pl.DataFrame

    @property
    def idle_ns(self) -> int:
        """Idle time of all devices, summed."""
        return int((self.frame["end_ns"] - self.frame["start_ns"]).sum())

    def on(self, device: Device) -> pl.DataFrame:
        """The stretches of one device."""
        first, last = slice_of(self.frame, ("rank", "device"), device)
        return self.frame[first:last]

    def ended_by(self, rows: Int64Array) -> pl.DataFrame:
        """Every stretch of the gaps that one of these device ops ended, by rows of `device_ops`."""
        return self.frame.filter(pl.col("op_row").is_in(pl.Series(rows).implode()))


@remembered
def idle_blame(trace: Trace) -> IdleBlame:
    """Blame every gap of every device, rank by rank."""
    ranks = sorted({rank for rank, _ in device_timeline(trace).by_device})
    return IdleBlame(
        stacked((part for rank in ranks for part in _blame_rank(trace, rank, work_of(trace, rank))), _SCHEMA)
    )


def idle_of_rank(trace: Trace, rank: int) -> pl.DataFrame:
    """The rows of `IdleBlame.frame` of one rank alone, where those of a thousand others are not asked for."""
    return stacked(_blame_rank(trace, rank, RankWork.read_work(trace, rank)), _SCHEMA)


def intervals_of(stretches: pl.DataFrame) -> dict[tuple[int, int], Intervals]:
    """The stretches per (rank, device): what a finding claims."""
    devices = key_slices(stretches, ("rank", "device"))
    return {(rank, device): Intervals.of(stretches[first:last]) for (rank, device), first, last in devices}


def _blame_rank(trace: Trace, rank: int, work: RankWork) -> Iterator[pl.DataFrame]:
    """Each gap is blamed for itself, a slice of gaps at a time: that bounds the memory that the cutting needs.

    Slices and their pieces are of one device and in order, and no stretch leaves its gap: they follow each other.
    """
    activity = host_activity(trace, work, _host_late_gaps(trace, rank))
    for gaps in device_gaps(trace).slices(rank):
        pieces = cut_gaps(gaps, work, activity)
        yield _stretches(trace, work.calls.threads, gaps, pieces, activity)


def _host_late_gaps(trace: Trace, rank: int) -> Intervals:
    """The gaps of a rank in which the launch of the op that ended them was made."""
    parts = [gaps.filter(pl.col("launch_start_ns") > pl.col("start_ns")) for gaps in device_gaps(trace).slices(rank)]
    return Intervals.union_all(Intervals.of(late) for late in parts)


def _stretches(
    trace: Trace, threads: tuple[tuple[int, int], ...], gaps: pl.DataFrame, pieces: Pieces, activity: HostActivity
) -> pl.DataFrame:
    """The pieces of some gaps as rows of `IdleBlame.frame`. `threads`: (process, thread) by number."""
    gap = gaps.select("rank", "device", pl.col("op").alias("op_row"))[pieces.gap]
    on_host = pieces.thread >= 0
    rows = {
        name: np.where(on_host, activity.by_table[table].row_at(pieces.timeline, pieces.asked_ns), -1)
        for name, table in _PLACES.items()
    }
    process, thread = np.array([*threads, (-1, -1)], np.int64).T.copy()
    columns: dict[str, pl.Series] = {
        **gap.to_dict(),
        "start_ns": pl.Series(pieces.start_ns),
        "end_ns": pl.Series(pieces.end_ns),
        "cause": _OF_CODE.gather(pl.Series(pieces.cause, dtype=pl.UInt32)),
        "process": _nullable(process[pieces.thread], on_host),
        "thread": _nullable(thread[pieces.thread], on_host),
        "call_row": _nullable(pieces.call_row, pieces.call_row >= 0),
        "sync_row": _nullable(pieces.sync_row, pieces.sync_row >= 0),
        **{f"{name}_row": _nullable(row, row >= 0) for name, row in rows.items()},
        "call": _names(trace, API_CALLS, pieces.call_row).fill_null(_os_names(trace, activity, pieces)),
        **{name: _names(trace, table, rows[name]) for name, table in _PLACES.items()},
    }
    return pl.DataFrame([columns[name].cast(dtype).alias(name) for name, dtype in _SCHEMA.items()])


def _os_names(trace: Trace, activity: HostActivity, pieces: Pieces) -> pl.Series:
    """The call into the operating system that each piece is blamed on, null where none."""
    blamed = pieces.cause == CAUSE_CODE["os_call"]
    return _names(
        trace,
        OS_CALLS,
        np.where(blamed, activity.by_table[OS_CALLS].row_at(pieces.timeline, pieces.asked_ns), -1),
    )


def _nullable(values: Int64Array, known: BoolArray) -> pl.Series:
    return pl.DataFrame({"v": values, "k": known}).select(pl.when("k").then("v").alias("v")).to_series()


def _names(trace: Trace, table: Table, rows: Int64Array) -> pl.Series:
    names = trace.get(table)["name"]
    if not len(names):
        return pl.Series("name", [None], dtype=pl.Categorical()).new_from_index(0, rows.size)
    return names[_nullable(rows, rows >= 0).cast(pl.UInt32)]
