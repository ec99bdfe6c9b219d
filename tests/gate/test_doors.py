"""The laws of doors catch what they are there for: each door of one answer is falsified by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest
from tests.gate import doors
from tests.gate.answers import Answers, answers_of

from timesink.readers import read

DEMO = Path(str(files("timesink.cli").joinpath("demo"))) / "gpt_before.json.gz"


@pytest.fixture(scope="module")
def true() -> Answers:
    return answers_of(DEMO.name, read(DEMO), (DEMO,))


def falsified(of: Answers, door: str, pattern: str, other: str) -> Answers:
    """The answers with other words at one door; the screen is a door too."""
    text = re.sub(pattern, other, of.doors[door], count=1)
    assert text != of.doors[door]
    false = replace(of)
    false.__dict__["doors"] = {**of.doors, door: text}
    if door == "screen":
        false.__dict__["screen"] = text
    return false


LAWS = (doors.findings_agree, doors.rows_divide, doors.bar_is_the_budget, doors.commands_are_understood)
FALSE: dict[str, tuple[Callable[[Answers], object], str, str, str]] = {
    "the server has another price": (doors.findings_agree, "mcp", '"value": 1.106', '"value": 1.206'),
    "the server has another order": (doors.findings_agree, "mcp", '"rule": "IDL101"', '"rule": "IDL102"'),
    "Markdown has another price": (doors.findings_agree, "md", r"saves 781 us", "saves 881 us"),
    "a finding is missing": (doors.findings_agree, "md", r"### 2\.", "### two."),
    "a share of another step": (doors.rows_divide, "screen", r"10\.5 %", "9.5 %"),
    "another bar": (doors.bar_is_the_budget, "screen", r"blocking waits\s+6\.68 %", "blocking waits 7.68 %"),
    "no such command": (doors.commands_are_understood, "screen", "timesink explain", "timesink elucidate"),
    "no such option": (doors.commands_are_understood, "screen", "timesink explain", "timesink explain --why"),
}


def test_what_is_said_keeps_them(true: Answers) -> None:
    assert [fault for law in LAWS for fault in law(true)] == []


@pytest.mark.parametrize("name", FALSE)
def test_a_false_door_is_caught(name: str, true: Answers) -> None:
    law, *falsity = FALSE[name]
    assert list(law(falsified(true, *falsity))) != []  # type: ignore[call-overload]
