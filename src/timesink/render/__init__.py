"""Diagnoses, pages, gate results and rules as text, JSON, Markdown or HTML: one file per format.

A renderer computes nothing. Text that comes from a trace is scrubbed by each format for what it would obey. A format
is a file of this folder, a name in `Format`, and a line in `WRITERS` for each class of results that it writes. Commands
offer the formats that fit what they show, so nothing else names a format (docs/how-to/write-a-format.md).
"""

from collections.abc import Mapping
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from timesink.errors import UsageError
from timesink.model.presentable import UNASKED, Origin
from timesink.records import Record

if TYPE_CHECKING:
    from timesink.diagnosis.rule import Rule
    from timesink.diagnosis.verdicts import Diagnosis
    from timesink.verify.outcomes import GateResult
    from timesink.views import Page


DEFAULT_WIDTH = 100


class Format(StrEnum):
    """What a result is written as."""

    TEXT = "text"
    JSON = "json"
    MD = "md"
    HTML = "html"
    CSV = "csv"
    SARIF = "sarif"
    GITLAB = "gitlab"


class Style(Record):
    """How a result is shown: `width` in characters, `colour` and `verbose` (all there is to say, names in full) matter
    to text, `strict` to the exit code of a gate, `origin` to JSON."""

    width: int = DEFAULT_WIDTH
    colour: bool = False
    strict: bool = False
    verbose: bool = False
    origin: Origin = UNASKED


# Class of the result, format, and the function (result, style) -> text: `module:function` of this folder.
WRITERS: dict[str, Mapping[Format, str]] = {
    "Diagnosis": {
        Format.TEXT: "brief:render_diagnosis",
        Format.JSON: "json:render_diagnosis",
        Format.MD: "markdown:render_diagnosis",
        Format.HTML: "html:render_diagnosis",
        Format.SARIF: "code_findings:render_sarif",
        Format.GITLAB: "code_findings:render_gitlab",
    },
    "Page": {
        Format.TEXT: "text:render_page",
        Format.JSON: "json:render_page",
        Format.MD: "markdown:render_page",
        Format.HTML: "html:render_page",
        Format.CSV: "tables:render_csv",
    },
    "GateResult": {
        Format.TEXT: "gate:render_text",
        Format.JSON: "gate.ci:render_json",
        Format.MD: "gate.ci:render_markdown",
        Format.HTML: "gate:render_html",
    },
    "Rule": {
        Format.TEXT: "rule_page:render_text",
        Format.JSON: "rule_page:render_json",
        Format.MD: "rule_page:render_markdown",
        Format.HTML: "rule_page:render_html",
    },
}
# Formats that a file asks for by its name.
SUFFIXES = {
    ".json": Format.JSON,
    ".md": Format.MD,
    ".markdown": Format.MD,
    ".html": Format.HTML,
    ".csv": Format.CSV,
    ".sarif": Format.SARIF,
}


def formats_of(*results: str) -> tuple[Format, ...]:
    """The formats in which each of these classes of results can be written, in the order of `Format`."""
    return tuple(form for form in Format if all(form in WRITERS[result] for result in results))


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
