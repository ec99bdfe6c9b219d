"""One thing that `timesink doctor` looks at, and the two ways it looks: running a program, reading a file."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_PATIENCE_S = 20


@dataclass(frozen=True, slots=True)
class Probe:
    """What was found (empty: nothing), where, and what to do where that is not enough."""

    name: str
    found: str
    place: str = ""
    remedy: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it works as it is."""
        return bool(self.found) and not self.remedy


def output_of(arguments: list[str]) -> str:
    """What a program prints; empty where it fails or takes too long."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def text_of(path: Path) -> str:
    """What a file holds; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
