"""A diagnosis or a page as GitHub-flavoured Markdown, for a pull request or a ticket.

A trace's text shows as it is written: it links nowhere, mentions nobody and breaks no table.
"""

import re

from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Diagnosis
from timesink.render import Style
from timesink.render.parts import (
    Group,
    clear_text,
    device_sheet,
    grouped,
    limit_text,
    not_applicable_text,
    origin_text,
    sources_text,
    steps_text,
    undecided_parts,
)
from timesink.render.tables import cell_text, quantity_text
from timesink.untrusted import NAME_CHARACTERS, defuse_lines, scrub, scrub_sentence
from timesink.views import Page, Sheet, listed

_PUNCTUATION = str.maketrans({mark: f"\\{mark}" for mark in "\\`*_{}[]<>|~&$!"})
# GitHub acts on these after Markdown is done, so a backslash does not help; an empty comment splits them.
_AUTOMATIC = re.compile(r"(@|#)(?=\w)|(:)(?=//)|(\bwww)(?=\.)", re.IGNORECASE)


def render_diagnosis(diagnosis: Diagnosis, _style: Style) -> str:
    """The whole report; headings begin at level 2, so that it fits into a larger page."""
    lines = [f"## Bottleneck: {code(diagnosis.bottleneck.value)}", "", escaped(diagnosis.statement), ""]
    lines += [f"Trace: {escaped(sources_text(diagnosis))}  ", f"Steps: {escaped(steps_text(diagnosis.steps))}", ""]
    if diagnosis.devices:
        sheet = device_sheet(diagnosis.devices)
        lines += [*markdown_table(sheet), "", *([escaped(sheet.note), ""] if sheet.note else [])]
    for group in grouped(diagnosis):
        lines += _finding(group)
    lines += _rest(diagnosis)
    return defuse_lines("\n".join(lines).rstrip("\n") + "\n")


def render_page(page: Page, _style: Style) -> str:
    """The title, every sheet as a table, then the notes."""
    lines = [f"## {escaped(page.title)}", *(["", f"**{escaped(page.lede)}**"] if page.lede else [])]
    for sheet in page.sheets:
        lines += ["", f"### {escaped(sheet.title)}", ""]
        lines += markdown_table(sheet) if sheet.rows else ["nothing"]
        lines += ["", escaped(sheet.note)] if sheet.note else []
    lines += ["", *(f"- {escaped(note)}" for note in page.notes)] if page.notes else []
    return defuse_lines("\n".join(lines) + "\n")


def markdown_table(sheet: Sheet) -> list[str]:
    """The lines of a GitHub table, every cell escaped."""
    heads = " | ".join(escaped(column.head) for column in sheet.columns)
    rule = "|".join("---:" if column.unit else "---" for column in sheet.columns)
    lines = [f"| {heads} |", f"|{rule}|"]
    for row in sheet.rows:
        cells = (
            code(cell, in_table=True) if column.is_name and isinstance(cell, str) else escaped(cell_text(cell, column))
            for cell, column in zip(row, sheet.columns, strict=True)
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def escaped(text: str) -> str:
    """A sentence as literal Markdown on one line."""
    literal = scrub_sentence(text).translate(_PUNCTUATION)
    return _AUTOMATIC.sub(r"\g<0><!-- -->", literal)


def code(text: str, *, in_table: bool = False) -> str:
    """A name as a code span, whatever backticks it holds."""
    name = scrub(text, NAME_CHARACTERS)
    if in_table:
        name = name.replace("|", "\\|")  # no pattern: an escape
    if "`" not in name:
        return f"`{name or ' '}`"
    fence = "``"
    while fence in name:
        fence += "`"
    return f"{fence} {name} {fence}"


def _finding(group: Group) -> list[str]:
    finding = group.first
    facts = [
        (fact.label, quantity_text(fact.measured), limit_text(fact), origin_text(fact)) for fact in finding.evidence
    ]
    evidence = listed("markdown.evidence", facts)
    places = ", ".join(f"{name} {code(str(value))}" for name, value in finding.where.known().items())
    return [
        f"### {group.number}. {group.card.code} {escaped(finding.name)}: {escaped(saving_text(finding))}",
        *("", escaped(finding.message), "", *markdown_table(evidence), ""),
        *([f"- **At:** {places}"] if places else []),
        f"- **Do:** {escaped(finding.advice)}",
        f"- **Check:** {escaped(finding.verify)}",
        *(f"- **Also:** {escaped(other)}" for other in group.others),
        "",
    ]


def _rest(diagnosis: Diagnosis) -> list[str]:
    clear, other = clear_text(diagnosis), not_applicable_text(diagnosis)
    lines = [f"**Clear:** {escaped(', '.join(clear))}", ""] if clear else []
    lines += [f"**Not applicable:** {escaped(', '.join(other))}", ""] if other else []
    if undecided := undecided_parts(diagnosis):
        lines += ["**Undecided:**", ""]
        lines += [f"- {escaped(rule)}: {escaped(why)}. To decide: {code(how)}" for rule, why, how in undecided]
        lines.append("")
    if diagnosis.statements:
        lines += ["**In short:**", "", *(f"- {escaped(statement)}" for statement in diagnosis.statements), ""]
    if diagnosis.notes:
        lines += ["**Notes:**", "", *(f"- {escaped(str(note))}" for note in diagnosis.notes)]
    return lines
