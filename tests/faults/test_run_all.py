"""Spreading the suite over GPUs: nothing is lost when a process dies."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.faults import suite
from benchmarks.faults.run_all import Site, Task, groups, unreached

CASES = ("a/high", "a/low", "b/high", "b/low", "c/high")


def site(scratch: Path) -> Site:
    return Site(scratch, deadline=0.0, gpus=1, nsys="nsys", dry=True)


def test_every_case_is_in_one_group_and_severities_stay_together() -> None:
    cases = suite.cases()
    parts = groups(cases, 8)
    assert sorted(name for part in parts for name in part) == sorted(str(case) for case in cases)
    homes = {(name.split("/")[0], number) for number, part in enumerate(parts) for name in part}
    assert len(homes) == len(suite.FAULTS)


def test_after_a_death_the_program_it_was_at_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    task = Task("measure:0", 0, CASES)
    (tmp_path / f"{task.name}.json").write_text(json.dumps({"a/high": {}, "a/low": {}}))
    assert unreached(site(tmp_path), task) == ("c/high",)


def test_a_process_that_did_all_leaves_nothing(tmp_path: Path) -> None:
    task = Task("torch", 0, CASES)
    (tmp_path / "torch").mkdir()
    taken = {f"{case}/fault": "taken" for case in CASES} | {"a/high/fix": "taken"}
    (tmp_path / "torch" / f"{task.name}.taken.json").write_text(json.dumps(taken))
    assert unreached(site(tmp_path), task) == ()


def test_a_process_that_died_at_once_costs_its_first_program(tmp_path: Path) -> None:
    assert unreached(site(tmp_path), Task("measure:0", 0, CASES)) == ("b/high", "b/low", "c/high")
