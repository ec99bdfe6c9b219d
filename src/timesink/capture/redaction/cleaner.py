"""Texts without folders, names of people and machines, and what looks like a secret.

JSON (Kineto traces, manifests, our own reports) and plain text, cleaned string by string; numbers are left alone.
"""

from __future__ import annotations

import getpass
import gzip
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from timesink.knowledge import private_texts
from timesink.untrusted.masking import may_hold_secret, redacted

_ABSOLUTE = re.compile(private_texts.ABSOLUTE_PATH)
_HOMES = re.compile(private_texts.HOME)
_KEPT_ANSWERS = 100_000
_SHORTEST_NAME = 3
_NOBODY = frozenset({"root", "user", "users", "home", "localhost", "ubuntu", "runner"})


class Cleaner:
    """Cleans texts and counts what it took out of them. `names` are hosts and users to look for besides this machine's;
    a user whose home a text names is looked for from then on.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.removed: Counter[str] = Counter()
        self._names: set[str] = set()
        self._known: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self.learn([*names, os.uname().nodename, _user()])

    def learn(self, names: Iterable[str]) -> None:
        """More hosts and users. Short ones, and those that are nobody's, are left alone."""
        fresh = {name for name in names if len(name) >= _SHORTEST_NAME and name.lower() not in _NOBODY} - self._names
        if fresh:
            self._known.clear()
            self._names |= fresh
            longest_first = sorted(self._names, key=lambda name: (-len(name), name))
            # a whole word, which the names of each text decide
            self._pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")

    def learn_from(self, text: str) -> None:
        """The users whose homes the text names."""
        self.learn(_HOMES.findall(text))

    def clean(self, text: str) -> str:
        """The text, fit to share. Texts come back often, so answers are kept."""
        known = self._known.get(text)
        if known is None:
            if "/" in text or "\\" in text:
                self.learn_from(text)
            known = self._cleaned(text)
            if len(self._known) < _KEPT_ANSWERS:
                self._known[text] = known
        return known

    def _cleaned(self, text: str) -> str:
        result = self._counted("folders", text, _ABSOLUTE.sub(lambda found: last_part(found.group()), text))
        if may_hold_secret(result):
            result = self._counted("secrets", result, redacted(result))
        if self._pattern is not None:
            result = self._counted("names of hosts and users", result, self._pattern.sub("***", result))
        return result

    def summary(self) -> list[str]:
        """One phrase per kind of thing taken out."""
        return [f"{kind} in {count} different texts" for kind, count in sorted(self.removed.items())]

    def _counted(self, kind: str, before: str, after: str) -> str:
        if after != before:
            self.removed[kind] += 1
        return after


def last_part(path: str) -> str:
    """The file's own name: `train.py` of `/home/ann/x/train.py`."""
    return path.rstrip("/\\").replace("\\", "/").rpartition("/")[2]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return ""


_STRING = re.compile(private_texts.JSON_STRING, re.DOTALL)
_CHUNK_CHARACTERS = 1 << 22
# Values that name the machine or the run whatever they are: the key decides.
_KEYED = re.compile(private_texts.PRIVATE_JSON_VALUE)


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
