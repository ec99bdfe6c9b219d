"""Runs of one session: make one, condense its steps, watch the GPU meanwhile; the order of the two sides.

Where warm-up ends in a series of step times, and whether it ever does.

MSER-5 (White 1997; White, Cobb and Spratt 2000): cut the prefix that minimises the squared standard error of the mean
of what remains, computed on means of five. A cut at half means the series never settled. The remainder is
tested for a trend with Kendall's tau (Mann-Kendall).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from timesink.model.arrays import Float64Array, Int64Array
from timesink.verify.gpu_watch import GpuState, GpuWatch
from timesink.verify.limits import DRIFT_P, FIXED_DROP, MSER_BATCH, MSER_MIN_STEPS, STEADY_CUT
from timesink.verify.outcomes import RunRow
from timesink.verify.processes import Command, run
from timesink.verify.step_source import StepSource, StepTimes


@dataclass(frozen=True, slots=True, eq=False)
class Steady:
    """The steady part of one run: `kept` step times, `dropped` steps before them, and what was found on the way.

    `drift_ratio` is the relative change over the kept part along its Theil-Sen line, 0 where the trend test sees none.
    """

    kept: Float64Array
    dropped: int
    settled: bool
    drift_ratio: float
    how: str


def mser_cut(series: npt.ArrayLike, batch: int = int(MSER_BATCH.default)) -> Int64Array:
    """Steps to drop by MSER over the last axis (a multiple of `batch`); elementwise over leading axes.

    Candidates end at half the batches: past it few batches are left, which often lie close together by chance. A cut
    at that end means the series never settled.
    """
    values = np.asarray(series, dtype=np.float64)
    count = values.shape[-1] // batch
    means = values[..., : count * batch].reshape(*values.shape[:-1], count, batch).mean(-1)
    means = means - means.mean(-1, keepdims=True)
    left = np.arange(count, 0, -1)
    total = np.flip(np.cumsum(np.flip(means, -1), -1), -1)
    squares = np.flip(np.cumsum(np.flip(means**2, -1), -1), -1)
    statistic = (squares - total**2 / left) / left**2
    return np.asarray(np.argmin(statistic[..., : int(count * STEADY_CUT.default) + 1], axis=-1) * batch, dtype=np.int64)


def steady_part(series: npt.ArrayLike) -> Steady:
    """Cut the warm-up off one run's step times (any unit). Short series lose a fixed share, and `how` says so."""
    values = np.asarray(series, dtype=np.float64)
    count = len(values)
    if count < MSER_MIN_STEPS.default:
        cut = int(np.ceil(count * FIXED_DROP.default)) if count > 1 else 0
        how = (
            f"first {cut} of {count} steps dropped: under {MSER_MIN_STEPS.default:.0f} steps warm-up cannot be detected"
        )
        return Steady(values[cut:], cut, True, trend(values[cut:]), how)
    cut = int(mser_cut(values))
    batch = int(MSER_BATCH.default)
    settled = cut < int(count // batch * STEADY_CUT.default) * batch
    how = f"first {cut} of {count} steps dropped by MSER-5"
    return Steady(values[cut:], cut, settled, trend(values[cut:]), how)


def trend(values: Float64Array) -> float:
    """Relative change along the Theil-Sen line of the batch means where Mann-Kendall sees a trend; else 0."""
    batch = int(MSER_BATCH.default)
    count = len(values) // batch
    if count < 4:
        return 0.0
    means = values[: count * batch].reshape(count, batch).mean(-1)
    if np.ptp(means) == 0 or stats.kendalltau(np.arange(count), means).pvalue >= DRIFT_P.default:
        return 0.0
    slope, level, _, _ = stats.theilslopes(means, np.arange(count))
    return float(slope * (count - 1) / level) if level > 0 else 0.0


Side = Literal["before", "after"]
SIDES: tuple[Side, Side] = ("before", "after")
_PERCENTILE = 95


def pair_order(pair: int) -> tuple[Side, Side]:
    """Who goes first in pair 0, 1, 2, ...: AB BA BA AB, repeated, so that linear drift cancels over an even count."""
    return SIDES if pair % 4 in (0, 3) else (SIDES[1], SIDES[0])


@dataclass(frozen=True, slots=True)
class Session:
    """What all runs of a comparison share: commands, step source, output folder, GPU watch, time limit per run."""

    commands: Mapping[Side, Command]
    source: StepSource
    folder: Path
    watch: GpuWatch
    timeout_s: float = 1800.0

    def launch(self, side: Side, number: int) -> RunRow:
        """One run in a fresh process. Raises `ToolFailed` where it fails or hands over no steps."""
        folder = self.folder / f"run{number:03d}_{side}"
        folder.mkdir(mode=0o700)
        foreign = self.watch.foreign_processes()
        finished = run(self.commands[side], folder, extra=self.source.environment(folder), timeout_s=self.timeout_s)
        times = self.source.collect(folder, finished)
        return summarise(times, side, number, self.watch.state(finished.started_s, finished.ended_s, foreign))


def summarise(times: StepTimes, side: str, number: int, gpu: GpuState | None = None) -> RunRow:
    """Condense a run to its steady part: mean (what throughput is made of), median, 95th percentile, seconds."""
    steady = steady_part(times.seconds)
    state = gpu or GpuState(0)
    return RunRow(
        number=number,
        side=side,
        mean_s=float(steady.kept.mean()),
        median_s=float(np.median(steady.kept)),
        p95_s=float(np.percentile(steady.kept, _PERCENTILE)),
        steps=len(times.seconds),
        dropped=steady.dropped,
        settled=steady.settled,
        drift_ratio=steady.drift_ratio,
        receipt=times.receipt,
        sm_mhz=state.sm_mhz,
        celsius=state.celsius,
        slowed_by=state.slowed_by,
        foreign=state.foreign,
    )


def numbered(first: int = 0) -> Iterator[int]:
    """Run numbers, for folders and tables."""
    while True:
        yield first
        first += 1
