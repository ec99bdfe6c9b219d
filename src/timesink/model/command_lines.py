"""Command lines that a profiler recorded, made fit to show: what looks like a secret is taken out."""

from __future__ import annotations

import re

_WORD = r"[\w.-]*(?:token|secret|passw(?:or)?d|passwd|api[-_]?key|access[-_]?key|credential|auth)[\w.-]*"
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|\S+)"
_PATTERNS = (
    re.compile(rf"((?:--?)?\b{_WORD}=){_VALUE}", re.IGNORECASE),
    re.compile(rf"(--?{_WORD}\s+)(?!-){_VALUE}", re.IGNORECASE),
    re.compile(r"(\w+://)[^/@\s]+(?=@)"),
    re.compile(r"()\b(?:hf_|ghp_|github_pat_|glpat-|sk-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}"),
)


def redacted(command: str) -> str:
    """The command line with the values of options and variables that name secrets, logins in addresses and known kinds
    of tokens replaced by ``***``. A secret under an innocent name is not found.
    """
    for pattern in _PATTERNS:
        command = pattern.sub(r"\1***", command)
    return command
