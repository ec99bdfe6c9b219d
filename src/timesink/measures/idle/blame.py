"""Why each device was idle: every gap is cut into stretches of one cause each; their lengths sum to the idle time.

This is the one table of idle time: bars, lanes, `idle_shares`, findings and plans are sums of its rows. A gap is split
by what the host did at each instant; `charges` says where that is put down to the preparation of input, or to a wait.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import numpy as np
import polars as pl

from timesink._native import give_back, summed
from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.kernel_traits import MIGRATION
from timesink.measures.idle.causes import CAUSE_CODE, CAUSES, HostActivity, IdleCause, host_activity
from timesink.measures.idle.charges import Charges, behind, wait_causes, won_without_waits_ns
from timesink.measures.idle.input_pipeline import input_prepared
from timesink.measures.idle.pieces import GapCutter, Pieces
from timesink.measures.steps.per_step import begun_per_step, per_step_ns, step_weights, step_windows
from timesink.measures.timeline import Device, device_gaps, device_timeline
from timesink.measures.timeline.launches import launched_ahead
from timesink.measures.timeline.replay import work_of
from timesink.model.arrays import WEIGHTY, Int64Array, slices
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import key_slices, slice_of
from timesink.model.schema import nulls, picked, stacked
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, OS_CALLS, RANGES
from timesink.model.trace import Trace, compute_ahead, remembered
from timesink.records import Record
from timesink.whatif.graph import RankWork

_PLACES: Final = {"host_op": HOST_OPS, "range": RANGES, "frame": FRAMES, "os_call": OS_CALLS}
_OF_CODE: Final = pl.Series(CAUSES, dtype=IdleCause)
_ROWS: Final = ("call_row", "sync_row", "op_row", *(f"{name}_row" for name in _PLACES))
_SCHEMA: Final = pl.Schema(
    dict.fromkeys(("rank", "device"), pl.Int32())
    | dict.fromkeys(("start_ns", "end_ns"), pl.Int64())
    | {"cause": IdleCause}
    | dict.fromkeys(("host", *_ROWS), pl.Int32())
)


class IdleBlame(Record, eq=False):
    """`stretches`: one row per stretch of idle time, by rank, device, start. Their lengths sum to the idle time.

    - rank, device, start_ns, end_ns: the stretch. cause: an `IdleCause`.
    - host: who kept the device waiting, a number in `threads`; null for causes on the device.
    - call_row: row of `api_calls` that the stretch is blamed on: the blocking call of `sync`, the call that the thread
      was in, or the launch of `launch_latency`; null where none. os_call_row: row of `os_calls` of `os_call` stretches.
    - sync_row: row of `api_calls` of the blocking call that drained the device, in stretches of the host until it is
      ahead again, whatever their own cause: a wait is charged with as much as the host lost by it (`charges`).
    - op_row: row of `device_ops` that ended the gap. host_op_row, range_row, frame_row: innermost operator, range and
      Python frame around the stretch's start (for `sync`: around the blocking call), rows of their tables.

    `unrecorded_code` is host time in which no operator, call or frame was recorded: Python without stacks, or a
    thread that waited. `migration` is the time before the driver moves unified memory: until host or device touches a
    page, or between the pieces of one transfer. `unexplained` means that the op was queued, nothing known held it up,
    and it started late.
    """

    stretches: pl.DataFrame
    threads: tuple[tuple[int, int], ...]
    names: Mapping[str, pl.Series]

    @property
    def frame(self) -> pl.DataFrame:
        """All stretches, told in full."""
        return self.told(self.stretches, *NAMED).select(*_TOLD)

    @property
    def idle_ns(self) -> int:
        """Idle time of all devices, summed."""
        return int((self.stretches["end_ns"] - self.stretches["start_ns"]).sum())

    def on(self, device: Device) -> pl.DataFrame:
        """The stretches of one device."""
        first, last = slice_of(self.stretches, ("rank", "device"), device)
        return self.stretches[first:last]

    def ended_by(self, rows: Int64Array) -> pl.DataFrame:
        """Every stretch of the gaps that one of these device ops ended, by rows of `device_ops`."""
        return picked(self.stretches, self.stretches["op_row"].is_in(pl.Series(rows, dtype=pl.Int32).implode()))

    def told(self, stretches: pl.DataFrame, *columns: str) -> pl.DataFrame:
        """Some of the stretches with columns out of process, thread and the names that go with their rows, which are
        untrusted text: call (of `os_call` stretches, that into the operating system), host_op, range, frame."""
        told = [self._thread(stretches["host"], name) for name in ("process", "thread") if name in columns]
        for name in columns:
            if name in self.names:
                named = _gathered(self.names[name], stretches[f"{name}_row"])
                if name == "call":
                    named = named.fill_null(_gathered(self.names["os_call"], stretches["os_call_row"]))
                told.append(named.alias(name))
        return stretches.with_columns(told)

    def _thread(self, host: pl.Series, part: Literal["process", "thread"]) -> pl.Series:
        numbers = [thread[part == "thread"] for thread in self.threads]
        return pl.Series(part, numbers, dtype=pl.Int64).gather(host.cast(pl.UInt32))


NAMED: Final = ("process", "thread", "call", "host_op", "range", "frame")
_TOLD: Final = (
    *("rank", "device", "start_ns", "end_ns", "cause", "process", "thread", "call_row", "sync_row", "op_row"),
    *("host_op_row", "range_row", "frame_row", *NAMED[2:]),
)  # fmt: skip


@compute_ahead
@remembered
def idle_blame(trace: Trace) -> IdleBlame:
    """Blame every gap of every device, rank by rank."""
    ranks = sorted({rank for rank, _ in device_timeline(trace).by_device})
    return _blame(trace, {rank: work_of(trace, rank) for rank in ranks})


def idle_of_rank(trace: Trace, rank: int) -> pl.DataFrame:
    """The rows of `IdleBlame.frame` of one rank alone, where those of a thousand others are not asked for."""
    return _blame(trace, {rank: RankWork.read_work(trace, rank)}).frame


def _blame(trace: Trace, work_of_rank: Mapping[int, RankWork]) -> IdleBlame:
    threads: list[tuple[int, int]] = []

    def parts() -> Iterator[pl.DataFrame]:
        for rank, work in work_of_rank.items():
            yield from _blame_rank(trace, rank, work, len(threads))
            threads.extend(work.calls.threads)

    stretches = stacked(parts(), _SCHEMA)
    if stretches.height > WEIGHTY:  # what the cutting needed is up to a fifth of all memory
        give_back()
    names = {name: trace.get(table)["name"] for name, table in {"call": API_CALLS, **_PLACES}.items()}
    return IdleBlame(stretches, tuple(threads), names)


def intervals_of(stretches: pl.DataFrame) -> dict[tuple[int, int], Intervals]:
    """The stretches per (rank, device): what a finding claims."""
    devices = key_slices(stretches, ("rank", "device"))
    return {(rank, device): Intervals.of(stretches[first:last]) for (rank, device), first, last in devices}


def _blame_rank(trace: Trace, rank: int, work: RankWork, first_thread: int) -> Iterator[pl.DataFrame]:
    """Each gap is blamed for itself, a slice of gaps at a time: that bounds the memory that the cutting needs.

    Slices and their pieces are of one device and in order, and no stretch leaves its gap: they follow each other.
    """
    activity = host_activity(trace, work, _host_late_gaps(trace, rank))
    migrates = matches(trace[DEVICE_OPS]["name"][work.ops.row], MIGRATION).to_numpy()
    cutter = GapCutter.of(work, activity, migrates)
    charges = _charges(trace, rank, cutter)
    for gaps in device_gaps(trace).slices(rank):
        if gaps.height:
            pieces = charges[gaps.item(0, "device")].charge(cutter.cut(gaps))
            yield _stretches(first_thread, gaps, pieces, activity)


def _charges(trace: Trace, rank: int, cutter: GapCutter) -> dict[int, Charges]:
    """What the stretches of each device of a rank are charged to.

    Where a replay without the waits surely wins back half of the host's time after them, they are the root of all of
    it; else each is charged with what it lost, or its part of what the replay wins.
    """
    ahead = {device: ahead_ns for (of_rank, device), ahead_ns in launched_ahead(trace).items() if of_rank == rank}
    drained, behind_ns, behind_per_step = [np.empty(0, np.int64)], 0, 0.0
    for gaps in device_gaps(trace).slices(rank):
        if gaps.height:
            device = gaps.item(0, "device")
            drained.append(cutter.drained_at(gaps))
            late = behind(gaps, drained[-1], ahead[device])
            behind_ns += late.total_ns
            behind_per_step += per_step_ns(trace, (rank, device), late)
    sure_ns, won_ns = won_without_waits_ns(trace, rank) if behind_ns else (0.0, 0.0)
    per_wait_ns = won_ns / max(begun_per_step(trace, rank, pl.Series(np.concatenate(drained))), 1.0)
    each_ns = behind_ns if is_effective(sure_ns, behind_per_step) else int(per_wait_ns)
    called = wait_causes(trace), trace.get(API_CALLS)["start_ns"].to_numpy()
    prepared = input_prepared(trace, rank)
    return {device: Charges(prepared, ahead_ns, *called, each_ns) for device, ahead_ns in ahead.items()}


def is_effective(won_ns: float, after_ns: float) -> bool:
    """Whether what a replay wins is a good part of the time after what it leaves out, which then is its root."""
    return won_ns > assumed.EFFECTIVE_SHARE.value * after_ns


def _host_late_gaps(trace: Trace, rank: int) -> Intervals:
    """The gaps of a rank in which the launch of the op that ended them was made."""
    parts = [gaps.filter(pl.col("launch_start_ns") > pl.col("start_ns")) for gaps in device_gaps(trace).slices(rank)]
    return Intervals.union_all(Intervals.of(late) for late in parts)


def _stretches(first_thread: int, gaps: pl.DataFrame, pieces: Pieces, activity: HostActivity) -> pl.DataFrame:
    """The pieces of some gaps as rows of `IdleBlame.stretches`; threads are numbered from `first_thread` on."""
    on_host = pieces.thread >= 0
    rows = {
        f"{name}_row": np.where(
            pieces.cause == CAUSE_CODE["os_call"] if table is OS_CALLS else on_host,
            activity.by_table[table].row_at(pieces.timeline, pieces.asked_ns), -1,
        )
        for name, table in _PLACES.items() if activity.by_table[table].row.size
    }  # fmt: skip
    numbers = {
        "host": np.where(on_host, pieces.thread + first_thread, -1), "call_row": pieces.call_row,
        "sync_row": pieces.sync_row, **rows,
    }  # fmt: skip
    columns: dict[str, pl.Series] = {
        **gaps.select("rank", "device", op_row="op")[pieces.gap].to_dict(),
        "start_ns": pl.Series(pieces.start_ns),
        "end_ns": pl.Series(pieces.end_ns),
        "cause": _OF_CODE.gather(pl.Series(pieces.cause, dtype=pl.UInt32)),
    }
    none = nulls(pl.Int32(), pieces.gap.size)
    columns |= {name: _nullable(numbers[name]) if name in numbers else none for name in _SCHEMA if name not in columns}
    return pl.DataFrame([columns[name].cast(dtype).alias(name) for name, dtype in _SCHEMA.items()])


def _nullable(values: Int64Array) -> pl.Series:
    narrow = pl.Series(values.astype(np.int32))
    return narrow.set(narrow < 0, None)


def _gathered(names: pl.Series, rows: pl.Series) -> pl.Series:
    """The name of each row; null where there is none."""
    if rows.null_count() == len(rows):
        return nulls(pl.Categorical(), len(rows), names.name)
    return names[rows.cast(pl.UInt32)]


_ALWAYS: Final = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class IdleShare(Record, eq=False):
    """Idle time of one cause on one device: all of it in `idle_ns` and `stretches`, its mean per step."""

    rank: int
    device: int
    cause: str
    idle_ns: int
    per_step_ns: float
    stretches: int


@remembered
def idle_shares(trace: Trace) -> tuple[IdleShare, ...]:
    """By device, the largest first. Those of a device sum to its idle time."""
    shares = [share for device in device_timeline(trace).by_device for share in _shares(trace, device)]
    return tuple(sorted(shares, key=lambda share: (share.rank, share.device, -share.idle_ns, share.cause)))


def _shares(trace: Trace, device: Device) -> Iterator[IdleShare]:
    """The shares of a device, one for each cause of any idle time."""
    start_ns, end_ns = step_windows(trace, device)
    weight, mean_ns = step_weights(trace, device), dict.fromkeys(CAUSES, 0.0)
    for each in np.unique(weight):  # slow steps count otherwise than the others
        alike = Intervals.union_of(start_ns[weight == each], end_ns[weight == each])
        for cause, in_steps_ns, _ in by_cause(trace, device, alike):
            mean_ns[cause] += in_steps_ns * float(each) / start_ns.size
    for cause, idle_ns, stretches in by_cause(trace, device, Intervals.one(*_ALWAYS)):
        yield IdleShare(*device, cause, idle_ns, mean_ns[cause], stretches)


def by_cause(trace: Trace, device: Device, within: Intervals) -> Iterator[tuple[str, int, int]]:
    """Each cause of a device's idle time with its time and its number of stretches inside `within`."""
    frame = idle_blame(trace).on(device)
    sums, counts = np.zeros(len(CAUSES), np.int64), np.zeros(len(CAUSES), np.int64)
    for rows in slices(0, frame.height):
        some = frame[rows]
        code = some["cause"].to_physical().to_numpy()
        inside_ns = within.covered_ns(some["start_ns"], some["end_ns"])
        sums += summed(code, inside_ns, len(CAUSES))
        counts += np.bincount(code[inside_ns > 0], minlength=len(CAUSES))
    for cause, idle_ns, stretches in zip(CAUSES, sums.tolist(), counts.tolist(), strict=True):
        if stretches:
            yield cause, idle_ns, stretches


@remembered
def idle_places(trace: Trace) -> pl.DataFrame:
    """The stretches of the idle blame with the cause as text and `idle_ns`, their length."""
    length = (pl.col("end_ns") - pl.col("start_ns")).alias("idle_ns")
    return idle_blame(trace).frame.with_columns(pl.col("cause").cast(pl.String), length)


def idle_by_step(trace: Trace, device: Device) -> dict[str, Int64Array]:
    """Idle time of a device by cause, the largest first, in each of its steady steps."""
    windows = step_windows(trace, device)
    causes = [share.cause for share in idle_shares(trace) if (share.rank, share.device) == device]
    return {cause: idle_of_cause(trace, device, cause).covered_ns(*windows) for cause in causes}


def idle_of_cause(trace: Trace, device: Device, cause: str) -> Intervals:
    """When a device was idle for one cause."""
    frame = idle_blame(trace).on(device)
    return Intervals.of(picked(frame, frame["cause"] == cause))


def idle_after_work(trace: Trace, device: Device) -> Intervals:
    """When pages of unified memory move behind a device's last kernel: the CPU reads what the GPU wrote."""
    pages, kernels = idle_of_cause(trace, device, "migration"), device_timeline(trace)[device].compute
    return pages.clip(int(kernels.end_ns.max(initial=0)), _ALWAYS[1])
