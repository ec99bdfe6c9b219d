"""Findings for services that show them beside the code: SARIF 2.1.0 (OASIS), which GitHub code scanning, Azure DevOps
and editors read, and GitLab Code Quality, a JSON array in which each has a file, a line and a severity.

A finding that names no line of the program stands at the capture that shows it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from timesink import __version__
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Card, Diagnosis, Finding
from timesink.records import Record
from timesink.render import Style
from timesink.untrusted import scrub, scrub_sentence, scrub_values

LARGE, MATERIAL = 0.10, 0.01  # of the step
_NAMING = ("range", "op", "kernel", "rank", "device", "stream")


class Placed(Record):
    """A finding with the file and line that it is shown at. `file` is relative to the current folder, or empty where
    nothing inside of it is known; `fingerprint` is the same in the next run if the finding is."""

    card: Card
    finding: Finding
    message: str
    file: str
    line: int
    fingerprint: str

    @property
    def share(self) -> float:
        """What the fix would win of the step; 0 where it was not priced."""
        gain, of_ms = self.finding.recoverable, self.finding.of_ms
        return max(gain.value / of_ms, 0.0) if gain and of_ms else 0.0


def placed(diagnosis: Diagnosis, style: Style) -> Iterator[Placed]:
    """Every finding, the costliest first."""
    captures = [*style.origin.source, *(str(source.get("path", "")) for source in diagnosis.sources)]
    capture = next(filter(None, map(inside, captures)), "")
    seen: Counter[str] = Counter()
    for card, finding in diagnosis.findings:
        of_program = inside(finding.where.file or "")
        known = finding.where.known()
        named = [card.code, of_program, str(finding.where.line), *(str(known.get(name, "")) for name in _NAMING)]
        key = "\0".join(named)
        seen[key] += 1
        saving = saving_text(finding)
        told = f"{finding.message.rstrip('.')}{f'. A fix {saving}' if saving.startswith('saves') else ''}."
        yield Placed(
            card=card,
            finding=finding,
            message=scrub_sentence(f"{told} {finding.advice}"),
            file=of_program or capture,
            line=max(finding.where.line or 1, 1) if of_program else 1,
            fingerprint=hashlib.sha256(f"{key}\0{seen[key]}".encode(errors="replace")).hexdigest(),
        )


def inside(file: str) -> str:
    """A path as it is inside the current folder; empty for what lies elsewhere, or might."""
    if not file or PureWindowsPath(file).drive or "\\" in file or "://" in file or file.startswith("~"):
        return ""
    path = PurePosixPath(file)
    if path.is_absolute():
        here = PurePosixPath(Path.cwd().as_posix())
        if not path.is_relative_to(here):
            return ""
        path = path.relative_to(here)
    return "" if ".." in path.parts or path == PurePosixPath() else scrub(str(path))


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_sarif(diagnosis: Diagnosis, style: Style) -> str:
    """One run: the rules that were applied, a result for each finding, what was wrong with the input."""
    findings = list(placed(diagnosis, style))
    capture = PurePosixPath(
        next((str(source["path"]) for source in diagnosis.sources if source.get("path")), "capture")
    )
    cards = {ruling.card.code: ruling.card for ruling in diagnosis.rulings}
    cards |= {one.card.code: one.card for one in findings}
    order = {code: index for index, code in enumerate(cards)}
    partial = diagnosis.partial  # all of the input could not be read
    told = [{"level": "error", "message": {"text": scrub_sentence(partial)}}] if partial else []
    driver = {"name": "timesink", "version": __version__, "rules": [_rule(card) for card in cards.values()]}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "timesink/"},
        "invocations": [{"executionSuccessful": not partial, "toolExecutionNotifications": told}],
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, order[one.card.code], scrub(capture.name)) for one in findings],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _rule(card: Card) -> dict[str, Any]:
    summary = f"{card.summary[:1].upper()}{card.summary[1:]}."
    help_text = card.doc.strip() or summary
    return {
        "id": card.code,
        "name": card.name,
        "shortDescription": {"text": summary},
        "help": {"text": help_text, "markdown": help_text},
        "defaultConfiguration": {"level": "warning"},
    }


def _result(one: Placed, index: int, capture: str) -> dict[str, Any]:
    """One result. It always has a location, if only the capture's name: GitHub refuses a whole file for one without."""
    gain = one.finding.recoverable
    worth = {} if gain is None else {f"recoverable_ms_per_{one.finding.period}": gain.value, "share": one.share}
    where: dict[str, Any] = scrub_values(one.finding.where.known())
    place = {"artifactLocation": {"uri": quote(one.file or capture)}, "region": {"startLine": one.line}}
    return {
        "ruleId": one.card.code,
        "ruleIndex": index,
        "level": "warning" if one.share >= MATERIAL else "note",
        "message": {"text": one.message},
        "partialFingerprints": {"timesinkFinding/v1": one.fingerprint},
        "locations": [{"physicalLocation": place}],
        "properties": {"bottleneck": one.finding.bottleneck.value, **worth, "where": where},
    }


def render_gitlab(diagnosis: Diagnosis, style: Style) -> str:
    """Findings that stand in a file inside the current folder: GitLab takes no others."""
    entries = []
    for one in placed(diagnosis, style):
        severity = "major" if one.share >= LARGE else "minor" if one.share >= MATERIAL else "info"
        if one.file:
            place = (one.file, one.line)
            entries.append(quality_entry(one.card.code, one.message, place, severity, one.fingerprint))
    return quality_report(entries)


def quality_entry(
    code: str, description: str, place: tuple[str, int], severity: str, fingerprint: str
) -> dict[str, Any]:
    """One finding, with its file and line. The text and the path are scrubbed already."""
    return {
        "description": description,
        "check_name": f"timesink {code}",
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": place[0], "lines": {"begin": place[1]}},
    }


def quality_report(entries: Iterable[dict[str, Any]]) -> str:
    """The array as text."""
    return json.dumps(list(entries), indent=1, ensure_ascii=True) + "\n"
