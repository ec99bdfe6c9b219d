"""Inputs that reach what none before them reached: which line of timesink's Python follows which."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import timesink

_SOURCE = str(Path(timesink.__file__).parent)
_OFTEN, _ONE_IN = 500, 16  # what was called so often is looked at in one call of so many
_MOST_BYTES = 1 << 18  # of an input that is kept: larger ones only cost time


class Corpus:
    """What one target's inputs reached. Those that reached something new are `grown`, and files of a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.grown = folder, [path.read_bytes() for path in sorted(folder.iterdir())]
        self._seen: set[tuple[CodeType, int, int]] = set()
        self._calls: Counter[CodeType] = Counter()

    @contextmanager
    def noting(self, data: bytes) -> Iterator[None]:
        """Note what runs in the block; keep the input where something of it is new."""
        before = len(self._seen)
        threading.settrace(self._called)
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            if len(self._seen) > before and len(data) <= _MOST_BYTES:
                self.grown.append(data)
                (self.folder / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def _called(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_SOURCE):
            return None
        self._calls[code] += 1
        if self._calls[code] > _OFTEN and self._calls[code] % _ONE_IN:
            return None
        last = frame.f_lineno
        note = self._seen.add

        def line(here: FrameType, event: str, _: Any) -> Callable[..., Any]:
            nonlocal last
            if event == "line":
                note((code, last, last := here.f_lineno))
            return line

        return line
