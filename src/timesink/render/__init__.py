"""Diagnoses, pages, gate results and rules as text, JSON, Markdown or HTML: one file per format.

A renderer computes nothing. Text that comes from a trace is scrubbed here, by each format for what it would obey.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from timesink.errors import UsageError
from timesink.render.formats import DEFAULT_WIDTH, WRITERS, Format, Style, formats_of

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.verify.outcomes import GateResult
    from timesink.views.page import Page

Result: TypeAlias = "Diagnosis | Page | GateResult | Rule"

__all__ = ["DEFAULT_WIDTH", "Format", "Result", "Style", "formats_of", "render", "written"]


def render(
    result: Result,
    form: Format,
    *,
    width: int = DEFAULT_WIDTH,
    colour: bool = False,
    strict: bool = False,
    verbose: bool = False,
) -> str:
    """The result as one string that ends in a newline.

    Width, colour and `verbose` matter to text only; `strict` to the exit code that a gate's JSON states.
    """
    return written(result, form, Style(width, colour, strict, verbose))


def written(result: Result, form: Format, style: Style) -> str:
    """The result as `render` has it, written by the function that `WRITERS` names. `UsageError` where there is none."""
    writers = WRITERS[type(result).__name__]
    if form not in writers:
        raise UsageError(f"this is not written as {form}", remedy=f"choose one of: {', '.join(writers)}")
    module, _, function = writers[form].partition(":")
    text: str = getattr(import_module(f"timesink.render.{module}"), function)(result, style)
    return text
