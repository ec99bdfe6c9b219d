"""Where a gate's result goes: the report that was asked for, and files for continuous integration."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from timesink.cli.output import Sink
from timesink.reporters.formats import Format

if TYPE_CHECKING:
    from timesink.outcomes import GateResult


@dataclass(frozen=True, slots=True)
class Files:
    """Reports to write besides the one on stdout."""

    junit: Path | None = None
    open_metrics: Path | None = None
    code_quality: Path | None = None
    comment: Path | None = None


def write(result: GateResult, sink: Sink, files: Files, *, strict: bool, exit_zero: bool) -> int:
    """Write everything; return the exit code. In GitHub Actions annotations and step summary come by themselves."""
    sink.write(_rendered(result, sink, strict))
    for path, render in _renderers(strict, files):
        if path is not None:
            Sink(Format.TEXT, path, sink.width, False).write(render(result))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _github(result)
    return 0 if exit_zero else result.exit_code(strict=strict)


def _rendered(result: GateResult, sink: Sink, strict: bool) -> str:
    from timesink.reporters import gate_json, gate_markdown, gate_pages, sheets

    match sink.form:
        case Format.TEXT | Format.HTML:
            return sheets.render(gate_pages.page(result), sink.form, width=sink.width, colour=sink.colour)
        case Format.JSON:
            return gate_json.render(result, strict=strict)
        case Format.MD:
            return gate_markdown.render(result)
        case _:
            assert_never(sink.form)


def _renderers(strict: bool, files: Files) -> list[tuple[Path | None, Callable[[GateResult], str]]]:
    from timesink.reporters import gate_gitlab, gate_junit, gate_markdown

    return [
        (files.junit, lambda result: gate_junit.render(result, strict=strict)),
        (files.open_metrics, gate_gitlab.open_metrics),
        (files.code_quality, gate_gitlab.code_quality),
        (files.comment, gate_markdown.render),
    ]


def _github(result: GateResult) -> None:
    """Commands are read from either stream: stderr keeps stdout clean for the report."""
    from timesink.reporters import gate_github

    sys.stderr.write(gate_github.workflow_commands(result))
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(gate_github.summary(result))
