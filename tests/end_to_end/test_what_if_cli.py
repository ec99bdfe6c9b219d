"""`timesink plan --change` and `timesink show idle` as their user meets them."""

import json
from importlib.resources import files
from pathlib import Path

import pytest

from timesink.cli.app import run

BEFORE = str(Path(str(files("timesink.cli").joinpath("demo/gpt_before.json.xz"))))


def sheets(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, list[dict[str, object]]]:
    """The tables that a command writes as JSON, by key."""
    assert run([*arguments, "--format", "json"]) == 0
    document: dict[str, list[dict[str, object]]] = json.loads(capsys.readouterr().out)
    return document


def test_idle_shows_causes_that_sum_to_the_whole(capsys: pytest.CaptureFixture[str]) -> None:
    found = sheets(capsys, "show", "idle", BEFORE)
    assert sum(float(str(row["idle_ratio"])) for row in found["causes"]) == pytest.approx(1.0)
    assert found["places"]


def test_what_if_prices_each_change_and_all_together(capsys: pytest.CaptureFixture[str]) -> None:
    found = sheets(capsys, "plan", BEFORE, "--change", "remove_sync", "--change", "scale kernel:. 0.5")
    one, other, both = found["prices"]
    assert float(str(both["gain_ns"])) >= max(float(str(one["gain_ns"])), float(str(other["gain_ns"])))
    assert found["next"]


def test_a_change_without_anything_to_change_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = sheets(capsys, "plan", BEFORE, "--change", "drop op:^absent$")["prices"]
    assert row["remark"] == "nothing in these steps matches"


def test_what_makes_no_sense_exits_with_2_and_says_what_to_write(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", BEFORE, "--change", "speed-up everything"]) == 2
    assert "`timesink plan` lists all" in capsys.readouterr().err


def test_the_changes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan"]) == 0
    assert "remove_sync" in capsys.readouterr().out
