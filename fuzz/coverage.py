"""Inputs that reach what none before them reached: which way the branches of timesink's Python went.

Python 3.12 tells of branches (`sys.monitoring`) and stops telling of those that went both ways, so that most of an
input runs at full speed.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import timesink

SUPPORTED = sys.version_info >= (3, 12)
_SOURCE = str(Path(timesink.__file__).parent)
_OFTEN = 100  # a branch that went one way so often in one input is not told of until the next look at it
_LOOK_AGAIN = 16  # inputs until every branch is told of again
_MOST_BYTES = 1 << 18  # of an input that is kept: larger ones only cost time


class Corpus:
    """What one target's inputs reached. Those that reached something new are `grown`, and files of a folder."""

    _told: Corpus | None = None  # who is told of branches now: Python tells of them in all of the process

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.grown = folder, [path.read_bytes() for path in sorted(folder.iterdir())]
        self._ways: dict[tuple[CodeType, int], set[int]] = {}
        self._times: Counter[tuple[CodeType, int]] = Counter()
        self._inputs = self._new = 0

    @contextmanager
    def noting(self, data: bytes) -> Iterator[None]:
        """Note what runs in the block; keep the input where something of it is new."""
        if self._inputs % _LOOK_AGAIN == 0 or Corpus._told is not self:
            self._listen()
        self._new, self._inputs = 0, self._inputs + 1
        try:
            yield
        finally:
            if self._new and len(data) <= _MOST_BYTES:
                self.grown.append(data)
                (self.folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def _listen(self) -> None:
        """Be told of every branch and call again."""
        monitoring = sys.monitoring
        tool, events = monitoring.COVERAGE_ID, (monitoring.events.BRANCH, monitoring.events.PY_START)
        if monitoring.get_tool(tool) is None:
            monitoring.use_tool_id(tool, "fuzz")
        for event in events:
            monitoring.register_callback(tool, event, self._went)
        monitoring.set_events(tool, sum(events))
        monitoring.restart_events()
        self._times.clear()
        Corpus._told = self

    def _went(self, code: CodeType, here: int, to: int = -1) -> object:
        """Note where a branch (or, without `to`, a call) went; whether Python may stop telling of it."""
        if not code.co_filename.startswith(_SOURCE):
            return sys.monitoring.DISABLE
        ways = self._ways.setdefault((code, here), set())
        if to not in ways:
            ways.add(to)
            self._new += 1
        self._times[code, here] += 1
        done = to == -1 or len(ways) > 1 or self._times[code, here] >= _OFTEN
        return sys.monitoring.DISABLE if done else None
