"""A sign of life for whoever watches, and silence for logs and pipes."""

from __future__ import annotations

import io
import time

import pytest

from timesink.cli import output


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PATIENCE_S", 0.05)


@pytest.mark.usefixtures("impatient")
def test_long_work_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with output.working("reading [red]run"):
        time.sleep(0.4)
    assert "reading [red]run" in screen.getvalue()


@pytest.mark.usefixtures("impatient")
def test_what_is_shown_can_change_while_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with output.working("reading 8 files") as show:
        time.sleep(0.2)
        show("3 of 8 files read, 1 set aside")
        time.sleep(0.4)
    assert "3 of 8 files read, 1 set aside" in screen.getvalue()


@pytest.mark.usefixtures("impatient")
def test_short_work_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with output.working("reading"):
        pass
    time.sleep(0.1)
    assert "reading" not in screen.getvalue()


@pytest.mark.usefixtures("impatient")
def test_logs_and_pipes_see_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with output.working("reading"):
        time.sleep(0.2)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("impatient")
def test_an_error_ends_the_sign_and_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Screen())
    with pytest.raises(ValueError, match="boom"), output.working("reading"):
        raise ValueError("boom")
