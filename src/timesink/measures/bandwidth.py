"""Bandwidth of collectives as nccl-tests defines it.

algbw = S / t, busbw = algbw x factor (nccl-tests, PERFORMANCE.md); t is the transfer, from the last rank's arrival to
the last end, since waiting for a late rank moves no data. 1 GB = 1e9 bytes.
"""

from __future__ import annotations

import polars as pl

from timesink.measures.collective_waits import CollectiveWaits
from timesink.model.collective_kinds import BUS_FACTORS


def bandwidth(waits: CollectiveWaits) -> pl.DataFrame:
    """Transfers of complete collectives, by kind, number of ranks and size; unknown kinds and sizes are left out.

    Columns: kind, size (ranks), bytes, count, transfer_ns (fastest), p50_ns, algbw_gb_per_s and busbw_gb_per_s of the
    fastest.
    """
    known = waits.instances.filter(
        pl.col("complete") & (pl.col("bytes") > 0) & (pl.col("transfer_ns") > 0) & pl.col("kind").is_in(BUS_FACTORS)
    )
    factor = pl.struct("kind", "size").map_elements(lambda row: BUS_FACTORS[row["kind"]](row["size"]), pl.Float64)
    frame = (
        known.group_by("kind", "size", "bytes")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("transfer_ns").min(),
            pl.col("transfer_ns").median().alias("p50_ns"),
        )
        .sort("kind", "size", "bytes")
    )
    frame = frame.with_columns(factor.alias("factor")) if frame.height else frame.with_columns(factor=pl.lit(1.0))
    frame = frame.with_columns((pl.col("bytes") / pl.col("transfer_ns")).alias("algbw_gb_per_s"))
    return frame.with_columns((pl.col("algbw_gb_per_s") * pl.col("factor")).alias("busbw_gb_per_s"))
