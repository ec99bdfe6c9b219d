"""Idle time of the steady steps by cause, with the place that accounts for most of it.

A blocking wait throws away the host's lead. Until it is regained, every launch comes late, and the gaps look like slow
operators or slow Python. A replay of the dependency graph without the waits says whether they are the root of those
gaps (`sync_gain`): where the host is too slow even without waiting, the replay wins little and the gaps keep their own
causes.

Idle time in which the host worked towards the next launch (`launching_time`) is told apart from idle time in which it
did something else (`python_time`). Untraced time between operators and calls can be either: framework dispatch (module
calls, wrappers, and all of it where no operators were recorded) takes microseconds at a time, so short stretches count
as dispatch and long ones as Python.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, get_args

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.calls import FREE
from timesink.measures.idle.blame import idle_blame, input_prepared, intervals_of
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.idle.places import NOWHERE, READ, placed
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.measures.timeline.launches import launched_ahead
from timesink.measures.timeline.replay import calibrated_pricers, deflated_pricers, pricers
from timesink.measures.timeline.start_up import start_up
from timesink.model.arrays import Int32Array, Int64Array, slices
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import key_slices, slice_of
from timesink.model.schema import nulls, picked
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass
from timesink.whatif.change import Case
from timesink.whatif.changes.host import RemoveSyncs

Root = Literal["wait", "allocator", "copy_in", "copy_out"]
_ROOTS: Final = pl.Enum(list(get_args(Root)))
_OS_CALL: Final = "os_call"  # takes as long whether the host waited before it or not: no restart
_RESTART: Final = (*(cause for cause in HOST_CAUSES if cause != _OS_CALL), "launch_latency")
_DISPATCH: Final = ("dispatch", "cuda_call", "launch_latency", "untraced")
_PYTHON: Final = ("python", "untraced", "logging", "checkpoint")
_LAUNCHING: Final = (*_DISPATCH, "python", "optimizer")


@dataclass(frozen=True, slots=True, eq=False)
class BlamedTime:
    """Idle time of one device for a set of causes: its intervals, its mean per step, and its share of the step.

    The step is the recorded window where there are no steps. `host` holds the same time per (process, thread) that kept
    the device waiting. `thread`, `call`, `host_op`, `range`, `frame` name the place with the most of that time (None
    where no name was recorded); `file` and `line` are the program's own frame around it, where stacks were recorded.
    Names are untrusted text. `rows` are rows of `device_ops` that ended the longest stretches.
    """

    device: Device
    intervals: Intervals
    per_step_ns: float
    step_ns: float
    host: Mapping[tuple[int, int], Intervals]
    thread: int | None
    call: str | None
    host_op: str | None
    range: str | None
    frame: str | None
    rows: tuple[int, ...]
    file: str | None = None
    line: int | None = None

    @property
    def share(self) -> float:
        """Share of the step, 0 to 1."""
        return self.per_step_ns / self.step_ns if self.step_ns else 0.0


def drained_time(trace: Trace, root: Root, *causes: str) -> tuple[BlamedTime, ...]:
    """Per device: idle time that drains of one kind are the root of, outside the preparation of input, together with
    that of `causes`, wherever it is.

    After a drain that is everything until the host is ahead again, where a replay without the waits wins it back
    (`sync_gain`); otherwise what the host lost by waiting, no more.
    """
    of_root = (pl.lit(sync_gain(trace).root) == root).fill_null(False)
    waited = of_root & ((pl.col("cause") == "sync") | pl.lit(_removable(trace)))
    return _blamed_of(trace, waited | pl.col("cause").is_in(list(causes)), preparing=False)


def blamed_time(
    trace: Trace, causes: Collection[str], *, preparing: bool | None = None, wanted: pl.Expr | None = None
) -> tuple[BlamedTime, ...]:
    """Per device that did any work, in order: the idle stretches of these causes, and of them those `wanted`.

    `preparing` keeps only the part inside (True) or outside (False) the preparation of input. Outside, stretches that
    blocking waits are the root of (`drained_time`) are left out.
    """
    chosen = pl.col("cause").is_in(list(causes))
    if wanted is not None:
        chosen &= wanted
    if preparing is False:
        chosen &= ~pl.lit(_removable(trace))
    return _blamed_of(trace, chosen, preparing)


@remembered
def launching_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in framework dispatch, CUDA calls and launch latency, outside input, waits and start-up.

    Where that is more than what Python takes, it is the launching of the whole step that the device waits for, its
    Python and its optimizer included: a CUDA graph takes the place of all three.
    """
    later = pl.lit(~start_up(trace).holds(idle_blame(trace).stretches))
    dispatch = blamed_time(trace, _DISPATCH, preparing=False, wanted=later & ~_untraced_python())
    python_ns = {part.device: part.per_step_ns for part in python_time(trace)}
    if all(part.per_step_ns <= python_ns[part.device] for part in dispatch):
        return dispatch
    launching = {part.device: part for part in blamed_time(trace, _LAUNCHING, preparing=False, wanted=later)}
    return tuple(launching[part.device] if part.per_step_ns > python_ns[part.device] else part for part in dispatch)


@remembered
def python_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in Python and other host work that launches nothing, outside input and waits."""
    return blamed_time(trace, _PYTHON, preparing=False, wanted=(pl.col("cause") != "untraced") | _untraced_python())


def system_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in calls into the operating system, and between those that move data, outside input."""
    return blamed_time(trace, (_OS_CALL,), preparing=False)


def _untraced_python() -> pl.Expr:
    """Whether an untraced stretch is Python rather than dispatch."""
    return (pl.col("cause") == "untraced") & (pl.col("end_ns") - pl.col("start_ns") >= assumed.DISPATCH_MOST_US.ns)


@remembered
def _removable(trace: Trace) -> pl.Series:
    """Whether each stretch comes after a drain, on a rank whose waits are worth removing."""
    gain = sync_gain(trace)
    return gain.root.is_not_null() & idle_blame(trace).stretches["rank"].is_in(gain.effective_ranks)


def _blamed_of(trace: Trace, chosen: pl.Expr, preparing: bool | None) -> tuple[BlamedTime, ...]:
    stretches = idle_blame(trace).stretches
    stretches = picked(stretches.select(READ), stretches.select(chosen).to_series())
    by_device = intervals_of(stretches)
    blamed = []
    for device in device_timeline(trace).by_device:
        intervals = by_device.get(device, Intervals.none())
        if preparing is not None:
            prepared = input_prepared(trace, device[0])
            intervals = intervals & prepared if preparing else intervals - prepared
        first, last = slice_of(stretches, ("rank", "device"), device)
        blamed.append(_blamed(trace, device, stretches[first:last], intervals))
    return tuple(blamed)


def _blamed(trace: Trace, device: Device, stretches: pl.DataFrame, intervals: Intervals) -> BlamedTime:
    """The time of one device: the part of its stretches inside `intervals`."""
    return BlamedTime(
        device=device,
        intervals=intervals,
        per_step_ns=per_step_ns(trace, device, intervals),
        step_ns=period_ns(trace, device),
        **(placed(trace, stretches, intervals) if len(intervals) else NOWHERE),
    )


@dataclass(frozen=True, slots=True, eq=False)
class SyncGain:
    """`root`: for each row of the idle blame, what drained the device before it, where the host is not ahead yet:
    a wait, a call that frees memory (allocator), or the wait of a pageable copy to the device (copy_in) or from it
    (copy_out); null elsewhere.

    Per rank: `behind_ns`, that time per kept step (all devices), and `gain_ns`, what a replay without the waits wins
    per step; None where the trace cannot be replayed.
    """

    root: pl.Series
    behind_ns: Mapping[int, float]
    gain_ns: Mapping[int, float | None]

    def effective(self, rank: int) -> bool:
        """Whether the waits of a rank are the root of the idle time after them."""
        gain = self.gain_ns.get(rank)
        return gain is not None and gain > assumed.EFFECTIVE_SHARE.value * self.behind_ns[rank]

    @property
    def effective_ranks(self) -> list[int]:
        """Ranks whose waits are worth removing."""
        return [rank for rank in self.behind_ns if self.effective(rank)]


@remembered
def sync_gain(trace: Trace) -> SyncGain:
    """Follow every drain until the host is ahead again, and replay each rank without its waits."""
    sync_row = _draining_calls(trace)
    frame = idle_blame(trace).stretches.select("rank", "start_ns", "end_ns").filter(pl.Series(sync_row >= 0))
    behind_ns: dict[int, float] = {}
    gain_ns: dict[int, float | None] = {}
    windows = steps(trace).windows
    for rank in frame["rank"].unique().sort():
        idle = Intervals.of(frame.filter(pl.col("rank") == rank))
        window = windows.filter(pl.col("rank") == rank)
        covered = idle.covered_ns(window["start_ns"].to_numpy(), window["end_ns"].to_numpy())
        behind_ns[rank] = float(covered.mean()) if covered.size else float(idle.total_ns)
        gain_ns[rank] = max(_gains_ns(trace, rank), default=None) if behind_ns[rank] > 0 else None
    return SyncGain(_roots(trace, sync_row), behind_ns, gain_ns)


def _gains_ns(trace: Trace, rank: int) -> list[float]:
    """What removing the waits wins of the profiled step: as profiled, and as without the profiler: calibrated to the
    step time where that is known, else with the expected cost of recording taken off.

    A profiler slows the host, so that waits which cost time without it may cost none with it.
    """
    pricer = pricers(trace).get(rank)
    if pricer is None:
        return []
    step_ns = trace.unprofiled_step_ns
    pricers_to_try = [pricer]
    if step_ns is None:
        pricers_to_try.append(deflated_pricers(trace)[rank][Case.EXPECTED.value])
    elif step_ns < pricer.step_ns:
        pricers_to_try.append(calibrated_pricers(trace)[rank])
    change = RemoveSyncs()
    shown = [each for each in pricers_to_try if each.refused(change) is None]
    return [each.gain_ns(change) * pricer.step_ns / each.step_ns for each in shown]


def _draining_calls(trace: Trace) -> Int32Array:
    """For each row of the idle blame, the call (row of `api_calls`) whose drain the host has not recovered from, or -1.

    Stretches of drained gaps have it from the blame. A stretch of a host cause gets that of the last drain before it,
    unless a launch that was far ahead started its work in between. With such a start at 50::

        stretch from  cause     blame says  answer
        10            sync      call 7      7
        30            dispatch  none        7
        60            dispatch  none        -1, the host was ahead at 50
        70            python    none        -1
    """
    frame = idle_blame(trace).stretches
    ahead = launched_ahead(trace)
    start, answer = frame["start_ns"].to_numpy(), np.array(frame["sync_row"].fill_null(-1))
    restart = frame["cause"].is_in(list(_RESTART)).to_numpy()
    for (rank, device), first, last in key_slices(frame, ("rank", "device")):
        drains = first + np.flatnonzero(answer[first:last] >= 0)
        drained_ns, draining = start[drains], answer[drains]
        for rows in slices(first, last if drains.size else first):
            before = places(drained_ns, start[rows], True) - 1
            lagging = (answer[rows] < 0) & (before >= 0) & restart[rows]
            lagging &= drained_ns[before] > _latest(ahead[rank, device], start[rows])
            answer[rows] = np.where(lagging, draining[before], answer[rows])
    answer[(frame["cause"] == _OS_CALL).to_numpy()] = -1
    return answer


def _latest(times_ns: Int64Array, at_ns: Int64Array) -> Int64Array:
    """The last of the sorted times at or before each instant; the least integer where there is none."""
    before = places(times_ns, at_ns, True) - 1
    least = np.int64(np.iinfo(np.int64).min)
    return np.where(before >= 0, times_ns[before], least) if times_ns.size else np.full(before.size, least)


def _roots(trace: Trace, sync_row: Int32Array) -> pl.Series:
    """What each draining call was."""
    calls = trace.get(API_CALLS)
    if not calls.height or not (sync_row >= 0).any():
        return nulls(_ROOTS, sync_row.size, "root")
    place = np.full(calls.height + 1, -1, np.int32)  # in `rows`, for each call; the last one stands for no call
    place[sync_row] = 0
    place[-1] = -1
    rows = np.flatnonzero(place == 0)
    place[rows] = np.arange(rows.size)
    to_device, to_host = _rows_of_copies(trace, "h2d"), _rows_of_copies(trace, "d2h")
    kind = pl.DataFrame(
        {
            "sync_row": rows,
            "allocator": matches(calls["name"][rows], FREE),
            "copy_in": np.isin(rows - 1, to_device),
            "copy_out": np.isin(rows - 1, to_host) | np.isin(rows, to_host),  # the copy itself blocks, or its wait does
        }
    )
    root = pl.coalesce(pl.when(name).then(pl.lit(name)) for name in ("allocator", "copy_in", "copy_out"))
    named = kind.select(root.fill_null("wait").cast(_ROOTS).alias("root")).to_series()
    at = pl.Series(place[sync_row])
    return named.gather(pl.select(pl.when(at >= 0).then(at)).to_series())


def _rows_of_copies(trace: Trace, direction: Literal["h2d", "d2h"]) -> Int64Array:
    """Calls that copied more than a value through pageable memory; the wait is the thread's next call."""
    host_side = "src_memory" if direction == "h2d" else "dst_memory"
    is_data = pl.col("bytes") >= fixes.STAGED_BYTES.whole
    data = (pl.col("copy_kind") == direction) & (pl.col(host_side) == "pageable") & is_data
    copied = trace.get(DEVICE_OPS).select(data.fill_null(False)).to_series().to_numpy()
    call = launch_links(trace).call
    return np.unique(call[copied & (call >= 0)])
