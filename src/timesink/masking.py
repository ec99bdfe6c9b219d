"""Command lines made fit to store and show: what looks like a secret is taken out. Standard library only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

_SECRET = re.compile(r"token|secret|passw(?:or)?d|passwd|api[-_]?key|access[-_]?key|credential|auth", re.IGNORECASE)
_VALUE = r"(?:\"[^\"]*\"|'[^']*'|\S+)"
# A name begins where nothing of a name precedes it: each stretch of a long text is looked at once.
_NAMED = (
    re.compile(rf"(?<![\w.-])([\w.-]+=){_VALUE}"),
    re.compile(rf"(?<![\w.-])(--?[\w.-]+\s+)(?!-){_VALUE}"),
)
_PATTERNS = (
    re.compile(r"(?<!\w)(\w+://)[^/@\s]+(?=@)"),
    re.compile(r"()\b(?:hf_|ghp_|github_pat_|glpat-|sk-|xox[abp]-|AKIA)[A-Za-z0-9_-]{8,}"),
)


def redacted(command: str) -> str:
    """The command line with the values of options and variables that name secrets, logins in addresses and known kinds
    of tokens replaced by ``***``. A secret under an innocent name is not found.
    """
    for pattern in _NAMED:
        command = pattern.sub(_without_secret, command)
    for pattern in _PATTERNS:
        command = pattern.sub(r"\1***", command)
    return command


def _without_secret(found: re.Match[str]) -> str:
    return f"{found[1]}***" if _SECRET.search(found[1]) else found[0]


def stored_command(argv: Sequence[str]) -> str:
    """A command as one would type it, secrets taken out, the user's home as ``~``."""
    home = str(Path.home())
    words = [word.replace(home, "~") if len(home) > 1 else word for word in argv]
    return redacted(shlex.join(words))
