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

import hashlib
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any
from xml.etree import ElementTree as ET

from timesink.records import as_plain
from timesink.render import Style
from timesink.render import gate as pages
from timesink.render.code_findings import inside, quality_entry, quality_report
from timesink.render.gate import (
    changed_findings,
    explained,
    finding_text,
    headline,
    sentence,
    speed_up_text,
    why,
    worst_first,
)
from timesink.render.json import enveloped, json_text, named
from timesink.render.markdown import escaped, markdown_table
from timesink.untrusted import dashed, defuse_lines, scrub, scrub_sentence
from timesink.verify.outcomes import Fate, GateResult, GateRow, Outcome, StepChange, summed_work
from timesink.views import Sheet


def render_json(result: GateResult, style: Style) -> str:
    """The document as indented ASCII JSON."""
    return json_text(enveloped(style.origin, document(result, strict=style.strict)))


def document(result: GateResult, *, strict: bool = False) -> dict[str, Any]:
    """The result as plain values, without the envelope."""
    return {
        **named(result, "suite procedure outcome"),
        "exit_code": result.exit_code(strict=strict),
        "headline": headline(result),
        "metrics": [_row(row) for row in result.rows],
        "differences": {name: list(pair) for name, pair in sorted(result.differences.items())},
        **{
            parts: [named(part, "name before_ns after_ns delta_ns") for part in getattr(result, parts)]
            for parts in ("budget", "contributions", "start_up")
        },
        **{parts: list(map(as_plain, getattr(result, parts))) for parts in ("findings", "ranges", "runs", "suspects")},
        "lead": explained.lead(result),
        "changes": [{**named(one, "kind cause delta_ns"), "works": _works(one)} for one in result.changes],
        **named(result, "joined_ratio placed_ratio alone_ratio"),
        "notes": list(result.notes),
    }


_SHOWN_WORKS = 20


def _works(change: StepChange) -> list[Any]:
    """The works of a change, the largest first; those past the twentieth in one row, so that they sum to it."""
    first, rest = change.works[:_SHOWN_WORKS], change.works[_SHOWN_WORKS:]
    return list(map(as_plain, [*first, *([summed_work(rest)] if rest else [])]))


def _row(row: GateRow) -> dict[str, Any]:
    verdict, effect = row.verdict, row.verdict.effect
    told = {
        **named(verdict, "outcome label"),
        "effect": None if effect is None else as_plain(effect),
        **named(verdict, "threshold_ratio reason explanation to_resolve pairs run_sd_ratio false_alarm_ratio tagged"),
        **named(verdict, "least_speed_up falls_short seen_ratio"),
        "notes": list(verdict.notes),
    }
    return {**named(row, "name unit before after better how gated"), "limit": row.limit or None, "verdict": told}


COMMENT_BYTES = 65_000


def render_markdown(result: GateResult, _style: Style | None = None) -> str:
    """The comment. Its first line is the marker by which a workflow finds the comment to replace."""
    return f"{marker(result.suite)}\n{body(result, COMMENT_BYTES - len(marker(result.suite)) - 1)}"


def marker(suite: str) -> str:
    """``<!-- timesink:suite -->``: the same for every result of a suite."""
    return f"<!-- timesink:{dashed(suite, '_.') or 'default'} -->"


def body(result: GateResult, most_bytes: int) -> str:
    """The text without a marker, at most that long: whole sections go first, then lines, from the end."""
    metrics = _table(pages.metrics(result, pages.SHOWN_ROWS))
    head = [f"## {pages.mark(result)} {escaped(headline(result))}", "", *metrics]
    if said := explained.lead(result):
        head[1:1] = ["", f"**{escaped(said)}**"]
    parts = [part for part in pages.PARTS if part not in (pages.metrics, pages.runs)]
    sections = [
        [f"### {escaped(sheet.title)}", "", *_table(sheet)] for sheet in (part(result) for part in parts) if sheet.rows
    ]
    sections.append([f"- {escaped(note)}" for note in pages.notes(result)])
    if (runs := pages.runs(result)).rows:
        summary = f"<summary>{escaped(runs.title)}</summary>"
        sections.append(["<details>", summary, "", *_table(runs), "", "</details>"])
    while True:
        text = defuse_lines("\n".join([*head, *(line for lines in sections for line in ["", *lines])]) + "\n")
        if len(text.encode()) <= most_bytes:
            return text
        if not sections:
            lines = text.splitlines(keepends=True)
            sizes = accumulate(len(line.encode()) for line in lines)
            return "".join(line for line, size in zip(lines, sizes, strict=True) if size <= most_bytes)
        sections.pop()


def _table(sheet: Sheet) -> list[str]:
    lines = markdown_table(sheet) if sheet.rows else ["nothing was compared"]
    return [*lines, "", escaped(sheet.note)] if sheet.note else lines


ANNOTATIONS = 5
SUMMARY_BYTES = 900_000


def workflow_commands(result: GateResult) -> str:
    """One command per line: errors for what fails, warnings for what cannot be said, notices for new findings."""
    lines = []
    for command, kinds in (("error", ("failure", "error")), ("warning", ("skipped",))):
        rows = [row for row in worst_first(result.rows) if row.gated and _kind(row, strict=False) in kinds]
        for row in rows[:ANNOTATIONS]:
            reasons, told = why(row.verdict), f"{speed_up_text(row.verdict)}{sentence(row)}"
            lines.append(_command(command, row.name, f"{told}. {reasons}" if reasons else told))
    new = [finding for finding in changed_findings(result.findings) if finding.fate is Fate.NEW]
    for finding in new[:ANNOTATIONS]:
        place = {"file": finding.file, "line": str(finding.line or 1)} if finding.file else {}
        message = f"{finding_text(finding)}: {finding.message}"
        lines.append(_command("notice", f"{finding.code} {finding.name}", message, place))
    return "".join(f"{line}\n" for line in lines)


def summary(result: GateResult) -> str:
    """Markdown to append to the file in GITHUB_STEP_SUMMARY."""
    return body(result, SUMMARY_BYTES)


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
    """A JSON array: each number that fails the gate, at the file of the pipeline, since it has no line of its own, then
    findings; those without a file, absolute paths and findings that are gone have no place in it."""
    entries = [
        quality_entry("gate", text, _PIPELINE, "major", _digest("gate", result.suite, row.name))
        for row in worst_first(result.rows)
        if row.failed and (text := scrub_sentence(f"{row.name}: {sentence(row)}"))
    ]
    for finding in result.findings:
        file = inside(finding.file or "")
        if file and finding.fate in _SEVERITY:
            text = scrub_sentence(f"{finding_text(finding)}: {finding.message}")
            fingerprint = _digest(finding.code, str(finding.file), str(finding.line), finding.message)
            place = file, max(finding.line or 1, 1)
            entries.append(quality_entry(finding.code, text, place, _SEVERITY[finding.fate], fingerprint))
    return quality_report(entries)


_PIPELINE = (".gitlab-ci.yml", 1)


def _digest(*parts: str) -> str:
    """The same where all parts are."""
    return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()


def open_metrics(result: GateResult) -> str:
    """OpenMetrics text. GitLab compares values as text, so four significant digits are written."""
    lines = []
    for metric, words in (("metric", _METRIC), ("change_ratio", "After over before; above 1 is worse.")):
        lines += [f"# TYPE timesink_{metric} gauge", f"# HELP timesink_{metric} {words}"]
        for row in result.rows:
            value = row.after if metric == "metric" else row.verdict.effect and row.verdict.effect.ratio
            if value is not None:
                labels = _labels({"suite": result.suite, "metric": row.name, "unit": row.unit})
                lines.append(f"timesink_{metric}{labels} {value:.{_FIGURES}g}")
    lines += ["# TYPE timesink_exit_code gauge", "# HELP timesink_exit_code What timesink gate exits with."]
    lines += [f"timesink_exit_code{_labels({'suite': result.suite})} {result.exit_code()}", "# EOF"]
    return "\n".join(lines) + "\n"


_METRIC = "A gated metric after the change, in its unit."


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
    values = [("headline", headline(result)), ("procedure", result.procedure)]
    for row in result.rows:
        effect = row.verdict.effect
        numbers = {"before": row.before, "after": row.after}
        if effect is not None:
            numbers |= {"ratio": effect.ratio, "ratio low": effect.low, "ratio high": effect.high}
        values += [(f"{row.name} {of}", f"{number:.6g}") for of, number in numbers.items() if number is not None]
        values.append((f"{row.name} unit", row.unit))
    for of, value in values:
        ET.SubElement(properties, "property", {"name": _text(of), "value": _text(value)})
    for row, kind in zip(rows, kinds, strict=True):
        case = ET.SubElement(suite, "testcase", {"name": _text(row.name), "classname": name, "time": "0"})
        if kind:
            told = f"{speed_up_text(row.verdict)}{sentence(row)}"
            details = {"message": _text(told), "type": _text(str(row.verdict.outcome))}
            ET.SubElement(case, kind, details).text = _text(why(row.verdict) or sentence(row))
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _kind(row: GateRow, strict: bool) -> str:
    """What JUnit calls a case that did not simply pass; '' for one that did."""
    if row.failed:
        return "failure"
    if row.verdict.outcome is Outcome.INVALID:
        return "error"
    if row.verdict.outcome is Outcome.INCONCLUSIVE or row.verdict.tagged:
        return "failure" if strict else "skipped"
    return ""


def _text(text: str) -> str:
    return _ILLEGAL.sub("\ufffd", scrub_sentence(text))
