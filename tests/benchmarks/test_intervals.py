"""The table of intervals by kind, by hand: what is inside, what other sets would have widened, and what is a bound."""

import dataclasses
import json
from pathlib import Path

import pytest
from benchmarks.faults.scoring import Foretold, Observation

from benchmarks import intervals, scoreboard
from timesink.records import replace

ONE = Observation("a", "high", "fault", "torch", "evaluate", owed="host_sync", gain=0.20, verdict="host_sync")


def priced(gain: float, value: float, split: str = "evaluate", owed: str = "host_sync") -> Observation:
    return replace(ONE, gain=gain, split=split, owed=owed, foretold=Foretold(value, value - 0.05, value + 0.05))


def test_only_truths_of_sets_that_were_set_aside_count() -> None:
    told = priced(0.2, 0.2)
    unlike = [replace(told, split="tune"), replace(told, split="ninth_tune"), ONE, replace(told, settled=False)]
    assert intervals.truths([told, *unlike]) == [told]


@pytest.mark.parametrize(("gain", "sides"), [(0.20, 0.0), (0.25, 1.0), (0.15, 1.0), (0.30, 2.0), (0.05, 3.0)])
def test_how_far_a_truth_is_off_is_in_sides_of_its_interval(gain: float, sides: float) -> None:
    assert intervals.off(priced(gain, 0.2)) == pytest.approx(sides)


def test_a_side_of_nothing_is_as_wide_as_two_runs_are_apart() -> None:
    bound = replace(ONE, gain=0.19, foretold=Foretold(0.2, 0.2, 0.2))
    assert intervals.off(bound) == pytest.approx(1.0)
    assert intervals.width(bound) == pytest.approx(0.02)


def test_a_set_is_never_widened_by_itself() -> None:
    """Five of one set are two sides off, five of another none: the first would not have been widened, the second is."""
    items = [priced(0.30, 0.2) for _ in range(5)] + [priced(0.20, 0.2, "fresh") for _ in range(5)]
    cells = intervals.row("host_sync", items)
    assert cells == ("host_sync", "10", "2", "50%", "10.0", "1.5", "50%", "15.0", "an interval")


def test_four_of_five_truths_of_other_sets_say_by_how_much() -> None:
    others = [priced(0.2 + 0.05 * off, 0.2, "fresh") for off in (0, 0, 1, 1, 1, 2, 2, 2, 2, 3)]
    assert intervals.factor_of(others) == pytest.approx(2.0)
    assert intervals.factor_of([]) == 1.0


def test_a_kind_with_few_truths_is_a_bound(tmp_path: Path) -> None:
    items = [priced(0.2, 0.2) for _ in range(8)] + [priced(0.2, 0.2, owed="allocator") for _ in range(7)]
    (written := tmp_path / "own.json").write_text(json.dumps([dataclasses.asdict(one) for one in [*items, ONE]]))
    lines = intervals.told(intervals.kept(written)).split("\n")
    assert [line.split()[1] for line in lines[2:]] == ["host_sync", "allocator", "all"]
    assert "an interval" in lines[2] and "a bound" in lines[3] and " 15 " in lines[4]


def test_the_scoreboard_prints_them() -> None:
    assert "benchmarks.intervals" in Path(scoreboard.__file__).read_text(encoding="utf-8")
