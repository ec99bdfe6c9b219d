"""Work that may not end, or may want all memory, in a process of its own that is ended from outside."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20


class TooLong(Exception):
    """The time was up."""


class TooMuch(Exception):
    """The process ended without an answer: most likely it was refused more memory."""


def apart(work: Callable[[], Any], seconds: float, memory_bytes: int) -> Any:
    """What `work` returns, a JSON value, from a copy of this process. `TooLong`, `TooMuch`.

    The copy may take `memory_bytes` more than this process has, and `seconds`, whatever it does in them: a loop of
    compiled code that looks at no signal is ended too. Where processes cannot be copied, the work is done here.
    """
    if not hasattr(os, "fork"):
        return work()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of locks that other threads hold
        child = os.fork()
    if child == 0:
        _answer(work, writing, memory_bytes)
    os.close(writing)
    try:
        text = _read(reading, time.monotonic() + seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not text:
        raise TooMuch
    return json.loads(text)


def _answer(work: Callable[[], Any], writing: int, memory_bytes: int) -> None:
    """In the copy: limit it, work, write, and end without anything that an end of this program would do."""
    try:
        _limit(memory_bytes)
        text = json.dumps(work()).encode()
        while text:
            text = text[os.write(writing, text) :]
    finally:
        os._exit(0)


def _limit(memory_bytes: int) -> None:
    import resource

    pages = Path("/proc/self/statm")
    if pages.exists():
        has = int(pages.read_text().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = has + memory_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _read(reading: int, until: float) -> bytes:
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([reading], [], [], max(until - time.monotonic(), 0.0))
        if not ready:
            raise TooLong
        part = os.read(reading, _CHUNK)
        if not part:
            return b"".join(parts)
        parts.append(part)
