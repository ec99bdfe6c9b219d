"""Bandwidth of collectives: by hand, and what it leaves out."""

from __future__ import annotations

import polars as pl
import pytest
from tests.cluster.jobs_by_hand import collectives, job_of

from timesink.measures.communication.waits import bandwidth, waits_of

ARRIVALS = [[0, 0, 0, 0], [100_000, 100_000, 100_000, 140_000], [200_000, 200_000, 200_000, 200_000]]
TRANSFERS = [10_000, 8_000, 12_000]


def calls(size_bytes: int | None = 400_000, kind: str = "allreduce") -> pl.DataFrame:
    return collectives(ARRIVALS, TRANSFERS).with_columns(
        pl.lit(size_bytes, pl.Int64).alias("bytes"), pl.lit(kind).alias("kind")
    )


@pytest.mark.parametrize(("kind", "factor"), [("allreduce", 1.5), ("allgather", 0.75), ("reducescatter", 0.75)])
def test_bytes_over_the_transfer_and_not_over_the_waiting(kind: str, factor: float) -> None:
    # the second takes 8 us from the last arrival, and 48 us of those who came first: 400 kB in 8 us are 50 GB/s
    (row,) = bandwidth(waits_of(job_of(calls(kind=kind), dict.fromkeys(range(4), "node")))).iter_rows(named=True)
    assert (row["kind"], row["size"], row["bytes"], row["count"]) == (kind, 4, 400_000, 3)
    assert (row["transfer_ns"], row["p50_ns"]) == (8_000, 10_000)
    assert row["algbw_gb_per_s"] == pytest.approx(50.0)
    assert row["busbw_gb_per_s"] == pytest.approx(50.0 * factor)


@pytest.mark.parametrize("unknown", [calls(size_bytes=None), calls(kind="barrier"), calls(size_bytes=0)])
def test_what_moves_an_unknown_amount_has_no_bandwidth(unknown: pl.DataFrame) -> None:
    assert bandwidth(waits_of(job_of(unknown))).is_empty()


def test_a_collective_that_a_rank_is_missing_from_is_left_out() -> None:
    whole = calls()
    last = whole["start_ns"].max()
    missing = whole.filter(~((pl.col("rank") == 3) & (pl.col("start_ns") == last)))
    assert bandwidth(waits_of(job_of(missing)))["count"].to_list() == [2]
