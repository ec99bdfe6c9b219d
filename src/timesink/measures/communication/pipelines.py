"""Pipelines: which ranks are stages, how long each works per step, and how much of that overlaps.

OverlapScore = (sum of stages - period) / (sum of stages - longest stage): 0 where stages run one after another, 1 where
the period is the longest stage. Stage times must be those of stages that contend with nobody, or the sum is too large.

Stages come from a trace of several ranks here, and in `stage_logs` from timestamps that a program logged itself.
"""

from __future__ import annotations

import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.collectives import EXCHANGE, POINT_TO_POINT
from timesink.measures.communication.matching import exchanges_alike
from timesink.measures.ranks.job import Job, job, ranks_of
from timesink.measures.timeline.device_timeline import Device
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.record import dataclass
from timesink.model.trace import Trace, remembered


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
    `micro_batches` is the number of receives per step of the rank with the fewest: at the ends of a pipeline
    activations come in, or gradients come back, once for each; None where none are recorded.
    """

    ranks: tuple[int, ...]
    overlap: OverlapScore
    micro_batches: int | None
    labelled: bool


@remembered
def pipeline(trace: Trace) -> Pipeline | None:
    """The pipeline of a trace of several ranks; None where its ranks are no stages."""
    return pipeline_of(job(trace)) if len(ranks_of(trace)) > 1 else None


def pipeline_of(job: Job) -> Pipeline | None:
    """The pipeline of a job; None where its ranks are no stages or no steady step is known."""
    ranks = _stage_ranks(job.calls)
    steps = job.steps.filter(pl.col("rank").is_in(ranks))
    if len(ranks) < 2 or steps["rank"].n_unique() < len(ranks):
        return None
    each = (
        steps.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("period_ns"))
        .group_by("rank")
        .agg(pl.col("period_ns", "compute_ns").median())
        .sort("rank")
    )
    stages = tuple(PipelineStage(f"rank {rank}", compute) for rank, compute in each.select("rank", "compute_ns").rows())
    period = each["period_ns"].median()
    labelled = bool(job.calls.filter(pl.col("rank").is_in(ranks))["labelled"].any())
    assert isinstance(period, float)
    return Pipeline(ranks, OverlapScore(stages, period), _micro_batches(job, steps), labelled)


def _stage_ranks(calls: pl.DataFrame) -> tuple[int, ...]:
    """Ranks that mostly send and receive. An exchange without a label counts where it is no all-to-all."""
    calls = calls.with_columns(alike=exchanges_alike(calls))
    sends = pl.col("kind").is_in(list(POINT_TO_POINT)) | ((pl.col("kind") == EXCHANGE) & ~pl.col("alike"))
    shares = calls.group_by("rank").agg(sends.mean().alias("share"))
    return tuple(shares.filter(pl.col("share") > assumed.PIPELINE_SHARE.value)["rank"].sort().to_list())


def _micro_batches(job: Job, steps: pl.DataFrame) -> int | None:
    received = job.calls.filter(pl.col("kind") == "recv")
    most: dict[int, int] = {}
    for rank, start, end in steps.select("rank", "start_ns", "end_ns").rows():
        own = received.filter((pl.col("rank") == rank) & pl.col("start_ns").is_between(start, end, "left"))
        most[rank] = max(most.get(rank, 0), own.height)
    return min(filter(None, most.values()), default=None)


@remembered
def between_stages(trace: Trace) -> dict[Device, Intervals]:
    """Per GPU of a pipeline: when a send or receive ran there, its wait for the other stage included."""
    line = pipeline(trace)
    if line is None:
        return {}
    sends = job(trace).calls.filter(
        pl.col("rank").is_in(line.ranks) & pl.col("kind").is_in([*POINT_TO_POINT, EXCHANGE])
    )
    return intervals_by(sends, "rank", "device")
