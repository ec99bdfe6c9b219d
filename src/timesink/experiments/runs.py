"""Runs of one session: make one, condense its steps, watch the GPU meanwhile; the order of the two sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from timesink.experiments.gpu_watch import GpuState, GpuWatch
from timesink.experiments.processes import Command, run
from timesink.experiments.steady_state import steady_part
from timesink.experiments.step_source import StepSource, StepTimes
from timesink.outcomes import RunRow

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
