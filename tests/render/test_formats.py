"""The table of formats: every function that it names exists, and every command offers only what can be written."""

from __future__ import annotations

from importlib import import_module

import pytest

from timesink.cli.app import run
from timesink.render import WRITERS, Format, formats_of

NAMED = [(result, place) for result, places in WRITERS.items() for place in places.values()]


@pytest.mark.parametrize(("result", "place"), NAMED, ids=[f"{result} {place}" for result, place in NAMED])
def test_every_writer_is_a_function_of_a_result_and_a_style(result: str, place: str) -> None:
    module, _, function = place.partition(":")
    writer = getattr(import_module(f"timesink.render.{module}"), function)
    assert next(iter(writer.__annotations__.values())) == result


def test_a_format_is_offered_where_all_that_is_shown_can_be_written() -> None:
    assert formats_of("Diagnosis", "Page") == (Format.TEXT, Format.JSON, Format.MD, Format.HTML)


def test_a_format_that_a_command_cannot_write_is_refused_before_anything_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {form: place for form, place in WRITERS["Page"].items() if form is not Format.MD}
    monkeypatch.setitem(WRITERS, "Page", pages)
    assert Format.MD not in formats_of("Page")
    assert run(["summary", "no/such/file", "-f", "xml"]) == 2
    assert "'xml' is not one of" in capsys.readouterr().err
