"""What is spent on files of unknown origin, in CPU time and memory, and the end of what takes too much.

A command is one piece of work, each request to a server another. Each file that is opened allows some more of both
(`budget`). A thread looks twice a second; CPU time of the process is shared evenly by the works under way.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from timesink.errors import TimesinkError
from timesink.untrusted.budget import usual_limits, way_out

_EACH_S: Final = 0.5


class OverBudget(TimesinkError):
    """Files took more CPU time or memory than any of their size should."""


class _Ended(BaseException):
    """Ends a work wherever it is. Not an `Exception`, so that no reader takes it for damage."""


@dataclass(slots=True, eq=False)
class _Work:
    """What one thread does, begun at a time and with so many bytes of memory, and what it spent."""

    thread: int
    memory_bytes: int
    begun_s: float
    files: dict[Path, int] = field(default_factory=dict)
    cpu_s: float = 0.0
    refused: OverBudget | None = None
    over: threading.Event = field(default_factory=threading.Event)
    deciding: Any = field(default_factory=threading.Lock)

    def look(self) -> None:
        """Until the work is over, end it once it spent too much."""
        last_s = time.process_time()
        while not self.over.wait(_EACH_S):
            now_s = time.process_time()
            self.cpu_s, last_s = self.cpu_s + (now_s - last_s) / max(len(_under_way), 1), now_s
            self.refused = self._too_much()
            with self.deciding:
                if self.refused and not self.over.is_set():
                    _end(self.thread)
                    return

    def _too_much(self) -> OverBudget | None:
        limits, size = usual_limits(), sum([*self.files.values()])
        memory_mb, passed_s = (_resident_bytes() - self.memory_bytes) / 1e6, time.monotonic() - self.begun_s
        for of_what, spent, most in (
            ("s of CPU time", self.cpu_s, limits.most_cpu_s(size, passed_s)),
            ("MB of memory", memory_mb, limits.most_memory(size) / 1e6),
        ):
            if spent > most:
                what = f"more than {most:,.0f} {of_what} for {size:,} bytes of files"
                return OverBudget(
                    what, remedy=f"read less of them (--window, --ranks), or {way_out(1.5 * spent, most)}"
                )
        return None


_under_way: list[_Work] = []


def allow_for(*paths: Path) -> None:
    """Allow what these files, which are there and about to be read, may cost; of a link what it leads to is read."""
    for path in paths if _under_way else ():
        with suppress(OSError):
            size = sum(part.stat().st_size for part in (path.iterdir() if path.is_dir() else [path]))
            for work in _under_way:
                work.files[path] = size


@contextmanager
def watched(paths: Sequence[Path] = ()) -> Iterator[None]:
    """Raise `OverBudget` in the block, which is one piece of work of this thread, once it has spent too much.

    `paths` were read before and are worked on.
    """
    work = _Work(threading.get_ident(), _resident_bytes(), time.monotonic())
    _under_way.append(work)
    allow_for(*paths)
    is_main = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGVTALRM")
    former = signal.signal(signal.SIGVTALRM, _raise) if is_main else None
    try:
        try:
            threading.Thread(target=work.look, daemon=True).start()
            yield
        finally:
            with work.deciding:
                work.over.set()
    except _Ended:
        raise work.refused or OverBudget("too much was spent", remedy="read less") from None
    finally:
        _under_way.remove(work)
        if is_main:
            signal.signal(signal.SIGVTALRM, former)


def _raise(*_: Any) -> None:
    raise _Ended


def _end(thread: int) -> None:
    """Raise `_Ended` in a thread: in the main one at once, by a signal; in another as soon as it runs Python."""
    if thread == threading.main_thread().ident and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, signal.SIGVTALRM)
        return
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Ended))


def _resident_bytes() -> int:
    with suppress(OSError, ValueError), open("/proc/self/statm", encoding="ascii") as counts:  # noqa: PTH123
        return int(counts.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
