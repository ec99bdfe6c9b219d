"""The scripted client of benchmarks/agent_reach.py on two of its twelve programs: cause, calls and bytes."""

import pytest

pytest.importorskip("mcp.client", reason="mcp is not installed (pip install mcp)")
pytest.importorskip("duckdb", reason="duckdb is not installed (pip install duckdb)")

from benchmarks.agent_reach import measured, programs


def test_a_fixed_policy_reaches_the_planted_cause_in_two_calls_and_six_kilobytes() -> None:
    assert len(programs()) == 12
    found = measured(programs(only=("pageable_batch", "collected_each_step")))
    assert len(found) == 2
    assert all(one.is_right for one in found), found
    assert [one.state_after for one in found if one.state_after != "–"] == ["nothing_above"]
