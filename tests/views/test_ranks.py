"""The first line of `timesink ranks` and the rule of `timesink diagnose` say the same of a job."""

from __future__ import annotations

import pytest
from tests.rules.cases import Case, read_cases

from timesink.diagnosis.registry import find
from timesink.diagnosis.rule import page_paths
from timesink.diagnosis.verdicts import Found
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.lateness import lateness
from timesink.views.ranks import ranks_verdict

CASES = read_cases(page_paths()["straggler"])


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
