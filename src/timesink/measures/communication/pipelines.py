"""Pipelines: which ranks are stages, how long each works per step, and how much of that overlaps.

OverlapScore = (sum of stages - period) / (sum of stages - longest stage): 0 where stages run one after another, 1 where
the period is the longest stage. Stage times must be those of stages that contend with nobody, or the sum is too large.

Stages come from a trace of several ranks, or from timestamps that a program logged itself: one file a rank, JSON lines
or CSV, one line an item. `tA0` and `tA1` are the begin and end of stage A, `tB0` and `tB1` those of stage B, and so on;
`tSend`, `tRecv` and other columns are ignored. Every line is on its own rank's clock: only times of one file are
subtracted.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from timesink.errors import UnreadableTrace
from timesink.knowledge import profiler_texts
from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.assumptions.steps import REPEATS
from timesink.knowledge.collectives import EXCHANGE, POINT_TO_POINT
from timesink.measures.communication.matching import exchanges_alike
from timesink.measures.ranks.job import Job, by_device, job
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Float64Array
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered
from timesink.untrusted.plain_json import parsed


@dataclass(frozen=True, slots=True)
class PipelineStage:
    """One stage of a pipeline and its usual time per item or step."""

    name: str
    time_ns: float


@dataclass(frozen=True, slots=True)
class OverlapScore:
    """How much stages overlap; `period_ns` is the time from one item (or step) to the next, `stages` do the work of
    one."""

    stages: tuple[PipelineStage, ...]
    period_ns: float

    @property
    def serial_ns(self) -> float:
        """The time of all stages, one after another."""
        return sum(stage.time_ns for stage in self.stages)

    @property
    def longest(self) -> PipelineStage:
        """The stage that no overlap hides; ties go to the first."""
        return max(self.stages, key=lambda stage: stage.time_ns)

    @property
    def hidden_ns(self) -> float:
        """Stage time that ran at the same time as other stages, per period."""
        return max(0.0, self.serial_ns - self.period_ns)

    @property
    def bubble_ratio(self) -> float:
        """Share of the period in which the stages stood still, averaged over them: 1 - sum / (stages x period).

        For p equal stages and m micro-batches this is the (p - 1) / (m + p - 1) of GPipe (arXiv:1811.06965).
        """
        if self.period_ns <= 0 or not self.stages:
            return 0.0
        return max(0.0, 1.0 - self.serial_ns / (len(self.stages) * self.period_ns))

    @property
    def headroom_ns(self) -> float:
        """What perfect overlap would take off the period."""
        return max(0.0, self.period_ns - self.longest.time_ns) if self.stages else 0.0

    @property
    def score(self) -> float | None:
        """Hidden time over the time that could be hidden, 0 to 1; None for fewer than two stages that do any work."""
        if not self.stages:
            return None
        possible = self.serial_ns - self.longest.time_ns
        return min(1.0, self.hidden_ns / possible) if possible > 0 else None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A job whose `ranks` mostly send and receive (`labelled`: the profiler says so, else kernel names do).

    `overlap.period_ns` is the median step, a stage's time the median computation in its steps. Computation during
    communication counts as it ran, so a stage slowed by its own transfers makes the score too high, never too low.
    `micro_batches` is the largest number of receives per step of any rank (activations, and gradients where they come
    back to it); None where none are recorded. `steps` is the number of steady steps of the rank with the fewest.
    """

    ranks: tuple[int, ...]
    overlap: OverlapScore
    micro_batches: int | None
    steps: int
    labelled: bool


@remembered
def pipeline(trace: Trace) -> Pipeline | None:
    """The pipeline of a trace of several ranks; None where its ranks are no stages."""
    return pipeline_of(job(trace))


def pipeline_of(job: Job) -> Pipeline | None:
    """The pipeline of a job; None where its ranks are no stages or no steady step is known."""
    ranks = _stage_ranks(job.calls)
    steps = job.steps.filter(pl.col("rank").is_in(ranks))
    if len(ranks) < 2 or steps["rank"].n_unique() < len(ranks):
        return None
    each = (
        steps.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("period_ns"))
        .group_by("rank")
        .agg(pl.col("period_ns", "compute_ns").median(), pl.len().alias("count"))
        .sort("rank")
    )
    stages = tuple(PipelineStage(f"rank {rank}", compute) for rank, compute in each.select("rank", "compute_ns").rows())
    period = each["period_ns"].median()
    labelled = bool(job.calls.filter(pl.col("rank").is_in(ranks))["labelled"].any())
    assert isinstance(period, float)
    return Pipeline(
        ranks, OverlapScore(stages, period), _micro_batches(job, steps), min(each["count"].to_list()), labelled
    )


def _stage_ranks(calls: pl.DataFrame) -> tuple[int, ...]:
    """Ranks that mostly send and receive. An exchange without a label counts where it is no all-to-all."""
    calls = calls.with_columns(alike=exchanges_alike(calls))
    sends = pl.col("kind").is_in(list(POINT_TO_POINT)) | ((pl.col("kind") == EXCHANGE) & ~pl.col("alike"))
    shares = calls.group_by("rank").agg(sends.mean().alias("share"))
    return tuple(shares.filter(pl.col("share") > assumed.PIPELINE_SHARE.value)["rank"].sort().to_list())


def _micro_batches(job: Job, steps: pl.DataFrame) -> int | None:
    received = job.calls.filter(pl.col("kind") == "recv")
    counts = [
        received.filter((pl.col("rank") == rank) & pl.col("start_ns").is_between(start, end, "left")).height
        for rank, start, end in steps.select("rank", "start_ns", "end_ns").rows()
    ]
    return max(counts, default=0) or None


@remembered
def between_stages(trace: Trace) -> dict[Device, Intervals]:
    """Per GPU of a pipeline: when a send or receive ran there, its wait for the other stage included."""
    line = pipeline(trace)
    if line is None:
        return {}
    sends = job(trace).calls.filter(
        pl.col("rank").is_in(line.ranks) & pl.col("kind").is_in([*POINT_TO_POINT, EXCHANGE])
    )
    return by_device(sends)


UNITS_NS: Final[Mapping[str, float]] = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}
_BOUNDARY: Final = re.compile(profiler_texts.STAGE_BOUNDARY)


@dataclass(frozen=True, slots=True)
class StageLog:
    """What the files say together: the overlap, the number of items of the stage with the most, and the files.

    The period is the median over stages of the median time between begins of items that follow each other; begins on
    different sides of a step boundary (the `step` column changes) do not follow each other.
    """

    overlap: OverlapScore
    items: int
    files: tuple[str, ...]


def read_stage_logs(paths: Sequence[Path], unit: str = "s") -> StageLog:
    """The stages of all files; `unit` of the timestamps is a key of `UNITS_NS`.

    Raises `UnreadableTrace` for a line that is no record (it names the line), for a file without stage columns, for a
    stage that ends before it begins, and for fewer than three items.
    """
    begins: dict[str, list[Float64Array]] = {}
    lengths: dict[str, list[float]] = {}
    items = 0
    for path in paths:
        records = list(_records(path))
        names = sorted({found[1] for record in records for key in record if (found := _BOUNDARY.match(key))})
        if not names:
            raise UnreadableTrace(
                path, "no column is named like tA0 and tA1", remedy="log a begin and an end per stage"
            )
        for name in names:
            rows = [r for r in records if f"t{name}0" in r and f"t{name}1" in r]
            if not rows:
                continue
            items = max(items, len(rows))
            lengths.setdefault(name, []).extend(_lengths(path, rows, name))
            begins.setdefault(name, []).extend(_runs(rows, name))
    factor = UNITS_NS[unit]
    stages = tuple(PipelineStage(name, float(np.median(lengths[name])) * factor) for name in sorted(lengths))
    apart = {name: np.concatenate([np.diff(run) for run in runs]) for name, runs in begins.items()}
    periods = [float(np.median(values)) for _, values in sorted(apart.items()) if values.size]
    if items < REPEATS.whole or not periods:
        raise UnreadableTrace(paths[0], f"{items} items are too few for a period", remedy="log at least three items")
    period_ns = float(np.median(periods)) * factor
    return StageLog(OverlapScore(stages, period_ns), items, tuple(str(path) for path in paths))


def _lengths(path: Path, rows: list[dict[str, float]], name: str) -> list[float]:
    lengths = [row[f"t{name}1"] - row[f"t{name}0"] for row in rows]
    if any(length < 0 for length in lengths):
        raise UnreadableTrace(path, f"stage {name} ends before it begins", remedy="check the columns and their unit")
    return lengths


def _runs(rows: list[dict[str, float]], name: str) -> list[Float64Array]:
    """Begins of items that follow each other, one array per step."""
    by_step: dict[float, list[float]] = {}
    for row in rows:
        by_step.setdefault(row.get("step", 0.0), []).append(row[f"t{name}0"])
    return [np.sort(np.array(values)) for _, values in sorted(by_step.items())]


def _records(path: Path) -> Iterator[dict[str, float]]:
    """Numbers of each line by column; other values are left out."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableTrace(path, f"cannot be read as text: {error}", remedy="give JSON lines or CSV") from error
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield _numbers(_parsed(path, number, line))
    else:
        for record in csv.DictReader(text.splitlines()):
            yield _numbers({key: value for key, value in record.items() if isinstance(key, str)})


def _parsed(path: Path, number: int, line: str) -> dict[str, object]:
    try:
        record = parsed(line)
    except ValueError as error:
        raise UnreadableTrace(
            path, f"no JSON object: {error}", place=f"line {number}", remedy="mend or remove it"
        ) from error
    if not isinstance(record, dict):
        raise UnreadableTrace(path, "no JSON object", place=f"line {number}", remedy="mend or remove it")
    return record


def _numbers(record: Mapping[str, object]) -> dict[str, float]:
    numbers = {}
    for key, value in record.items():
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            continue
        try:
            number = float(value)
        except (ValueError, OverflowError):
            continue
        if math.isfinite(number):
            numbers[key] = number
    return numbers
