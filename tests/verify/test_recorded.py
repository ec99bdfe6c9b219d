"""Step times and nvidia-smi output recorded on an H200: no simulation can flatter these."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from benchmarks.recorded_verdicts import KEPT, Recorded, neighbours, recorded
from benchmarks.rivals import mann_whitney, welch
from scipy import stats

from timesink.verify.experiment import ExperimentPlan
from timesink.verify.gpu_watch import condense, parse_samples
from timesink.verify.outcomes import Outcome

PLAN = ExperimentPlan(threshold_ratio=0.01)


@cache
def found() -> list[Recorded]:
    return recorded()


def test_an_unchanged_program_on_a_real_gpu_is_never_called_slower_or_faster() -> None:
    """The bound allows what chance would at 5 %; what was recorded needs none of it."""
    outcomes = [one.verdict(PLAN).outcome for one in found() if one.planted_ratio == 0]
    wrong = sum(outcome in (Outcome.SLOWER, Outcome.FASTER) for outcome in outcomes)
    assert len(outcomes) >= 13
    assert wrong <= stats.binom.ppf(0.999, len(outcomes), 0.05)
    assert wrong == 0


@pytest.mark.parametrize("planted", [0.02, 0.03, 0.05])
def test_every_planted_slow_down_on_a_real_gpu_is_found(planted: float) -> None:
    verdicts = [one.verdict(PLAN) for one in found() if one.planted_ratio == planted]
    assert len(verdicts) >= 3
    assert {verdict.outcome for verdict in verdicts} == {Outcome.SLOWER}


def test_the_same_recording_makes_common_rules_see_changes_that_are_none() -> None:
    before, after = neighbours(found(), 120)
    assert welch(before, after).mean() > 0.25
    assert mann_whitney(before, after).mean() > 0.25


def test_recorded_nvidia_smi_lines_are_all_read() -> None:
    text = Path(KEPT / "nvidia_smi.csv").read_text()
    samples = parse_samples(text)
    assert len(samples) == len(text.splitlines())
    state = condense(samples)
    assert (state.sm_mhz, state.slowed_by) == (1980, ())
    assert state.celsius is not None
    assert 30 < state.celsius < 60
    assert np.ptp([sample.time_s for sample in samples]) > 1
