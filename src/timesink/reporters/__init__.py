"""Reporters render a diagnosis; they compute nothing.

Every text that comes from a trace is scrubbed here, by each reporter for its own format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from timesink.reporters.formats import DEFAULT_WIDTH, Format

if TYPE_CHECKING:
    from timesink.findings import Diagnosis

__all__ = ["DEFAULT_WIDTH", "Format", "render"]


def render(diagnosis: Diagnosis, form: Format, *, width: int = DEFAULT_WIDTH, colour: bool = False) -> str:
    """The report as one string that ends in a newline. Width and colour matter to text only."""
    match form:
        case Format.TEXT:
            from timesink.reporters.text import render as as_text

            return as_text(diagnosis, width=width, colour=colour)
        case Format.JSON:
            from timesink.reporters.json import render as as_json

            return as_json(diagnosis)
        case Format.MD:
            from timesink.reporters.markdown import render as as_markdown

            return as_markdown(diagnosis)
        case Format.HTML:
            from timesink.reporters.html import render_diagnosis

            return render_diagnosis(diagnosis)
        case _:
            assert_never(form)
