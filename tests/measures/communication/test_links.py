"""What exchanges that take little of NVLink cost: as much as they would be shorter if they took what others do.

Bandwidth of collectives: by hand, and what it leaves out.
"""

import polars as pl
import pytest
from tests.cluster.jobs_by_hand import collectives, job_of
from tests.tables import trace_of

from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.verdicts import Found
from timesink.measures.communication.links import beside_nvlink
from timesink.measures.communication.waits import bandwidth, waits_of

JOB = """
| sources | rank | path    | format      | host  |
|---------|-----:|---------|-------------|-------|
| rank 0  |    0 | r0.json | nsys_sqlite | node0 |
| rank 1  |    1 | r1.json | nsys_sqlite | node0 |

| devices | rank | device | name        |
|---------|-----:|-------:|-------------|
| one     |    0 |      0 | NVIDIA H200 |
| two     |    1 |      1 | NVIDIA H200 |

| device_ops | name                          | rank | device | stream | grid_x | start_us | end_us | times | every_us |
|------------|-------------------------------|-----:|-------:|-------:|-------:|---------:|-------:|------:|---------:|
| work       | `gemm`                        |    0 |      0 |      7 |    132 |        0 |   6000 |     5 |    10000 |
| exchange   | `ncclDevKernel_AllReduce_Sum` |    0 |      0 |     20 |      4 |     6000 |  10000 |     5 |    10000 |
| work       | `gemm`                        |    1 |      1 |      7 |    132 |        0 |   6000 |     5 |    10000 |
| exchange   | `ncclDevKernel_AllReduce_Sum` |    1 |      1 |     20 |      4 |     6000 |  10000 |     5 |    10000 |
"""
SIZES = """
| collectives | kind | group | group_size | in_bytes | rank | device | stream | start_us | end_us | times | every_us |
|---|---|---|------------|----------|------|--------|--------|----------|--------|-------|----------|
| exchange | allreduce | a |          2 |    90 MB |    0 |      0 |     20 |     6000 |  10000 |     5 |    10000 |
| exchange | allreduce | a |          2 |    90 MB |    1 |      1 |     20 |     6000 |  10000 |     5 |    10000 |
"""


@pytest.mark.parametrize(
    ("tables", "share", "gain"),
    [
        (JOB + SIZES, 0.05, 1 - 0.05 / 0.5),  # 22.5 of 450 GB/s, where others reach half
        (JOB, 4 * 25 / 450, 1 - 4 * 25 / 450 / 2 / 0.5),  # by four channels at most: half of that is expected
    ],
)
def test_exposed_transfers_are_shorter_by_what_others_take_of_nvlink(tables: str, share: float, gain: float) -> None:
    """20 ms of a window of 50 are exposed."""
    trace = trace_of(tables)
    (group,) = beside_nvlink(trace)
    assert (group.bus_share, group.channels) == (pytest.approx(share, rel=0.05), 4)
    (rule,) = (rule for rule in all_rules() if rule.card.code == "COM109")
    verdict = rule.verdict(trace, {})
    assert isinstance(verdict, Found)
    (finding,) = verdict.findings
    assert finding.stated is not None
    assert finding.stated.value == pytest.approx(20 * gain, rel=0.02)


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
