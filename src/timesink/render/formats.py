"""The formats of results, and which function writes which result in which format.

A format is a file of this folder, a name in `Format`, and a line in `WRITERS` for each class of results that it writes.
Commands offer the formats that fit what they show, so nothing else names a format (docs/how-to/write-a-format.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from timesink.model.presentable import UNASKED, Origin
from timesink.model.record import dataclass

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


@dataclass(frozen=True, slots=True)
class Style:
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
        Format.SARIF: "sarif:render_diagnosis",
        Format.GITLAB: "gitlab:render_diagnosis",
    },
    "Page": {
        Format.TEXT: "text:render_page",
        Format.JSON: "json:render_page",
        Format.MD: "markdown:render_page",
        Format.HTML: "html:render_page",
        Format.CSV: "csv:render_page",
    },
    "GateResult": {
        Format.TEXT: "gate.pages:render_text",
        Format.JSON: "gate.json:render",
        Format.MD: "gate.markdown:render",
        Format.HTML: "gate.pages:render_html",
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
