"""Reporters render a diagnosis; they compute nothing.

Every text that comes from a trace is scrubbed here, by each reporter for its own format.

The formats a report is written in.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis

DEFAULT_WIDTH = 100


class Format(StrEnum):
    """What a report is written as."""

    TEXT = "text"
    JSON = "json"
    MD = "md"
    HTML = "html"


__all__ = ["DEFAULT_WIDTH", "Format", "render"]


def render(diagnosis: Diagnosis, form: Format, *, width: int = DEFAULT_WIDTH, colour: bool = False) -> str:
    """The report as one string that ends in a newline. Width and colour matter to text only."""
    match form:
        case Format.TEXT:
            from timesink.render.text import render as as_text

            return as_text(diagnosis, width=width, colour=colour)
        case Format.JSON:
            from timesink.render.json import render as as_json

            return as_json(diagnosis)
        case Format.MD:
            from timesink.render.markdown import render as as_markdown

            return as_markdown(diagnosis)
        case Format.HTML:
            from timesink.render.html import render_diagnosis

            return render_diagnosis(diagnosis)
        case _:
            assert_never(form)
