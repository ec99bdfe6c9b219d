"""Pipelines across ranks: which ranks are stages, how long each works per step, and how much of that overlaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from timesink.measures.job import Job, job
from timesink.measures.matching import exchanges_alike
from timesink.measures.memo import remembered
from timesink.measures.overlap_score import OverlapScore, Stage
from timesink.model.collective_kinds import EXCHANGE, POINT_TO_POINT
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace

# Ranks are stages where sends and receives are most of their communication, by count.
_MOSTLY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Stages are ranks that mostly send and receive (`labelled`: the profiler says so, else kernel names do);
    `overlap.period_ns` is the median step, a stage's time the median computation in its steps.

    Computation beside communication counts as it ran, so a stage slowed by its own transfers makes the score too high,
    never too low. `micro_batches` is the number of receives per step on the rank with the most, half of them where
    gradients come back over the same way; None where they cannot be counted.
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


def pipeline_of(whole: Job) -> Pipeline | None:
    """The pipeline of a job; None where its ranks are no stages or no steady step is known."""
    ranks = _stage_ranks(whole.calls)
    steps = whole.steps.filter(pl.col("rank").is_in(ranks))
    if len(ranks) < 2 or steps["rank"].n_unique() < len(ranks):
        return None
    each = (
        steps.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("period_ns"))
        .group_by("rank")
        .agg(pl.col("period_ns", "compute_ns").median(), pl.len().alias("count"))
        .sort("rank")
    )
    stages = tuple(Stage(f"rank {rank}", compute) for rank, compute in each.select("rank", "compute_ns").rows())
    period = each["period_ns"].median()
    labelled = bool(whole.calls.filter(pl.col("rank").is_in(ranks))["labelled"].any())
    assert isinstance(period, float)
    return Pipeline(
        ranks, OverlapScore(stages, period), _micro_batches(whole, steps), min(each["count"].to_list()), labelled
    )


def _stage_ranks(calls: pl.DataFrame) -> tuple[int, ...]:
    """Ranks that mostly send and receive. An exchange without a label counts where it is no all-to-all."""
    calls = calls.with_columns(alike=exchanges_alike(calls))
    sends = pl.col("kind").is_in(list(POINT_TO_POINT)) | ((pl.col("kind") == EXCHANGE) & ~pl.col("alike"))
    shares = calls.group_by("rank").agg(sends.mean().alias("share"))
    return tuple(shares.filter(pl.col("share") > _MOSTLY)["rank"].sort().to_list())


def _micro_batches(whole: Job, steps: pl.DataFrame) -> int | None:
    counts = []
    for rank, start, end in steps.select("rank", "start_ns", "end_ns").rows():
        received = whole.calls.filter(
            (pl.col("rank") == rank) & (pl.col("kind") == "recv") & pl.col("start_ns").is_between(start, end, "left")
        )
        counts.append(received.height)
    return max(counts) if counts and max(counts) > 0 else None


def between_stages(trace: Trace) -> dict[tuple[int, int], Intervals]:
    """Per GPU of a pipeline: when a send or receive ran there, its wait for the other stage included."""
    line = pipeline(trace)
    if line is None:
        return {}
    sends = job(trace).calls.filter(
        pl.col("rank").is_in(line.ranks) & pl.col("kind").is_in([*POINT_TO_POINT, EXCHANGE])
    )
    parts = sends.partition_by("rank", "device", as_dict=True)
    return {(int(rank), int(device)): Intervals.of(part) for (rank, device), part in parts.items()}
