"""The report for a pull request or a ticket: GitHub-flavoured Markdown in which a trace's text can do nothing."""

from __future__ import annotations

from timesink.diagnosis.verdicts import Diagnosis, Evidence
from timesink.render.cells import code, escaped, quantity_text, recoverable_text
from timesink.render.pages import markdown_table
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
from timesink.untrusted.scrub import defuse_lines
from timesink.views.page import Column, Sheet

_EVIDENCE = (Column("fact", "fact"), Column("value", "value"), Column("limit", "limit"), Column("how", "measured"))


def render(diagnosis: Diagnosis) -> str:
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


def _finding(group: Group) -> list[str]:
    finding = group.first
    recoverable = escaped(recoverable_text(finding.recoverable, finding.period))
    places = ", ".join(f"{name} {code(str(value))}" for name, value in finding.where.known().items())
    return [
        f"### {group.number}. {group.card.code} {escaped(group.card.name)}: {recoverable}",
        "",
        escaped(finding.message),
        "",
        *markdown_table(_evidence(finding.evidence)),
        "",
        *([f"- **At:** {places}"] if places else []),
        f"- **Do:** {escaped(finding.advice)}",
        f"- **Check:** {escaped(finding.verify)}",
        *(f"- **Also:** {escaped(other)}" for other in group.others),
        "",
    ]


def _evidence(facts: tuple[Evidence, ...]) -> Sheet:
    rows = tuple((fact.label, quantity_text(fact.measured), limit_text(fact), origin_text(fact)) for fact in facts)
    return Sheet("evidence", "Evidence", _EVIDENCE, rows)


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
        lines += ["**Notes:**", "", *(f"- {escaped(note)}" for note in diagnosis.notes)]
    return lines
