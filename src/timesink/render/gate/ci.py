"""What services for continuous integration read of a gate.

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
from xml.etree import ElementTree as ET

from timesink.render import gitlab
from timesink.render.gate.markdown import body
from timesink.render.gate.pages import (
    changed_findings,
    finding_text,
    headline,
    sentence,
    speed_up_text,
    why,
    worst_first,
)
from timesink.render.places import inside
from timesink.untrusted.scrub import scrub, scrub_sentence
from timesink.verify.outcomes import Fate, GateResult, GateRow, Outcome

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
    return gitlab.report(
        gitlab.entry(
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
