"""JSON (Kineto traces, manifests, our own reports) and plain text, cleaned string by string; numbers are left alone."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import IO

from timesink.capture.redaction.cleaner import Cleaner

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CHUNK_CHARACTERS = 1 << 22
# Values that name the machine or the run whatever they are: the key decides.
_KEYED = re.compile(
    r'("(?i:host_?name|host|user(?:_?name)?|username|trace_?name|cwd|working_?dir(?:ectory)?|environ(?:ment)?|'
    r'command(?:_?line)?|argv?s?|cmd|program|bus_?id|uuid|serial)"\s*:\s*)"(?:[^"\\]|\\.)*"'
)


def redact_json(source: Path, target: Path, cleaner: Cleaner) -> list[str]:
    """Copy with every string cleaned; strings that are values of telling keys are emptied whatever they say."""
    keyed = 0
    with _opened(source, "rt") as read, _opened(target, "wt") as write:
        rest = ""
        while chunk := read.read(_CHUNK_CHARACTERS):
            whole, end, rest = (rest + chunk).rpartition("\n")  # a JSON string holds no raw end of line
            keyed += _write_cleaned(write, whole + end, cleaner)
        keyed += _write_cleaned(write, rest, cleaner)
    return [*([f"values of keys that name machines, people or commands: {keyed}"] if keyed else []), *cleaner.summary()]


def _write_cleaned(target: IO[str], text: str, cleaner: Cleaner) -> int:
    emptied, count = _KEYED.subn(r'\1""', text)
    target.write(_STRING.sub(lambda found: _literal(found.group(), cleaner.clean), emptied))
    return count


def redact_text(source: Path, target: Path, cleaner: Cleaner) -> list[str]:
    """Copy with every line cleaned."""
    with _opened(source, "rt") as read, _opened(target, "wt") as write:
        for line in read:
            write.write(cleaner.clean(line))
    return cleaner.summary()


def _literal(text: str, clean: Callable[[str], str]) -> str:
    """A JSON string, cleaned by its value: escapes would hide what is in it."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return text
    cleaned = clean(value)
    return text if cleaned == value else json.dumps(cleaned)


def _opened(path: Path, mode: str) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, mode, encoding="utf-8", errors="surrogateescape", newline="")  # type: ignore[return-value]
    return path.open(mode.rstrip("t") or "r", encoding="utf-8", errors="surrogateescape", newline="")
