"""GitHub: annotations as workflow commands, and the step summary.

A step shows at most ten errors and ten warnings: five of each are written, the rest is in the summary. A summary over
1 MiB is refused whole, so ours stays under 900 kB.
"""

from __future__ import annotations

from timesink.outcomes import Fate, GateResult, GateRow, Outcome
from timesink.reporters.gate_markdown import body
from timesink.reporters.gate_words import finding_text, sentence, told, why, worst_first
from timesink.scrub import scrub, scrub_sentence

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
    lines = [_command("error", row.name, _said(row)) for row in errors[:ANNOTATIONS]]
    lines += [_command("warning", row.name, _said(row)) for row in warnings[:ANNOTATIONS]]
    new = [found for found in told(result.findings) if found.fate is Fate.NEW]
    for found in new[:ANNOTATIONS]:
        place = {"file": found.file, "line": str(found.line or 1)} if found.file else {}
        lines.append(_command("notice", f"{found.code} {found.name}", f"{finding_text(found)}: {found.message}", place))
    return "".join(f"{line}\n" for line in lines)


def summary(result: GateResult) -> str:
    """Markdown to append to the file in GITHUB_STEP_SUMMARY."""
    return body(result, SUMMARY_BYTES)


def _said(row: GateRow) -> str:
    reasons = why(row.verdict)
    return f"{sentence(row)}. {reasons}" if reasons else sentence(row)


def _command(kind: str, title: str, message: str, place: dict[str, str] | None = None) -> str:
    properties = {**(place or {}), "title": f"timesink: {title}"}
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {listed}::{_data(scrub_sentence(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(scrub(text)).replace(":", "%3A").replace(",", "%2C")
