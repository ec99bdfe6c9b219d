"""Messages between two ranks: how long each direction waits and transfers."""

from __future__ import annotations

import polars as pl

from timesink.measures.collective_waits import CollectiveWaits


def messages(waits: CollectiveWaits) -> pl.DataFrame:
    """One row per pair of send and receive: sender, receiver (the lower and the higher rank where nothing says who
    sends), bytes, wait_ns and exposed_wait_ns (both ends), transfer_ns (from the later arrival to the later end, on one
    clock), exposed_transfer_ns (the larger end's), error_ns."""
    from_rank = pl.when(pl.col("kind") == "recv").then("peer").otherwise("rank")
    known = pl.col("rigorous").all()
    end = pl.col("end_ns") - pl.col("offset_ns")
    return (
        waits.pairs.group_by("instance", maintain_order=True)
        .agg(
            pl.when(known).then(from_rank.first()).otherwise(pl.col("rank").min()).alias("sender"),
            pl.max_horizontal(pl.col("rank").max(), pl.col("peer").max()).alias("high"),
            pl.min_horizontal(pl.col("rank").min(), pl.col("peer").min()).alias("low"),
            pl.col("bytes", "error_ns").max(),
            pl.col("wait_ns", "exposed_wait_ns").sum(),
            pl.col("exposed_transfer_ns").max(),
            (end.max() - pl.col("ready_ns").first()).clip(0).alias("transfer_ns"),
        )
        .with_columns(receiver=pl.when(pl.col("sender") == pl.col("low")).then("high").otherwise("low"))
        .drop("low", "high")
    )


def channels(waits: CollectiveWaits) -> pl.DataFrame:
    """One row per direction and size: sender, receiver, bytes, count, wait_ns, exposed_wait_ns (sums), transfer_ns
    (median), gb_per_s (of the median; 1 GB = 1e9 bytes), those with the most waiting first."""
    return (
        messages(waits)
        .group_by("sender", "receiver", "bytes")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("wait_ns", "exposed_wait_ns").sum(),
            pl.col("transfer_ns").median(),
        )
        .with_columns(gb_per_s=pl.when(pl.col("transfer_ns") > 0).then(pl.col("bytes") / pl.col("transfer_ns")))
        .sort("wait_ns", "sender", "receiver", "bytes", descending=[True, False, False, False], nulls_last=True)
    )
