"""Where the findings of a diagnosis stand, for services that show them beside the code: SARIF, and GitLab Code Quality.

A finding that names no line of the program stands at the capture that shows it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath

from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Card, Diagnosis, Finding
from timesink.model.record import dataclass
from timesink.render.formats import Style
from timesink.untrusted.scrub import scrub, scrub_sentence

LARGE, MATERIAL = 0.10, 0.01  # of the step
_NAMING = ("range", "op", "kernel", "rank", "device", "stream")


@dataclass(frozen=True, slots=True)
class Placed:
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
        told = f"{finding.message.rstrip('.')}{f'; a fix {saving}' if saving.startswith('saves') else ''}."
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
    if not file or PureWindowsPath(file).drive or "\\" in file or file.startswith("~"):
        return ""
    path = PurePosixPath(file)
    if path.is_absolute():
        here = PurePosixPath(Path.cwd().as_posix())
        if not path.is_relative_to(here):
            return ""
        path = path.relative_to(here)
    return "" if ".." in path.parts or path == PurePosixPath() else scrub(str(path))
