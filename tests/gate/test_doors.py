"""The laws of doors catch what they are there for: each door of one answer is falsified by itself."""

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from tests.gate import doors, pages
from tests.gate.answers import Answers, answers_of

from timesink.readers import read
from timesink.records import replace

DEMO = Path(str(files("timesink.cli").joinpath("demo"))) / "gpt_before.json.xz"


@pytest.fixture(scope="module")
def true() -> Answers:
    return answers_of(DEMO.name, read(DEMO), (DEMO,))


def falsified(of: Answers, door: str, pattern: str, other: str) -> Answers:
    """The answers with other words at one door; the screen is a door too."""
    said = of.doors.get(door) or getattr(of, door)
    text = re.sub(pattern, other, said, count=1)
    assert text != said
    false = replace(of)
    false.__dict__.update(doors={**of.doors, door: text}, plan=of.plan, report=of.report, page=of.page)
    if door in ("screen", "plan", "report", "page"):
        false.__dict__[door] = text
    return false


LAWS = (
    doors.findings_agree, doors.rows_divide, doors.rows_have_their_share, doors.rows_count_their_own,
    doors.bar_is_the_budget, doors.commands_are_understood,
    pages.lane_is_the_bar, pages.change_alone_is_its_finding, pages.prices_are_in_order,
    pages.page_commands_are_understood,
)  # fmt: skip
FALSE: dict[str, tuple[Callable[[Answers], object], str, str, str]] = {
    "the server has another price": (doors.findings_agree, "mcp", '"value": 1.07', '"value": 1.17'),
    "the server has another order": (doors.findings_agree, "mcp", '"rule": "IDL101"', '"rule": "IDL102"'),
    "Markdown has another price": (doors.findings_agree, "md", r"saves 781 us", "saves 881 us"),
    "a finding is missing": (doors.findings_agree, "md", r"### 2\.", "### two."),
    "a share of another step": (doors.rows_divide, "screen", r"[\d.]+ %(?=  optimizer-unfused)", "9.4 %"),
    "a price without its share": (doors.rows_have_their_share, "screen", r"[\d.]+ %(?=  optimizer-unfused)", "      "),
    "one row of one name too many": (
        doors.rows_have_their_share,
        "screen",
        r"\n +[\d.]+ us +7\.58 %  dtype-conversion ",
        "\n  no more                      input-pipeline   ",
    ),
    "a row of more than there are": (doors.rows_count_their_own, "screen", "dtype-conversion  ", "dtype-conversion ×2"),
    "another bar": (doors.bar_is_the_budget, "screen", r"host sync\s+6\.68 %", "host sync 7.68 %"),
    "no such command": (doors.commands_are_understood, "screen", "timesink explain", "timesink elucidate"),
    "another lane": (pages.lane_is_the_bar, "screen", r"host sync\s+6\.68 %", "host sync 7.68 %"),
    "a change wins more alone": (
        pages.change_alone_is_its_finding,
        "plan",
        r"(\nloader_workers +)1\.\d+ ms(?= +\S+ ms +\S+ ms +1)",
        r"\1 2.75 ms",
    ),
    "a low end above the value": (pages.prices_are_in_order, "mcp", r'"low": 1\.\d+', '"low": 1.99'),
    "a rung of the plan above the step": (
        pages.prices_are_in_order,
        "plan",
        r"(\nloader_workers +(?:\S+ ms +){3})(?=\d\.\d+ ms)",
        r"\g<1>1",
    ),
    "a price of the report out of order": (pages.prices_are_in_order, "page", r", 1\.\d+ ms to", ", 1.99 ms to"),
    "no such command in the report": (
        pages.page_commands_are_understood,
        "report",
        "<code>timesink capture nsys",
        "<code>timesink record nsys",
    ),
    "no such option in the plan": (
        pages.page_commands_are_understood,
        "plan",
        "timesink try --only",
        "timesink try --just",
    ),
    "no such option": (doors.commands_are_understood, "screen", "timesink explain", "timesink explain --why"),
}


def test_what_is_said_keeps_them(true: Answers) -> None:
    assert [fault for law in LAWS for fault in law(true)] == []


@pytest.mark.parametrize("name", FALSE)
def test_a_false_door_is_caught(name: str, true: Answers) -> None:
    law, *falsity = FALSE[name]
    assert list(law(falsified(true, *falsity))) != []  # type: ignore[call-overload]
