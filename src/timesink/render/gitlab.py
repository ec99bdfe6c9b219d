"""Findings as a GitLab Code Quality report: a JSON array in which each has a file, a line and a severity."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from timesink.diagnosis.verdicts import Diagnosis
from timesink.render.formats import Style
from timesink.render.places import LARGE, MATERIAL, placed


def render_diagnosis(diagnosis: Diagnosis, style: Style) -> str:
    """Findings that stand in a file inside the current folder: GitLab takes no others."""
    return report(
        entry(
            one.card.code,
            one.message,
            (one.file, one.line),
            "major" if one.share >= LARGE else "minor" if one.share >= MATERIAL else "info",
            one.fingerprint,
        )
        for one in placed(diagnosis, style)
        if one.file
    )


def entry(code: str, description: str, place: tuple[str, int], severity: str, fingerprint: str) -> dict[str, Any]:
    """One finding, with its file and line. The text and the path are scrubbed already."""
    return {
        "description": description,
        "check_name": f"timesink {code}",
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": place[0], "lines": {"begin": place[1]}},
    }


def report(entries: Iterable[dict[str, Any]]) -> str:
    """The array as text."""
    return json.dumps(list(entries), indent=1, ensure_ascii=True) + "\n"
