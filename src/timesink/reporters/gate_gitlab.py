"""GitLab: a Code Quality report of findings that name a source line, and a Metrics Report (OpenMetrics)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from timesink.outcomes import Fate, GateResult
from timesink.reporters.gate_words import finding_text
from timesink.scrub import scrub, scrub_sentence

_SEVERITY = {Fate.NEW: "major", Fate.CHANGED: "minor", Fate.SAME: "info"}
_FIGURES = 4


def code_quality(result: GateResult) -> str:
    """A JSON array; findings without a file, absolute paths and findings that are gone have no place in it."""
    placed = [found for found in result.findings if found.file and found.fate in _SEVERITY and _relative(found.file)]
    entries = [
        {
            "description": scrub_sentence(f"{finding_text(found)}: {found.message}"),
            "check_name": f"timesink {found.code}",
            "fingerprint": hashlib.sha256(
                f"{found.code}\0{found.file}\0{found.line}\0{found.message}".encode(errors="replace")
            ).hexdigest(),
            "severity": _SEVERITY[found.fate],
            "location": {"path": scrub(found.file or ""), "lines": {"begin": max(found.line or 1, 1)}},
        }
        for found in placed
    ]
    return json.dumps(entries, indent=1, ensure_ascii=True) + "\n"


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


def _relative(path: str) -> bool:
    return not path.startswith(("/", "\\", "~")) and ".." not in path.split("/") and ":" not in path
