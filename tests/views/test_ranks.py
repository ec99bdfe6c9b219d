"""The first line of `timesink ranks` and the rule of `timesink diagnose` say the same of a job."""

import pytest
from tests.rules.cases import Case, cases_of
from tests.tables import trace_of

from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Clear, Found, Undecided
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.lateness import lateness
from timesink.views.ranks import ranks_verdict

CASES = cases_of("straggler")


@pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])
def test_first_contact_defect_21_the_first_line_names_the_rank_that_the_rule_finds(case: Case) -> None:
    """First contact defect 21."""
    trace = case.trace
    verdict = find("straggler").verdict(trace)
    said = ranks_verdict(collective_waits(trace), lateness(trace))
    if isinstance(verdict, Found):
        assert said.startswith(f"rank {verdict.findings[0].where.rank} is late to ")
    else:
        assert not said.startswith("rank ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late_us", "host", "verdict"),
    [(400, "b", Undecided), (1000, "b", Undecided), (1400, "b", Undecided), (1000, None, Undecided),
     (1000, "a", Found), (400, "a", Found), (100, "a", Clear), (100, "b", Clear), (0, "b", Clear)],
)  # fmt: skip
@pytest.mark.parametrize("by", ["gemm", ""])
def test_no_rank_is_cleared_that_only_the_clocks_may_clear(
    late_us: int, host: str | None, verdict: type, by: str
) -> None:
    """An all-reduce of 3 ms on host a, to which a rank comes late by work of its GPU or, with none of it, its CPU."""
    work = f"| more | {by} | 1 | 1 | 7 | 0 | {7000 + late_us} | 5 | 10000 |" if by else ""
    trace = trace_of(f"""
| sources | rank | path    | format      | host        |
| rank 0  |    0 | r0.json | kineto_json | a           |
| rank 1  |    1 | r1.json | kineto_json | {host or ""} |

| device_ops | name                          | rank | device | stream | start_us | end_us | times | every_us |
| work       | gemm                          |    0 |      0 |      7 |        0 |   7000 |     5 |    10000 |
| reduce     | ncclDevKernel_AllReduce_Sum   |    0 |      0 |     20 |     7000 |  10000 |     5 |    10000 |
| reduce     | ncclDevKernel_AllReduce_Sum   |    1 |      1 |     20 | {7000 + late_us} | 10000 | 5 | 10000 |
{work}
""")
    assert isinstance(find("straggler").verdict(trace), verdict)
    said = ranks_verdict(collective_waits(trace), lateness(trace))
    assert said.startswith("no rank is late for sure: rank 1 may") is (verdict is Undecided)
    assert said.startswith("no straggler") is (verdict is Clear)
