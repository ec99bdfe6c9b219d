"""Each row of the page of taught workflows holds, every figure of it is printed or in a file of the repository, and its
test fails where the product breaks what the row is about."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.guides.conftest import ROOT
from tests.guides.workflow_breaks import Break, Column, Instead, Row, Words, broken, is_shown
from tests.guides.workflow_rows import HELD_ELSEWHERE, ROWS

import timesink.render
from timesink.cli.app import run
from timesink.render import Format, Result, Style, written

PAGE = ROOT / "docs/explanation/workflows.md"
FIGURE = re.compile(r"(?<![\w.,#])[-+]?\d[\d,]*(?:\.\d+)?(?![\w×]|\.\d)")
BY_STEP = {row.step: row for row in ROWS}


def figures(text: str) -> set[str]:
    return {found.lstrip("+-").rstrip(",").replace(",", "") for found in FIGURE.findall(text)}


def figures_by_step() -> dict[str, set[str]]:
    """The figures that each step of the page shows, without those of commands and of exit codes."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if len(cells) == 4 and line.startswith("| ") and cells[0] != "step":
            said = re.sub(r"`timesink [^`]*`|\bexit \d|, \d where a number is not there", "", cells[2])
            found[cells[0]] = figures(said)
    return found


class Answer(NamedTuple):
    """What a command prints, its exit code, and the results that it wrote, each as it was written."""

    text: str
    code: int
    results: tuple[tuple[Result, Format, Style, str], ...] = ()


class Asking:
    """Asks each command once, in the workplace of the page."""

    def __init__(self, workplace: Path, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.workplace, self.patch, self.capsys = workplace, patch, capsys

    def answer(self, ask: str) -> Answer:
        for folder in (ROOT, self.workplace):
            if (path := folder / ask).is_file():
                return Answer(path.read_bytes().decode("utf-8", "replace"), 0)
        results: list[tuple[Result, Format, Style, str]] = []

        def noted(result: Result, form: Format, style: Style) -> str:
            results.append((result, form, style, text := written(result, form, style)))
            return text

        self.patch.setattr(timesink.render, "written", noted)
        self.capsys.readouterr()
        code = run([word.replace("PYTHON", sys.executable) for word in shlex.split(ask)])
        self.patch.setattr(timesink.render, "written", written)
        said = self.capsys.readouterr()
        return Answer(said.out + said.err, code, tuple(results))


_ANSWERS: dict[str, Answer] = {}


@pytest.fixture
def asked(workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    asking = Asking(workplace, monkeypatch, capsys)

    def of(ask: str) -> Answer:
        if ask not in _ANSWERS:
            _ANSWERS[ask] = asking.answer(ask)
        return _ANSWERS[ask]

    return of


def text_of(answer: Answer, by: Break | None) -> str:
    """What is printed, by a product with that break."""
    if isinstance(by, Words):
        return answer.text.replace(by.said, "")
    text = answer.text
    for result, form, style, shown in answer.results if isinstance(by, Column) else ():
        text = text.replace(shown, written(broken(result, by), form, style))
    return text


def unheld(row: Row, asked: Any, by: Break | None = None) -> list[str]:
    """What the row shows and is not printed; an exit code that is another."""
    asks = [*row.asks]
    if isinstance(by, Instead):  # of several commands the one that it is most like
        asks[max(range(len(asks)), key=lambda at: len(set(asks[at].split()) & set(by.ask.split())))] = by.ask
    answers = [asked(ask) for ask in asks]
    text = "\n".join(text_of(answer, by) for answer in answers)
    missing = [phrase for phrase in row.shows if not is_shown(phrase, text)]
    return missing + [f"exit {answer.code}" for answer in answers[-1:] if row.code not in (answer.code, None)]


@pytest.mark.slow
@pytest.mark.parametrize("step", BY_STEP)
def test_a_row_prints_what_it_shows(step: str, asked: Any) -> None:
    assert unheld(BY_STEP[step], asked) == []


@pytest.mark.slow
@pytest.mark.parametrize(("step", "by"), [(row.step, by) for row in ROWS for by in row.breaks], ids=str)
def test_a_break_of_what_a_row_is_about_is_caught(step: str, by: Break, asked: Any) -> None:
    assert unheld(BY_STEP[step], asked, by)


@pytest.mark.parametrize("step", [step for step, wanted in figures_by_step().items() if wanted and step in BY_STEP])
def test_every_figure_of_a_step_is_of_the_repository(step: str, asked: Any) -> None:
    known = set().union(*(figures(asked(ask).text) for ask in BY_STEP[step].asks))
    assert figures_by_step()[step] <= known, sorted(figures_by_step()[step] - known)


def test_every_row_has_breaks_or_names_the_test_that_holds_it() -> None:
    assert set(BY_STEP).isdisjoint(HELD_ELSEWHERE)
    assert set(BY_STEP) | set(HELD_ELSEWHERE) == set(figures_by_step())
    assert all(row.breaks for row in ROWS)
    for held in HELD_ELSEWHERE.values():
        file, _, name = held.test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), held
        assert (ROOT / "src/timesink" / held.file).read_text(encoding="utf-8").count(held.text) == 1, held


@pytest.mark.slow
@pytest.mark.parametrize("step", HELD_ELSEWHERE)
def test_a_break_of_a_row_that_another_test_holds_is_caught_there(step: str) -> None:
    held = HELD_ELSEWHERE[step]
    chosen = ["-k", held.only] if held.only else []
    words = [
        "-p",
        "tests.guides.breaking",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rfs",
        "-x",
        "-n0",
        "-m",
        "",
        *chosen,
        held.test,
    ]
    broken_line = json.dumps([f"timesink/{held.file}", held.text, held.instead])
    environment = {**os.environ, "BROKEN_LINE": broken_line, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    if "SKIPPED" in ended.stdout and "FAILED" not in ended.stdout:
        pytest.skip("what the test needs is not installed")
    assert (ended.returncode, "FAILED" in ended.stdout) == (1, True), ended.stdout[-2000:] + ended.stderr[-2000:]
