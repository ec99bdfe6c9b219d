"""The pace of a job: one step of all its ranks."""

from __future__ import annotations

import polars as pl

from timesink.measures.job import Job


def step_ns(whole: Job) -> float:
    """Mean step of the slowest rank; the longest span where no rank has steady steps."""
    period = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    frame = whole.steps if whole.steps.height else whole.members
    means = frame.with_columns(period).group_by("rank").agg(pl.col("length_ns").mean())
    longest = means["length_ns"].max()
    return float(longest) if isinstance(longest, (int, float)) else 0.0
