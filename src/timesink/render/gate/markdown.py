"""A pull-request comment: a hidden marker for a sticky update, one line, one table, details folded away.

Comments hold 65,536 characters; whole details are left out from the end until the text fits.
"""

from __future__ import annotations

from timesink.render.formats import Style
from timesink.render.gate import pages
from timesink.render.markdown import escaped, markdown_table
from timesink.untrusted.plain_text import dashed
from timesink.untrusted.scrub import defuse_lines
from timesink.verify.outcomes import GateResult
from timesink.views.page import Sheet

COMMENT_BYTES = 65_000


def render(result: GateResult, _style: Style | None = None) -> str:
    """The comment. Its first line is the marker by which a workflow finds the comment to replace."""
    return f"{marker(result.suite)}\n{body(result, COMMENT_BYTES - len(marker(result.suite)) - 1)}"


def marker(suite: str) -> str:
    """``<!-- timesink:suite -->``: the same for every result of a suite."""
    return f"<!-- timesink:{dashed(suite, '_.') or 'default'} -->"


def body(result: GateResult, most_bytes: int) -> str:
    """The text without a marker, at most that long."""
    head = [
        f"## {pages.mark(result)} {escaped(pages.headline(result))}",
        "",
        *_table(pages.metrics(result, pages.SHOWN_ROWS)),
    ]
    visible = (pages.differences, pages.budget, pages.contributions, pages.ranges, pages.findings)
    sections = [_visible(sheet(result)) for sheet in visible]
    sections += [[f"- {escaped(note)}" for note in pages.notes(result)], _folded(pages.runs(result))]
    sections = [lines for lines in sections if lines]
    while True:
        text = defuse_lines("\n".join([*head, *(line for lines in sections for line in ["", *lines])]) + "\n")
        if len(text.encode()) <= most_bytes or not sections:
            return text if len(text.encode()) <= most_bytes else _cut(text, most_bytes)
        sections.pop()


def _table(sheet: Sheet) -> list[str]:
    lines = markdown_table(sheet) if sheet.rows else ["nothing was compared"]
    return [*lines, "", escaped(sheet.note)] if sheet.note else lines


def _visible(sheet: Sheet) -> list[str]:
    return [f"### {escaped(sheet.title)}", "", *_table(sheet)] if sheet.rows else []


def _folded(sheet: Sheet) -> list[str]:
    if not sheet.rows:
        return []
    return ["<details>", f"<summary>{escaped(sheet.title)}</summary>", "", *_table(sheet), "", "</details>"]


def _cut(text: str, most_bytes: int) -> str:
    """Whole lines that fit."""
    kept: list[str] = []
    used = 0
    for line in text.splitlines(keepends=True):
        used += len(line.encode())
        if used > most_bytes:
            break
        kept.append(line)
    return "".join(kept)
