"""The figures of the scoreboard, by hand."""

from __future__ import annotations

import pytest
from benchmarks.faults.adopt import merged
from benchmarks.faults.scoring import Foretold, Observation, figures, formula_figures, top

from timesink.records import replace

SYNC = Observation("a", "high", "fault", "torch", "tune", owed="host_sync", gain=0.20, verdict="host_sync")
CLEAN = Observation("h", "large", "fault", "torch", "tune", owed="none", gain=0.0, verdict="none")


def foretell(value: float) -> Foretold:
    return Foretold(value, low=value - 0.05, high=value + 0.05)


def test_only_costly_faults_are_owed_a_verdict() -> None:
    missed_but_free = replace(SYNC, gain=0.01, verdict="none")
    found = figures([SYNC, missed_but_free])
    assert (found.costly, found.top1) == (1, 1.0)


def test_top_three_counts_different_bottlenecks() -> None:
    findings = (("allocator", 0.3), ("allocator", 0.2), ("launch_bound", 0.1), ("host_sync", 0.1))
    late = replace(SYNC, verdict="allocator", findings=findings)
    assert top(late, 3)
    assert not top(late, 2)


def test_a_verdict_on_a_healthy_program_is_false() -> None:
    assert figures([CLEAN, replace(CLEAN, verdict="launch_bound")]).false_verdicts == 0.5


def test_a_fault_not_found_is_a_gain_of_nothing() -> None:
    assert figures([SYNC]).mean_error_points == pytest.approx(20.0)
    assert figures([SYNC]).median_relative_error == pytest.approx(1.0)


def test_gain_errors_are_points_and_shares_of_the_measured_gain() -> None:
    near, far = replace(SYNC, foretold=foretell(0.25)), replace(SYNC, gain=0.10, foretold=foretell(0.30))
    found = figures([near, far])
    assert found.mean_error_points == pytest.approx((5 + 20) / 2)
    assert found.median_relative_error == pytest.approx((0.25 + 2.0) / 2)
    assert found.coverage == 0.5  # 0.20 lies in 0.20–0.30, 0.10 does not lie in 0.25–0.35


def test_a_gain_of_nothing_must_be_foretold_as_nothing() -> None:
    free = replace(SYNC, gain=0.005)
    found = figures([replace(free, foretold=foretell(0.01)), replace(free, foretold=foretell(0.05))])
    assert found.sign_right == 0.5


def test_an_artefact_is_owed_only_where_the_profiler_dominates_and_is_never_priced() -> None:
    artefact = replace(SYNC, owed="profiler_overhead", gain=0.0, verdict="launch_bound", slowdown=3.0)
    assert (figures([artefact]).top1, figures([artefact]).priced) == (0.0, 0)
    assert figures([replace(artefact, slowdown=1.1)]).costly == 0


def test_what_processes_measure_differently_is_named_but_not_priced() -> None:
    found = figures([replace(SYNC, settled=False)])
    assert (found.top1, found.priced, found.mean_error_points) == (1.0, 0, None)


def test_mended_programs_are_neither_priced_nor_owed_the_fault() -> None:
    found = figures([replace(SYNC, variant="fix", verdict="none")])
    assert (found.costly, found.priced) == (0, 0)


def test_a_formula_is_scored_on_the_same_cases() -> None:
    points, relative, _ = formula_figures([replace(SYNC, formulas={"sum of idle": 0.5})], "sum of idle")
    assert (points, relative) == (pytest.approx(30.0), pytest.approx(1.5))


def test_measurements_of_several_calls_are_one_median_over_all_processes() -> None:
    one = {"a/high": {"fault_ms": [10.0, 12.0], "fix_ms": [8.0, 8.0], "receipts_equal": [True, True], "failed": []}}
    two = {"a/high": {"fault_ms": [11.0], "fix_ms": [9.0], "receipts_equal": [True], "failed": ["late"]}}
    case = merged([one, two])["a/high"]
    assert case["fault_ms"] == [10.0, 12.0, 11.0]
    assert case["gain_share"] == pytest.approx(1 - 8 / 11, abs=1e-5)
    assert case["failed"] == ["late"]
