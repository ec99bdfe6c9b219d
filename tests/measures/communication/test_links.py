"""What exchanges that take little of NVLink cost: as much as they would be shorter if they took what others do."""

from __future__ import annotations

import pytest
from tests.tables import trace_of

from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.verdicts import Found
from timesink.measures.communication.links import beside_nvlink

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
