"""What a command has spent on files of unknown origin, in CPU time and memory, and its end where that is too much.

Each file that is opened allows some more of both (`budget`). The system's timer of CPU time looks twice a second; where
it has none, as on Windows, nobody looks.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from timesink.errors import TimesinkError
from timesink.untrusted.budget import usual_limits, way_out

_EACH_S: Final = 0.5
_opened: dict[Path, int] = {}


class OverBudget(TimesinkError):
    """Files took more CPU time or memory than any of their size should."""


def allow_for(path: Path, size_bytes: int) -> None:
    """Allow what a file of that size, which is about to be opened, may cost."""
    if path not in _opened:
        _opened[path] = sum(part.lstat().st_size for part in path.iterdir()) if path.is_dir() else size_bytes


@contextmanager
def watched() -> Iterator[None]:
    """Raise `OverBudget` in the block once it has spent too much."""
    _opened.clear()
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    begun_s = time.process_time()

    def look(*_: Any) -> None:
        limits, size = usual_limits(), sum(_opened.values())
        _refuse_more("s of CPU time", time.process_time() - begun_s, limits.most_cpu_s(size), size)
        _refuse_more("MB of memory", _resident_bytes() / 1e6, limits.most_memory(size) / 1e6, size)

    former = signal.signal(signal.SIGVTALRM, look)
    signal.siginterrupt(signal.SIGVTALRM, False)
    signal.setitimer(signal.ITIMER_VIRTUAL, _EACH_S, _EACH_S)
    try:
        yield
    finally:
        stop_watching()
        signal.signal(signal.SIGVTALRM, former)


def stop_watching() -> None:
    """From now on the command serves for as long as its user likes."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _refuse_more(of_what: str, spent: float, most: float, size_bytes: int) -> None:
    if spent > most:
        what = f"more than {most:,.0f} {of_what} for {size_bytes:,} bytes of files"
        raise OverBudget(what, remedy=f"read less of them (--window, --ranks), or {way_out(1.5 * spent, most)}")


def _resident_bytes() -> int:
    with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as counts:  # noqa: PTH123
        return int(counts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
