"""Which idle time blocking waits are the root of: gaps behind drains, and those until the host is ahead again.

A wait throws away the host's lead. Until it is regained, every launch comes late, and the gaps look like slow operators
or slow Python. A replay of the dependency graph without the waits says whether they really are the root: where the host
is too slow even without waiting, the replay wins little and the gaps keep their own causes.

Idle time of the steady steps by cause, with the place that accounts for most of it.

Idle time in which the host worked towards the next launch, and idle time in which it did something else.

Time between operators and calls in which nothing was traced is both: framework dispatch (module calls, wrappers, and
all of it where no operators were recorded) takes microseconds at a time, so short stretches count as dispatch and long
ones as Python.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import polars as pl

from timesink.measures.idle.blame import idle_blame, intervals_of
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.measures.timeline.launches import launched_ahead
from timesink.measures.timeline.replay import calibrated_pricers, pricers
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.units import NS_PER_US
from timesink.whatif.changes.host import RemoveSyncs

# The host is ahead again once a launch finds this many earlier ones still waiting.
AHEAD_BY: Final = 3
_RESTART: Final = (*HOST_CAUSES, "launch_latency")
# Removing the waits must win at least this share of the idle time behind them, or they are not its root.
EFFECTIVE_RATIO: Final = 1 / 3


# A wait behind a copy of this many bytes from or to pageable memory is part of the copy; behind fewer it hands over a
# value.
COPIED_BYTES: Final = 65_536

Root = Literal["wait", "allocator", "copy_in", "copy_out"]
_ROOTS: Final = pl.Enum(list(get_args(Root)))
_FREES: Final = r"(?i)free"


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
        """Whether the waits of a rank are the root of what lies behind them."""
        gain = self.gain_ns.get(rank)
        return gain is not None and gain > EFFECTIVE_RATIO * self.behind_ns[rank]

    @property
    def effective_ranks(self) -> list[int]:
        """Ranks whose waits are worth removing."""
        return [rank for rank in self.behind_ns if self.effective(rank)]


@remembered
def sync_gain(trace: Trace) -> SyncGain:
    """Follow every drain until the host is ahead again, and replay each rank without its waits."""
    sync_row = _behind_drains(trace)
    frame = idle_blame(trace).frame.filter(pl.Series(sync_row >= 0))
    behind_ns: dict[int, float] = {}
    gain_ns: dict[int, float | None] = {}
    windows = steps(trace).windows
    for rank in frame["rank"].unique().sort():
        mine = Intervals.of(frame.filter(pl.col("rank") == rank))
        window = windows.filter(pl.col("rank") == rank)
        covered = mine.covered_ns(window["start_ns"].to_numpy(), window["end_ns"].to_numpy())
        behind_ns[rank] = float(covered.mean()) if covered.size else float(mine.total_ns)
        gain_ns[rank] = max(_gains_ns(trace, rank), default=None) if behind_ns[rank] > 0 else None
    return SyncGain(_roots(trace, sync_row), behind_ns, gain_ns)


def _gains_ns(trace: Trace, rank: int) -> list[float]:
    """What removing the waits wins of the profiled step: as profiled and, where a step time without the profiler is
    known, calibrated to it.

    A profiler slows the host, so that waits which cost time without it may cost none with it.
    """
    pricer = pricers(trace).get(rank)
    if pricer is None:
        return []
    step_ns = trace.unprofiled_step_ns
    tried = [pricer]
    if step_ns is not None and step_ns < pricer.step_ns:
        tried.append(calibrated_pricers(trace)[rank])
    prices = [one.price(RemoveSyncs()) for one in tried]
    return [price.gain_ns * pricer.step_ns / price.step_ns for price in prices if price.refused is None]


def _behind_drains(trace: Trace) -> Int64Array:
    """For each stretch, the call (row of api_calls) whose drain it lies behind, or -1.

    Besides the drained gaps themselves: stretches of host causes after a drain with no launch far ahead in between.
    """
    frame = idle_blame(trace).frame
    ahead = launched_ahead(trace, AHEAD_BY)
    drained = frame["sync_row"].is_not_null().to_numpy()
    own = frame["sync_row"].fill_null(-1).to_numpy()
    found = own.copy()
    start = frame["start_ns"].to_numpy()
    restart = frame["cause"].is_in(list(_RESTART)).to_numpy()
    keys = frame.select("rank", "device").unique().sort("rank", "device")
    for rank, device in keys.iter_rows():
        mine = ((frame["rank"] == rank) & (frame["device"] == device)).to_numpy()
        drains = np.flatnonzero(mine & drained)
        place = np.searchsorted(start[drains], start[mine], side="right") - 1
        ahead_at = _latest(ahead[rank, device], start[mine])
        after = (place >= 0) & restart[mine]
        if drains.size:
            latest = drains[np.maximum(place, 0)]
            after &= start[latest] > ahead_at
            found[mine] = np.where((found[mine] < 0) & after, own[latest], found[mine])
    return found


def _roots(trace: Trace, sync_row: Int64Array) -> pl.Series:
    """What each draining call was."""
    calls = trace.get(API_CALLS)
    if not calls.height or not (sync_row >= 0).any():
        return pl.Series("root", [None], dtype=_ROOTS).new_from_index(0, sync_row.size)
    rows = np.unique(sync_row[sync_row >= 0])
    to_device, to_host = _rows_of_copies(trace, "h2d"), _rows_of_copies(trace, "d2h")
    kind = pl.DataFrame(
        {
            "sync_row": rows,
            "allocator": matches(calls["name"].gather(rows), _FREES),
            "copy_in": np.isin(rows - 1, to_device),
            "copy_out": np.isin(rows - 1, to_host) | np.isin(rows, to_host),  # the copy itself blocks, or its wait does
        }
    )
    root = pl.coalesce(pl.when(name).then(pl.lit(name)) for name in ("allocator", "copy_in", "copy_out"))
    named = kind.select("sync_row", root.fill_null("wait").cast(_ROOTS).alias("root"))
    return pl.DataFrame({"sync_row": sync_row}).join(named, on="sync_row", how="left", maintain_order="left")["root"]


def _rows_of_copies(trace: Trace, direction: Literal["h2d", "d2h"]) -> Int64Array:
    """Calls that copied more than a value through pageable memory; the wait is the thread's next call."""
    ops = trace.get(DEVICE_OPS)
    host_side = "src_memory" if direction == "h2d" else "dst_memory"
    data = (pl.col("copy_kind") == direction) & (pl.col(host_side) == "pageable") & (pl.col("bytes") >= COPIED_BYTES)
    wanted = ops.select(data.fill_null(False)).to_series().to_numpy()
    link = launch_links(trace).call
    return np.unique(link[wanted & (link >= 0)])


def _latest(times_ns: Int64Array, at_ns: Int64Array) -> Int64Array:
    """The last of the sorted times at or before each instant; the least integer where there is none."""
    place = np.searchsorted(times_ns, at_ns, side="right") - 1
    least = np.iinfo(np.int64).min
    return np.where(place >= 0, times_ns[np.maximum(place, 0)], least) if times_ns.size else np.full(at_ns.size, least)


_READ: Final = (
    "rank", "device", "start_ns", "end_ns", "cause", "process", "thread", "op_row", "call", "host_op", "range", "frame",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class BlamedTime:
    """Idle time of one device for a set of causes: its intervals, its mean per step, and its share of the step.

    `period` says what that step is: the recorded window, where there are no steps. `host` holds the same time per
    (process, thread) that kept the device waiting. `thread`, `call`, `host_op`, `range`, `frame` name the place with
    the most of that time (None where no name was recorded); `place_ratio` is that place's share of it. Names are
    untrusted text. `rows` are rows of `device_ops` that ended the longest stretches.
    """

    device: Device
    intervals: Intervals
    per_step_ns: float
    step_ns: float
    period: Literal["step", "window"]
    host: Mapping[tuple[int, int], Intervals]
    thread: int | None
    call: str | None
    host_op: str | None
    range: str | None
    frame: str | None
    place_ratio: float
    rows: tuple[int, ...]

    @property
    def share(self) -> float:
        """Share of the step, 0 to 1."""
        return self.per_step_ns / self.step_ns if self.step_ns else 0.0


def drained_time(trace: Trace, root: Root, *causes: str) -> tuple[BlamedTime, ...]:
    """Per device: idle time that drains of one kind are the root of, outside the preparation of input; and that of
    `causes`, wherever it lies.

    Everything behind drains until the host is ahead again, where a replay without the waits wins it back (`sync_gain`);
    else what the host lost by waiting, no more.
    """
    frame = idle_blame(trace).frame.select(_READ)
    of_root = pl.lit(sync_gain(trace).root) == root
    waited = of_root.fill_null(False) & ((pl.col("cause") == "sync") | _rooted(trace))
    return _blamed_of(trace, frame.filter(waited | pl.col("cause").is_in(list(causes))), preparing=False)


def blamed_time(
    trace: Trace, causes: Collection[str], *, preparing: bool | None = None, wanted: pl.Expr | None = None
) -> tuple[BlamedTime, ...]:
    """Per device that did any work, in order: the idle stretches of these causes, and of them those `wanted`.

    `preparing` keeps only the part inside (True) or outside (False) the preparation of input. Outside, stretches that
    blocking waits are the root of (`drained_time`) are left out.
    """
    frame = idle_blame(trace).frame.select(_READ)
    chosen = pl.col("cause").is_in(list(causes))
    if wanted is not None:
        chosen &= wanted
    if preparing is False:
        chosen &= ~_rooted(trace)
    return _blamed_of(trace, frame.filter(chosen), preparing)


def _rooted(trace: Trace) -> pl.Expr:
    """Whether each stretch lies behind a drain, on a rank whose waits are worth removing."""
    found = sync_gain(trace)
    return pl.lit(found.root.is_not_null()) & pl.col("rank").is_in(found.effective_ranks)


def _blamed_of(trace: Trace, stretches: pl.DataFrame, preparing: bool | None) -> tuple[BlamedTime, ...]:
    claimed = intervals_of(stretches)
    found = []
    for key in device_timeline(trace).by_device:
        intervals = claimed.get(key, Intervals.none())
        if preparing is not None:
            wait = input_pipeline(trace).by_rank.get(key[0])
            prepared = wait.loading if wait else Intervals.none()
            intervals = intervals & prepared if preparing else intervals - prepared
        found.append(_blamed(trace, key, stretches, intervals))
    return tuple(found)


def _blamed(trace: Trace, key: Device, stretches: pl.DataFrame, intervals: Intervals) -> BlamedTime:
    first, last = slice_of(stretches, ("rank", "device"), key)
    mine = stretches[first:last]
    length = intervals.covered_ns(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())
    mine = mine.with_columns(pl.Series("length", length), _place_range(trace, mine["range"]))
    mine = mine.filter(pl.col("length") > 0)
    longest = mine.select("length", "start_ns", "op_row").sort("length", "start_ns", descending=[True, False])
    names = ["thread", "call", "host_op", "range", "frame"]
    place = (
        mine.group_by(names)
        .agg(pl.col("length").sum())
        .with_columns(pl.col(name).cast(pl.String) for name in names[1:])
        .sort("length", *names, descending=[True, *([False] * len(names))], nulls_last=True)
        .head(1)
    )
    top: dict[str, Any] = dict.fromkeys(names) if not place.height else place.row(0, named=True)
    held = int(place["length"].sum())
    return BlamedTime(
        device=key,
        intervals=intervals,
        per_step_ns=per_step_ns(trace, key, intervals),
        step_ns=period_ns(trace, key),
        period=period_name(trace),
        host=_by_thread(mine, intervals),
        thread=top["thread"],
        call=top["call"],
        host_op=top["host_op"],
        range=top["range"],
        frame=top["frame"],
        place_ratio=held / max(int(length.sum()), 1),
        rows=tuple(longest["op_row"].head(5).to_list()),
    )


def _by_thread(stretches: pl.DataFrame, intervals: Intervals) -> dict[tuple[int, int], Intervals]:
    known = stretches.select("process", "thread", "start_ns", "end_ns").drop_nulls("thread")
    parts = known.partition_by("process", "thread", as_dict=True, maintain_order=True)
    return {(process, thread): Intervals.of(part) & intervals for (process, thread), part in sorted(parts.items())}


def _place_range(trace: Trace, ranges: pl.Series) -> pl.Series:
    """Range names as places in the program: the one that marks steps is none."""
    marker = steps(trace).marker_name
    if not marker:
        return ranges
    is_step = matches(ranges, rf"^{re.escape(marker)}#?\d*$")
    return pl.select(pl.when(~is_step).then(ranges).alias("range")).to_series()


# An eager operator costs the host 5 to 20 us (science 2.3); three of them in a row make no more than this.
DISPATCH_MOST_NS: Final = 60 * NS_PER_US

_DISPATCH: Final = ("dispatch", "cuda_call", "launch_latency", "untraced")
_PYTHON: Final = ("python", "untraced", "logging", "checkpoint")
_WHOLE: Final = (*_DISPATCH, "python", "optimizer")


def launching_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in framework dispatch, CUDA calls and launch latency, outside input and waits.

    Where that is more than what Python takes, it is the launching of the whole step that the device waits for, its
    Python and its optimizer included: a CUDA graph takes the place of all three.
    """
    dispatch = blamed_time(trace, _DISPATCH, preparing=False, wanted=~_untraced_python())
    python = {part.device: part.per_step_ns for part in python_time(trace)}
    whole = {part.device: part for part in blamed_time(trace, _WHOLE, preparing=False)}
    return tuple(whole[part.device] if part.per_step_ns > python[part.device] else part for part in dispatch)


def python_time(trace: Trace) -> tuple[BlamedTime, ...]:
    """Per device: idle time in Python and other host work that launches nothing, outside input and waits."""
    known = pl.col("cause") != "untraced"
    return blamed_time(trace, _PYTHON, preparing=False, wanted=known | _untraced_python())


def _untraced_python() -> pl.Expr:
    """Whether an untraced stretch is Python rather than dispatch."""
    return (pl.col("cause") == "untraced") & (pl.col("end_ns") - pl.col("start_ns") >= DISPATCH_MOST_NS)
