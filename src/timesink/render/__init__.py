"""Diagnoses, pages, gate results and rules as text, JSON, Markdown or HTML: one file per format.

A renderer computes nothing. Text that comes from a trace is scrubbed here, by each format for what it would obey.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from timesink.render.formats import DEFAULT_WIDTH, WRITERS, Format, Style, formats_of

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.verify.outcomes import GateResult
    from timesink.views.page import Page

__all__ = ["DEFAULT_WIDTH", "Format", "Style", "formats_of", "render"]


def render(
    result: Diagnosis | Page | GateResult | Rule,
    form: Format,
    *,
    width: int = DEFAULT_WIDTH,
    colour: bool = False,
    strict: bool = False,
    verbose: bool = False,
) -> str:
    """The result as one string that ends in a newline, written by the function that `WRITERS` names.

    Width, colour and `verbose` matter to text only; `strict` to the exit code that a gate's JSON states.
    """
    module, _, function = WRITERS[type(result).__name__][form].partition(":")
    written: str = getattr(import_module(f"timesink.render.{module}"), function)(
        result, Style(width, colour, strict, verbose)
    )
    return written
