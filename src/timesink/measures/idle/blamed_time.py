"""Idle time of the steady steps by cause, with the place that accounts for most of it.

Idle time in which the host worked towards the next launch, and idle time in which it did something else.

Time between operators and calls in which nothing was traced is both: framework dispatch (module calls, wrappers, and
all of it where no operators were recorded) takes microseconds at a time, so short stretches count as dispatch and long
ones as Python.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import polars as pl

from timesink.measures.idle.blame import idle_blame, intervals_of
from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.idle.sync_gain import Root, sync_gain
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of
from timesink.model.trace import Trace
from timesink.units import NS_PER_US

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
