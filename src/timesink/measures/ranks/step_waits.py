"""How long each rank waited for others in each of its steps."""

from __future__ import annotations

import polars as pl

from timesink.measures.communication.waits import CollectiveWaits


def waits_by_step(waits: CollectiveWaits) -> pl.DataFrame:
    """One row per rank and kept step, in that order: rank, step, period_ns, wait_ns and transfer_ns: the parts of
    collectives and messages begun in the step that no computation hides. A rank of several GPUs has their mean.

    Steps are bounded by the rank's own clock, so no clock of another rank is asked.
    """
    device, parts = ["rank", "device"], ["exposed_wait_ns", "exposed_transfer_ns"]
    steps = waits.job.steps.select(*device, "step", "start_ns", "end_ns").sort("start_ns")
    calls = pl.concat([some.select(*device, "start_ns", *parts) for some in (waits.calls, waits.pairs)])
    inside = (
        calls.sort("start_ns")
        .join_asof(
            steps.with_columns(pl.col("start_ns").alias("begins")), on="start_ns", by=device, check_sortedness=False
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .group_by(*device, "step")
        .agg(pl.col(parts).sum())
    )
    joined = steps.join(inside, on=[*device, "step"], how="left").with_columns(pl.col(parts).fill_null(0))
    return (
        joined.group_by("rank", "step")
        .agg(
            (pl.col("end_ns") - pl.col("start_ns")).mean().alias("period_ns"),
            pl.col("exposed_wait_ns").mean().alias("wait_ns"),
            pl.col("exposed_transfer_ns").mean().alias("transfer_ns"),
        )
        .sort("rank", "step")
    )
