"""Floors of accuracy: what is worse than its floor is named, what is better passes, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.faults import floors
from benchmarks.faults.scoring import Figures

from timesink.records import replace

TODAY = Figures(
    costly=70, top1=0.942857, top3=0.985714, healthy=18, false_verdicts=0.0, priced=93, mean_error_points=3.3,
    median_relative_error=0.08, sign_right=0.91, coverage=0.77,
)  # fmt: skip
FLOORS = floors.rows([("tune", "torch", TODAY)])


def held(**changes: float | None) -> list[str]:
    return floors.breaches([("tune", "torch", replace(TODAY, **changes))], FLOORS)


def test_the_figures_of_today_are_no_breach() -> None:
    assert held() == []


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"top1": 65 / 70}, "top1"), ({"top3": 68 / 70}, "top3"), ({"coverage": 0.75}, "coverage"),
     ({"costly": 69}, "costly"), ({"false_verdicts": 1 / 18}, "false_verdicts"),
     ({"mean_error_points": 3.36}, "mean_error_points"),
     ({"coverage": None}, "coverage")],
)  # fmt: skip
def test_one_case_less_is_a_breach(changes: dict[str, float | None], name: str) -> None:
    lines = held(**changes)
    assert [line.split()[2] for line in lines] == [name]


def test_better_figures_and_a_hair_of_error_are_no_breach() -> None:
    assert held(top1=1.0, coverage=0.9, mean_error_points=3.34, priced=94) == []


def test_a_split_that_was_not_scored_is_a_breach_and_one_without_floors_is_none() -> None:
    assert len(floors.breaches([], FLOORS)) == len(FLOORS["tune torch"])
    assert floors.breaches([("tune", "torch", TODAY), ("third", "torch", replace(TODAY, top1=0.0))], FLOORS) == []


def test_keeping_one_split_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floors, "FLOORS", tmp_path / "floors.json")
    floors.keep([("tune", "torch", TODAY)])
    floors.keep([("fresh", "nsys", TODAY), ("all", "nsys", TODAY)])
    assert sorted(json.loads((tmp_path / "floors.json").read_text())) == ["fresh nsys", "tune torch"]
    assert floors.splits() == {"tune", "fresh"}
