"""How the idle time of each device splits by cause, as every view shows it.

The blame of a gap says what the host did; where it did that while preparing input, the device waited for input,
whatever the call that the host was in. `loader` therefore holds all of the time that the rule on the input pipeline
accounts for, and the other causes what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import polars as pl

from timesink._native import summed
from timesink.measures.idle.blame import NAMED, idle_blame
from timesink.measures.idle.causes import CAUSES, HOST_CAUSES
from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.model.arrays import BoolArray, Int64Array, slices
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass
from timesink.model.trace import Trace, remembered

PREPARING = "loader"
_ALWAYS = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class IdleShare:
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
    kept_ns = {cause: in_steps for cause, in_steps, _ in by_cause(trace, device, Intervals.union_of(start_ns, end_ns))}
    for cause, idle_ns, stretches in by_cause(trace, device, Intervals.one(*_ALWAYS)):
        yield IdleShare(*device, cause, idle_ns, kept_ns.get(cause, 0) / start_ns.size, stretches)


def by_cause(trace: Trace, device: Device, within: Intervals) -> Iterator[tuple[str, int, int]]:
    """Each cause of a device's idle time with its time and its number of stretches inside `within`."""
    frame, loading, prepared = idle_blame(trace).on(device), CAUSES.index(PREPARING), input_prepared(trace, device[0])
    prepared &= within
    sums, counts = np.zeros(len(CAUSES), np.int64), np.zeros(len(CAUSES), np.int64)
    for rows in slices(0, frame.height):
        some = frame[rows]
        preparing_ns, code = prepared_ns(prepared, some), some["cause"].to_physical().to_numpy()
        own_ns = within.covered_ns(some["start_ns"], some["end_ns"]) - preparing_ns
        sums += summed(code, own_ns, len(CAUSES))
        counts += np.bincount(code[own_ns > 0], minlength=len(CAUSES))
        sums[loading] += preparing_ns.sum()
        counts[loading] += np.count_nonzero(preparing_ns > 0)
    for cause, idle_ns, stretches in zip(CAUSES, sums.tolist(), counts.tolist(), strict=True):
        if stretches:
            yield cause, idle_ns, stretches


def prepared_ns(prepared: Intervals, frame: pl.DataFrame) -> Int64Array:
    """How much of each stretch of a device lies in the preparation of input, while the host is to blame."""
    return np.where(_is_of(frame, HOST_CAUSES), prepared.covered_ns(frame["start_ns"], frame["end_ns"]), 0)


@remembered
def idle_places(trace: Trace) -> pl.DataFrame:
    """The stretches of the idle blame with the cause as text and `idle_ns`; a stretch that lies in the preparation of
    input only in part is two rows."""
    parts = []
    for device in device_timeline(trace).by_device:
        blame = idle_blame(trace)
        frame = blame.told(blame.on(device), *NAMED).with_columns(pl.col("cause").cast(pl.String))
        length = frame["end_ns"] - frame["start_ns"]
        inside = pl.Series(prepared_ns(input_prepared(trace, device[0]), blame.on(device)))
        parts += [
            frame.with_columns(pl.lit(PREPARING).alias("cause"), inside.alias("idle_ns")),
            frame.with_columns((length - inside).alias("idle_ns")),
        ]
    if not parts:
        return idle_blame(trace).frame.with_columns(pl.col("cause").cast(pl.String), pl.lit(0).alias("idle_ns"))
    return pl.concat(parts).filter(pl.col("idle_ns") > 0)


def input_prepared(trace: Trace, rank: int) -> Intervals:
    """When launching threads of the rank prepared input."""
    found = input_pipeline(trace).by_rank.get(rank)
    return found.loading if found else Intervals.none()


def idle_by_step(trace: Trace, device: Device) -> dict[str, Int64Array]:
    """Idle time of a device by cause, the largest first, in each of its steady steps."""
    windows = step_windows(trace, device)
    causes = [share.cause for share in idle_shares(trace) if (share.rank, share.device) == device]
    return {cause: _stood(trace, device, cause).covered_ns(*windows) for cause in causes}


def _stood(trace: Trace, device: Device, cause: str) -> Intervals:
    frame, prepared = idle_blame(trace).on(device), input_prepared(trace, device[0])
    of_cause = _of(frame, (cause,))
    if cause == PREPARING:
        return of_cause | (_of(frame, HOST_CAUSES) & prepared)
    return of_cause - prepared if cause in HOST_CAUSES else of_cause


def _of(frame: pl.DataFrame, causes: Iterable[str]) -> Intervals:
    chosen = _is_of(frame, causes)
    return Intervals.union_of(frame["start_ns"].to_numpy()[chosen], frame["end_ns"].to_numpy()[chosen])


def _is_of(frame: pl.DataFrame, causes: Iterable[str]) -> BoolArray:
    """Which stretches have one of these causes."""
    wanted = np.isin(CAUSES, list(causes))
    return np.asarray(wanted[frame["cause"].to_physical().to_numpy()], np.bool_)
