"""The lab's checklist of one change at a time: ticked by what a capture recorded, and by nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.guides.answers import sheets

from timesink.cli.app import run

Manifest = dict[str, Any]
Change = Callable[[Manifest], object]


def items(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, dict[str, Any]]:
    return {row["what"]: row for row in sheets(capsys, "doctor", "--checklist", *words)["checklist"]}


def ticked(found: dict[str, dict[str, Any]]) -> set[str]:
    return {what for what, row in found.items() if row["state"] == "✓"}


def whole(of: Manifest) -> None:
    """The lab's manifest as of a run in git, with facts; the archive has names taken out."""
    of["git"] = {"commit": "0123456789abcdef", "is_dirty": False}
    of["facts"] = {"batch": "8", "clocks": "1410"}


def edited(hour: Path, folder: Path, *changes: Change) -> Path:
    manifest = json.loads((hour / "lab_before/manifest.json").read_text())
    for change in (whole, *changes):
        change(manifest)
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


# What a manifest may lack, and the one line that it opens.
LACKING: dict[str, tuple[str, Change]] = {
    "no commit": ("the program", lambda of: of.update(git={})),
    "uncommitted changes": ("the program", lambda of: of["git"].update(is_dirty=True)),
    "no facts": ("shapes and scenario", lambda of: of.update(facts={"clocks": "1410"})),
    "blocking launches": ("switches", lambda of: of["ranks"][0]["settings"].update(launch_blocking="on")),
    "no switches": ("switches", lambda of: of["ranks"][0].pop("settings")),
    "no versions": ("versions", lambda of: of["ranks"][0].pop("software")),
    "no driver": ("versions", lambda of: of["gpus"][0].pop("driver_version")),
    "clocks that nobody locked": ("clocks", lambda of: of["facts"].pop("clocks")),
    "a GPU at work": ("the machine to itself", lambda of: of["gpus"][0].update({"utilization.gpu": "80 %"})),
    "no warm-up": ("warm-up", lambda of: of["steps"].update(settle=0, warm_up=0)),
    "few steps": ("repeats", lambda of: of["ranks"][0]["unprofiled"].update(steps_ms=[20.0] * 9)),
    "no profiled step": ("what the profiler costs", lambda of: of["ranks"][0].pop("profiled")),
    "what is missing": ("nothing is missing", lambda of: of.update(missing=["report.sqlite holds no kernels"])),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_each_line_is_open_where_the_capture_does_not_say_it(
    lacking: str, hour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line, change = LACKING[lacking]
    held = items(capsys, edited(hour, tmp_path / "whole"))
    open_ones = items(capsys, edited(hour, tmp_path / "lacking", change))
    assert ticked(held) == set(held) - {"one change", "what is expected"}
    assert ticked(held) - ticked(open_ones) == {line}
    assert open_ones[line]["to_do"] and not held[line]["to_do"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda of: of.update(program=f"{of['program']} workers=4"), "argument 3: absent -> workers=4"),
        (lambda of: of["environment"].update(A="1"), "environment A: absent -> 1"),
        (lambda of: of["ranks"][0]["software"].update(torch="2.12"), "software torch: 2.11.0+cu130 -> 2.12"),
        (lambda of: of["ranks"][0]["settings"].update(threads="1"), "setting threads: 6 -> 1"),
        (lambda of: of["git"].update(commit="fedcba9876543210"), "git commit: 0123456789abcdef -> fedcba9876543210"),
    ],
)
def test_one_change_is_ticked_where_one_thing_differs(
    change: Change, says: str, hour: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = edited(hour, tmp_path / "before"), edited(hour, tmp_path / "after", change)
    row = items(capsys, before, after)["one change"]
    assert (row["state"], row["found"]) == ("✓", says)
    same = items(capsys, before, before)["one change"]
    assert (same["state"], same["found"]) == ("open", "nothing differs")
    two = edited(hour, tmp_path / "two", change, lambda of: of.update(config_files={"c.yaml": "1"}))
    row = items(capsys, before, two)["one change"]
    assert row["state"] == "open" and says in row["found"] and "c.yaml" in row["found"]


def test_what_is_expected_is_ticked_by_an_open_entry_of_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "what is expected" not in ticked(items(capsys))
    assert run(["verify", "--ledger", "add", "fuse", "--predicted", "1,2,3"]) == 0
    assert ticked(items(capsys)) == {"what is expected"}
    assert run(["verify", "--ledger", "close", "1", "--outcome", "faster", "--measured", "1,2,3"]) == 0
    assert ticked(items(capsys)) == set()


def test_a_foreign_trace_and_damage_are_no_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.json").write_text("{}")
    assert run(["doctor", "--checklist", str(tmp_path / "t.json")]) == 2
    (tmp_path / "manifest.json").write_text('{"timesink_manifest": 1, "gpus": 3, "ranks": [1], "git": [], "steps": 7}')
    assert ticked(items(capsys, tmp_path)) == {"nothing is missing"}
    assert run(["doctor", "--checklist", str(tmp_path), str(tmp_path / "t.json")]) == 2
