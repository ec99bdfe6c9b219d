"""Diagnoses and pages as text, JSON, Markdown or HTML: one file per format.

A renderer computes nothing. Text that comes from a trace is scrubbed here, by each format for what it would obey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from timesink.render.formats import DEFAULT_WIDTH, Format

if TYPE_CHECKING:
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.views.page import Page

__all__ = ["DEFAULT_WIDTH", "Format", "render", "render_page"]


def render(diagnosis: Diagnosis, form: Format, *, width: int = DEFAULT_WIDTH, colour: bool = False) -> str:
    """The report as one string that ends in a newline. Width and colour matter to text only."""
    match form:
        case Format.TEXT:
            from timesink.render.text import render_diagnosis as as_text

            return as_text(diagnosis, width=width, colour=colour)
        case Format.JSON:
            from timesink.render.json import render_diagnosis as as_json

            return as_json(diagnosis)
        case Format.MD:
            from timesink.render.markdown import render_diagnosis as as_markdown

            return as_markdown(diagnosis)
        case Format.HTML:
            from timesink.render.html import render_diagnosis as as_html

            return as_html(diagnosis)
        case _:
            assert_never(form)


def render_page(page: Page, form: Format, *, width: int = DEFAULT_WIDTH, colour: bool = False) -> str:
    """The page as one string that ends in a newline. Width and colour matter to text only."""
    match form:
        case Format.TEXT:
            from timesink.render.text import render_page as as_text

            return as_text(page, width=width, colour=colour)
        case Format.JSON:
            from timesink.render.json import render_page as as_json

            return as_json(page)
        case Format.MD:
            from timesink.render.markdown import render_page as as_markdown

            return as_markdown(page)
        case Format.HTML:
            from timesink.render.html import render_page as as_html

            return as_html(page)
        case _:
            assert_never(form)
