"""Texts without folders, names of people and machines, and what looks like a secret."""

from __future__ import annotations

import getpass
import os
import re
from collections import Counter
from collections.abc import Iterable

from timesink.masking import redacted

_ABSOLUTE = re.compile(r"(?<![\w.)/])(?:/[\w.@+~-]+){2,}/?|\b[A-Za-z]:\\(?:[\w.@+~ -]+\\)*")
_HOMES = re.compile(r"(?:/home|/Users|\\Users)[/\\]([\w.-]+)")
_HINT = re.compile(r"(?i)token|secret|passw|key|cred|auth|://|hf_|gh[a-z]_|github_pat|glpat|sk-|xox|AKIA")
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
        if _HINT.search(result):
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
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return ""
