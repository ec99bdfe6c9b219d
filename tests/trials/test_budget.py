"""The time for everything is counted from the command on, not from where libraries are loaded and files are copied."""

import time
from contextlib import nullcontext
from typing import Any

import pytest

from timesink.cli.app import run
from timesink.errors import UsageError

WAITED_S = 0.4


class Held:
    """A workplace that holds nothing."""

    def close(self) -> None:
        """Nothing stands in it."""


@pytest.mark.parametrize("command", ["try", "fix"])
def test_what_comes_before_the_first_run_is_a_part_of_the_budget(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left: list[float] = []

    def slow(*_: object, **__: object) -> Any:
        time.sleep(WAITED_S)
        return Held()

    def slow_box(*_: object) -> Any:
        return nullcontext(slow() and None)

    def repair(program: object, workplace: object, scratch: object, asked: Any) -> None:
        left.append(asked.budget_s)
        raise UsageError("enough")

    def trial(program: object, *, budget_s: float, **_: object) -> None:
        left.append(budget_s)
        raise UsageError("enough")

    monkeypatch.setattr("timesink.trials.workplace.open_workplace", slow)
    monkeypatch.setattr("timesink.trials.apart.boxes_for_edits", slow_box)
    monkeypatch.setattr("timesink.verify.environment.boxes", slow_box)
    monkeypatch.setattr("timesink.trials.repair.fix_program", repair)
    monkeypatch.setattr("timesink.trials.course.try_changes", trial)
    assert run([command, "--budget", "60", "--", "python", "train.py"]) == 2
    assert "enough" in capsys.readouterr().err
    assert 0 < left[0] <= 60 - WAITED_S
