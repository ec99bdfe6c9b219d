"""A gate for programs: JSON, a comment on a pull request, and what services for continuous integration read.

- JSON: the contract. Keys are added, never renamed.
- A pull-request comment: a hidden marker for a sticky update, one line, one table, details folded away. Comments hold
  65,536 characters; whole details are left out from the end until the text fits.
- GitHub: annotations as workflow commands, and the step summary. A step shows at most ten errors and ten warnings: five
  of each are written, the rest is in the summary. A summary over 1 MiB is refused whole, so ours stays under 900 kB.
- GitLab: a Code Quality report of findings that name a source line, and a Metrics Report (OpenMetrics).
- JUnit XML, read by GitHub (through actions), GitLab and Jenkins: one suite, one case per gated metric. Slower is a
  failure, invalid an error, inconclusive skipped (a failure where strict). Numbers are properties of the suite, because
  the schema that Jenkins validates against knows none on a case.

"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any
from xml.etree import ElementTree as ET

from timesink.render import Style, code_findings
from timesink.render.code_findings import inside
from timesink.render.gate import pages
from timesink.render.gate.pages import (
    changed_findings,
    finding_text,
    headline,
    sentence,
    speed_up_text,
    why,
    worst_first,
)
from timesink.render.json import enveloped, json_text
from timesink.render.markdown import escaped, markdown_table
from timesink.untrusted.scrub import dashed, defuse_lines, scrub, scrub_sentence
from timesink.verify.outcomes import ChangeVerdict, Contribution, Fate, GateResult, GateRow, Outcome
from timesink.views.page import Sheet


def render_json(result: GateResult, style: Style) -> str:
    """The document as indented ASCII JSON."""
    return json_text(enveloped(style.origin, document(result, strict=style.strict)))


def document(result: GateResult, *, strict: bool = False) -> dict[str, Any]:
    """The result as plain values, without the envelope."""
    return {
        "suite": result.suite,
        "procedure": result.procedure,
        "outcome": str(result.outcome),
        "exit_code": result.exit_code(strict=strict),
        "headline": headline(result),
        "metrics": [_row(row) for row in result.rows],
        "differences": {name: list(pair) for name, pair in sorted(result.differences.items())},
        "budget": [_part(part) for part in result.budget],
        "contributions": [_part(part) for part in result.contributions],
        "findings": [asdict(finding) for finding in result.findings],
        "ranges": [asdict(one) for one in result.ranges],
        "runs": [asdict(run) for run in result.runs],
        "notes": list(result.notes),
        "artefact": result.artefact or None,
    }


def _row(row: GateRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "before": row.before,
        "after": row.after,
        "better": str(row.better),
        "how": str(row.how),
        "gated": row.gated,
        "limit": row.limit or None,
        "verdict": _verdict(row.verdict),
    }


def _verdict(verdict: ChangeVerdict) -> dict[str, Any]:
    effect = verdict.effect
    return {
        "outcome": str(verdict.outcome),
        "label": verdict.label,
        "effect": None if effect is None else asdict(effect),
        "threshold_ratio": verdict.threshold_ratio,
        "reason": None if verdict.reason is None else str(verdict.reason),
        "explanation": verdict.explanation,
        "to_resolve": verdict.to_resolve,
        "pairs": verdict.pairs,
        "run_sd_ratio": verdict.run_sd_ratio,
        "false_alarm_ratio": verdict.false_alarm_ratio,
        "tagged": verdict.tagged,
        "least_speed_up": verdict.least_speed_up,
        "falls_short": verdict.falls_short,
        "notes": list(verdict.notes),
    }


def _part(part: Contribution) -> dict[str, Any]:
    return {"name": part.name, "before_ns": part.before_ns, "after_ns": part.after_ns, "delta_ns": part.delta_ns}


COMMENT_BYTES = 65_000


def render_markdown(result: GateResult, _style: Style | None = None) -> str:
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


ANNOTATIONS = 5
SUMMARY_BYTES = 900_000


def workflow_commands(result: GateResult) -> str:
    """One command per line: errors for what fails, warnings for what cannot be said, notices for new findings."""
    ranked = [row for row in worst_first(result.rows) if row.gated]
    errors = [row for row in ranked if row.failed or row.verdict.outcome is Outcome.INVALID]
    warnings = [
        row
        for row in ranked
        if row not in errors and (row.verdict.outcome is Outcome.INCONCLUSIVE or row.verdict.tagged)
    ]
    lines = [_command("error", row.name, _annotation(row)) for row in errors[:ANNOTATIONS]]
    lines += [_command("warning", row.name, _annotation(row)) for row in warnings[:ANNOTATIONS]]
    new = [finding for finding in changed_findings(result.findings) if finding.fate is Fate.NEW]
    for finding in new[:ANNOTATIONS]:
        place = {"file": finding.file, "line": str(finding.line or 1)} if finding.file else {}
        lines.append(
            _command("notice", f"{finding.code} {finding.name}", f"{finding_text(finding)}: {finding.message}", place)
        )
    return "".join(f"{line}\n" for line in lines)


def summary(result: GateResult) -> str:
    """Markdown to append to the file in GITHUB_STEP_SUMMARY."""
    return body(result, SUMMARY_BYTES)


def _annotation(row: GateRow) -> str:
    reasons = why(row.verdict)
    told = f"{speed_up_text(row.verdict)}{sentence(row)}"
    return f"{told}. {reasons}" if reasons else told


def _command(kind: str, title: str, message: str, place: dict[str, str] | None = None) -> str:
    properties = {**(place or {}), "title": f"timesink: {title}"}
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {listed}::{_data(scrub_sentence(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(scrub(text)).replace(":", "%3A").replace(",", "%2C")


_SEVERITY = {Fate.NEW: "major", Fate.CHANGED: "minor", Fate.SAME: "info"}
_FIGURES = 4


def code_quality(result: GateResult) -> str:
    """A JSON array; findings without a file, absolute paths and findings that are gone have no place in it."""
    return code_findings.code_quality(
        code_findings.quality_entry(
            finding.code,
            scrub_sentence(f"{finding_text(finding)}: {finding.message}"),
            (file, max(finding.line or 1, 1)),
            _SEVERITY[finding.fate],
            hashlib.sha256(
                f"{finding.code}\0{finding.file}\0{finding.line}\0{finding.message}".encode(errors="replace")
            ).hexdigest(),
        )
        for finding in result.findings
        if finding.fate in _SEVERITY and (file := inside(finding.file or ""))
    )


def open_metrics(result: GateResult) -> str:
    """OpenMetrics text. GitLab compares values as text, so four significant digits are written."""
    values: list[str] = []
    ratios: list[str] = []
    for row in result.rows:
        labels = {"suite": result.suite, "metric": row.name, "unit": row.unit}
        if row.after is not None:
            values.append(f"timesink_metric{_labels(labels)} {row.after:.{_FIGURES}g}")
        if row.verdict.effect is not None:
            ratios.append(f"timesink_change_ratio{_labels(labels)} {row.verdict.effect.ratio:.{_FIGURES}g}")
    lines = [
        "# TYPE timesink_metric gauge",
        "# HELP timesink_metric A gated metric after the change, in its unit.",
        *values,
    ]
    lines += [
        "# TYPE timesink_change_ratio gauge",
        "# HELP timesink_change_ratio After over before; above 1 is worse.",
        *ratios,
    ]
    lines += ["# TYPE timesink_exit_code gauge", "# HELP timesink_exit_code What timesink gate exits with."]
    lines += [f"timesink_exit_code{_labels({'suite': result.suite})} {result.exit_code()}", "# EOF"]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    parts = (f'{name}="{_escaped(scrub(value))}"' for name, value in labels.items())
    return "{" + ",".join(parts) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# Characters XML 1.0 cannot hold even as references; scrubbing has already shown control characters as escapes.
_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(result: GateResult, *, strict: bool = False) -> str:
    """The XML document."""
    rows = [row for row in result.rows if row.gated]
    kinds = [_kind(row, strict) for row in rows]
    counts = {"tests": len(rows), "failures": kinds.count("failure"), "errors": kinds.count("error")}
    attributes = {name: str(count) for name, count in counts.items()}
    name = _text(f"timesink {result.suite}".rstrip())
    root = ET.Element("testsuites", {"name": name, **attributes})
    suite = ET.SubElement(root, "testsuite", {"name": name, **attributes, "skipped": str(kinds.count("skipped"))})
    properties = ET.SubElement(suite, "properties")
    _junit_property(properties, "headline", headline(result))
    _junit_property(properties, "procedure", result.procedure)
    for row in result.rows:
        _numbers(properties, row)
    for row, kind in zip(rows, kinds, strict=True):
        case = ET.SubElement(suite, "testcase", {"name": _text(row.name), "classname": name, "time": "0"})
        if kind:
            told = f"{speed_up_text(row.verdict)}{sentence(row)}"
            details = {"message": _text(told), "type": _text(str(row.verdict.outcome))}
            ET.SubElement(case, kind, details).text = _text(why(row.verdict) or sentence(row))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _kind(row: GateRow, strict: bool) -> str:
    if row.failed:
        return "failure"
    if row.verdict.outcome is Outcome.INVALID:
        return "error"
    if row.verdict.outcome is Outcome.INCONCLUSIVE or row.verdict.tagged:
        return "failure" if strict else "skipped"
    return ""


def _numbers(properties: ET.Element, row: GateRow) -> None:
    effect = row.verdict.effect
    values = {"before": row.before, "after": row.after}
    if effect is not None:
        values |= {"ratio": effect.ratio, "ratio low": effect.low, "ratio high": effect.high}
    for name, value in values.items():
        if value is not None:
            _junit_property(properties, f"{row.name} {name}", f"{value:.6g}")
    _junit_property(properties, f"{row.name} unit", row.unit)


def _junit_property(parent: ET.Element, name: str, value: str) -> None:
    ET.SubElement(parent, "property", {"name": _text(name), "value": _text(value)})


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", scrub_sentence(text))
