"""A sign of life for whoever watches, and silence for logs and pipes."""

import io
import threading
import time

import pytest

from timesink.cli import output


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def wait_for(text: str, screen: Screen) -> None:
    """Return once the screen shows the text; a busy machine may take a while."""
    deadline = time.monotonic() + 60
    while text not in screen.getvalue():
        assert time.monotonic() < deadline, screen.getvalue()
        time.sleep(0.01)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PATIENCE_S", 0.05)


@pytest.mark.usefixtures("impatient")
def test_long_work_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with output.working("reading [red]run"):
        wait_for("reading [red]run", screen)


@pytest.mark.usefixtures("impatient")
def test_what_is_shown_can_change_while_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    with output.working("reading 8 files") as show:
        wait_for("reading 8 files", screen)
        show("3 of 8 files read, 1 set aside")
        wait_for("3 of 8 files read, 1 set aside", screen)


def test_short_work_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(output, "PATIENCE_S", 60.0)
    with output.working("reading"):
        pass
    assert "reading" not in screen.getvalue()
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


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


@pytest.mark.parametrize("is_long", [True, False])
def test_a_log_is_told_how_far_long_work_is_and_nothing_of_short(
    is_long: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "SILENT_S", 0.05 if is_long else 60.0)
    output.tell("run 1")
    if is_long:
        assert output._running.telling
        output._running.telling.join(60)
    output.tell("run 2")
    output.over()
    assert capsys.readouterr().err == ("run 1\nrun 2\n" if is_long else "")
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


def test_a_terminal_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    output.tell("run 1")
    output.over()
    assert screen.getvalue() == "run 1\n"
