"""What a message of the compiler says: where a graph broke and why, which guard failed, which limit was hit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_AT: Final = re.compile(r"user code at:? (?P<file>\S.*?):(?P<line>\d{1,9})\s*$")
_FRAME: Final = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d{1,9})')
_WHY: Final = re.compile(r"^\s*(?:Graph Break )?Reason: (?P<why>.*)$")
_OLD: Final = re.compile(r"^Graph break: (?P<why>.*?)\s*(?:from user code at:.*)?$")
_GENERAL: Final = ("Encountered graph break when attempting to trace", "Failed to handle graph break gracefully")
_RECOMPILING: Final = re.compile(r"^Recompiling function (?P<function>\S+) in (?P<file>.+?):(?P<line>\d{1,9})\s*$")
_GUARD: Final = re.compile(r"^\s*(?:- )?(?:\d{1,9}/\d{1,9}(?:_\d{1,9})?: )?(?P<guard>.*?)(?:\s{2,}#.*)?$")
_NO_GUARD: Final = ("triggered by", "user stack trace", "file ", "recompiling function")


class Place(NamedTuple):
    """A place in the program and what the compiler says of it; None where it does not say."""

    file: str | None
    line: int | None
    reason: str | None
    function: str | None = None


def graph_break(lines: Sequence[str]) -> Place:
    """From the message of a graph break, any version since 2.0; the innermost frame named is the place."""
    file, line, reason = None, None, None
    for number, text in enumerate(lines):
        if (found := _AT.search(text)) is not None and file is None:
            file, line = found["file"], int(found["line"])
        elif (found := _WHY.match(text)) is not None and reason is None:
            reason = found["why"].strip() or None
            if reason and reason.startswith(_GENERAL):  # the particular reason stands below the general one
                reason = next((later.strip() for later in lines[number + 1 :] if later.strip()), reason)
        elif reason is None and (found := _OLD.match(text)) is not None and found["why"].strip():
            reason = found["why"].strip()
    if file is None:
        frames = [found for text in lines if (found := _FRAME.match(text)) is not None]
        if frames:
            file, line = frames[-1]["file"], int(frames[-1]["line"])
    return Place(file, line, reason)


def recompilation(lines: Sequence[str]) -> Place:
    """From a recompilation's message or payload: the function where it is named, and the newest guard that failed."""
    head = next((match for text in lines if (match := _RECOMPILING.match(text.strip()))), None)
    guard = next((found for text in lines if (found := failed_guard(text))), None)
    if head is None:
        return Place(None, None, guard)
    return Place(head["file"], int(head["line"]), guard, head["function"])


def failed_guard(text: str) -> str | None:
    """The guard in one line, without the number of the cache entry and the source line behind it."""
    found = _GUARD.match(text.rstrip())
    guard = found["guard"].strip() if found else ""
    return guard if guard and not guard.lower().startswith(_NO_GUARD) else None
