"""Bandwidth of collectives as nccl-tests defines it, and the latency and bandwidth that their transfer times fit.

algbw = S / t, busbw = algbw x factor (nccl-tests, PERFORMANCE.md); t is the transfer, from the last rank's arrival to
the last end, since waiting for a late rank moves no data. 1 GB = 1e9 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.collective_waits import CollectiveWaits
from timesink.model.collective_kinds import BUS_FACTORS

Floats = npt.NDArray[np.float64]

# A line through fewer sizes, or sizes closer together, says nothing of its ends.
_SIZES: Final = 3
_SIZE_RANGE: Final = 4.0


@dataclass(frozen=True, slots=True)
class TransferFit:
    """t(S) = alpha + S x factor / bus, fitted to the fastest transfer of each size."""

    kind: str
    ranks: int
    alpha_ns: float
    bus_bytes_per_s: float
    sizes: int


@dataclass(frozen=True, slots=True, eq=False)
class Bandwidth:
    """`frame`: kind, size (ranks), bytes, count, transfer_ns (fastest), p50_ns, algbw_gb_per_s, busbw_gb_per_s of the
    fastest; collectives of unknown size or kind are left out. `fits`: one per kind and number of ranks that allows it.
    """

    frame: pl.DataFrame
    fits: tuple[TransferFit, ...]


def bandwidth(waits: CollectiveWaits) -> Bandwidth:
    """Transfers of complete collectives, by kind, number of ranks and size."""
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
    frame = frame.with_columns((pl.col("algbw_gb_per_s") * pl.col("factor")).alias("busbw_gb_per_s"))
    fits = [_fit(part) for part in frame.partition_by("kind", "size", maintain_order=True)]
    return Bandwidth(frame, tuple(fit for fit in fits if fit is not None))


def _fit(part: pl.DataFrame) -> TransferFit | None:
    moved = (part["bytes"] * part["factor"]).to_numpy().astype(np.float64)
    time = part["transfer_ns"].to_numpy().astype(np.float64)
    if moved.size < _SIZES or moved.max() < _SIZE_RANGE * moved.min():
        return None
    alpha, per_byte = _line(moved, time)
    if per_byte <= 0:
        return None
    return TransferFit(part["kind"][0], int(part["size"][0]), alpha, 1e9 / per_byte, int(moved.size))


def _line(moved: Floats, time: Floats) -> tuple[float, float]:
    """alpha and time per byte, neither negative, every size weighing the same relative to its own time."""
    from scipy.optimize import nnls

    rows = np.stack((1 / time, moved / time), axis=1)
    scale = rows.max(axis=0)
    solution, _ = nnls(rows / scale, np.ones(time.size))
    alpha, per_byte = solution / scale
    return float(alpha), float(per_byte)
