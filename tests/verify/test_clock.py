"""A program that tells times is not believed against the length of its runs, nor past the digits that it tells."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from timesink.cli.app import run
from timesink.records import replace
from timesink.verify.environment import Finished
from timesink.verify.experiment import ExperimentPlan, judge
from timesink.verify.hindrances import grain_of, told_in
from timesink.verify.outcomes import Outcome, Reason, RunRow
from timesink.verify.runs import OutputPattern, RunSteps, summarise

# Twelve steps of 40 ms on both sides. The changed side sets the clock of the module `time` to run 40 times too slowly.
SAME_WORK = """\
import os, time
sleep, true = time.sleep, time.perf_counter
if os.environ.get("SIDE") == "1":
    time.perf_counter = lambda: true() / 40
    time.perf_counter_ns = lambda: int(true() * 1e9 / 40)
{import_}
for at in range(13):
    began = time.perf_counter()
    sleep(0.04)
    {tell}
"""
STEP = SAME_WORK.format(import_="import timesink", tell="timesink.step()")
PRINTED = SAME_WORK.format(import_="", tell='print(f"step took {time.perf_counter() - began:.9f} s")')


def verified(program: str, folder: Path, *options: str) -> dict[str, object]:
    (folder / "program.py").write_text(program)
    kept = folder / "answer.json"
    asked = ("verify", "--toggle", "SIDE=0/1", "--pairs", "4", "--quiet", "-f", "json", "-o", str(kept))
    run((*asked, *options, "--", sys.executable, "program.py"))
    answer: dict[str, object] = json.loads(kept.read_text())
    return answer


@pytest.mark.slow
def test_a_program_that_sets_the_clock_is_timed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = verified(STEP, tmp_path, "--threshold", "20%")
    assert answer["outcome"] in ("no difference", "inconclusive"), answer


@pytest.mark.slow
def test_times_told_by_a_clock_that_was_set_are_contradicted_from_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = verified(PRINTED, tmp_path, "--step-pattern", r"took (?P<s>[\d.]+) s")
    (row,) = [one for one in answer["metrics"] if one["gated"]]  # type: ignore[attr-defined]
    assert (answer["outcome"], row["verdict"]["reason"]) == ("inconclusive", "clock"), row
    assert "seen from outside" in row["verdict"]["explanation"]


def told(before: list[str], after: list[str], tmp_path: Path, **both: float) -> list[tuple[RunRow, RunRow]]:
    """Six pairs of runs that print these times, each run in another order."""
    drawn, pattern, pairs = np.random.default_rng(4), OutputPattern.parse(r"time (?P<s>[\d.]+) s"), []
    (tmp_path / "err").touch()
    for at in range(6):
        made = []
        for side, times in (("before", before), ("after", after)):
            (tmp_path / "out").write_text("".join(f"time {one} s\n" for one in drawn.permutation(times)))
            steps = pattern.collect(tmp_path, Finished(0.0, 0.0, tmp_path / "out", tmp_path / "err"))
            made.append(replace(summarise(steps, side, 2 * at + 1 + (side == "after")), **both))
        pairs.append((made[0], made[1]))
    return pairs


@pytest.mark.parametrize(
    ("before_s", "after_s", "digits"), [(0.0455, 0.0545, 2), (0.0048, 0.0052, 3), (0.02, 0.0204, 3)]
)
def test_coarse_digits_are_no_sure_no_difference(before_s: float, after_s: float, digits: int, tmp_path: Path) -> None:
    """The true change of +19.8 % that the audit saw called none, of +8 %, and of +2 %."""
    drawn = np.random.default_rng(3)
    lines = [[f"{one:.{digits}f}" for one in drawn.normal(mean, mean / 200, 60)] for mean in (before_s, after_s)]
    verdict = judge(told(*lines, tmp_path), ExperimentPlan(looks=(6,)))
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.CLOCK)
    assert verdict.effect is None or verdict.effect.low < after_s / before_s < verdict.effect.high


def test_digits_that_are_fine_enough_decide(tmp_path: Path) -> None:
    drawn = np.random.default_rng(3)
    lines = [[f"{one:.5f}" for one in drawn.normal(mean, 0.0005, 60)] for mean in (0.05, 0.055)]
    assert judge(told(*lines, tmp_path), ExperimentPlan(looks=(6,))).outcome is Outcome.SLOWER


def test_a_coarse_clock_shows_what_is_far_beyond_it(tmp_path: Path) -> None:
    lines = [["0.05", "0.05", "0.06"] * 20, ["0.15", "0.15", "0.16"] * 20]
    assert judge(told(*lines, tmp_path), ExperimentPlan(looks=(6,))).outcome is Outcome.SLOWER


def test_steps_that_take_longer_than_their_run_say_nothing(tmp_path: Path) -> None:
    lines = [[f"{one:.6f}" for one in np.random.default_rng(3).normal(0.05, 0.0005, 60)]] * 2
    plan = ExperimentPlan(looks=(6,))
    assert judge(told(*lines, tmp_path, outside_s=3.4), plan).outcome is Outcome.NO_DIFFERENCE
    verdict = judge(told(*lines, tmp_path, outside_s=2.4), plan)
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, Reason.CLOCK)
    assert "add up to 3 s, and the run lasted 2.4 s" in verdict.explanation


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([0.1, 0.2, 0.3, 0.4], 0.0),  # nothing repeats
        ([0.015625, 0.03125] * 5, 0.015625),  # a clock of 64 ticks a second
        ([0.5] * 9, 0.5),  # no clock tells the same time nine times
        ([0.5] * 3, 0.0),
        ([1.0, 1.0 + 1e-12, 1.0, 1.5], 0.5),  # rounding is no difference
    ],
)
def test_the_unit_of_times_is_known_where_they_repeat(values: list[float], unit: float) -> None:
    assert grain_of(values) == pytest.approx(unit)


@pytest.mark.parametrize(
    ("values", "unit_s", "last_digit_s"),
    [(["5", "6"], 1e-3, 1e-3), (["0.05", "0.1"], 1.0, 0.01), ([0.0123, 0.01], 1.0, 1e-4), (["nan"], 1.0, 0.0)],
)
def test_the_last_digit_told_is_the_least_unit(values: list[object], unit_s: float, last_digit_s: float) -> None:
    assert told_in(values, unit_s) == pytest.approx(last_digit_s)


def test_times_of_our_own_clock_have_no_digits() -> None:
    assert summarise(RunSteps((0.5,) * 70), "before", 1).grain_s == 0
