"""Two runs of a program side by side: while one times its steps, the other waits between two of its own.

What else a host does changes within seconds, and a program's start takes longer than the steps that are timed. So both
sides of a pair start together, and take turns of a quarter of a second: what touches one touches the other as well.
Each run has a pipe with a name, on which it is told to go on. Whoever ends, or is ended, leaves the other one alone.
"""

import os
import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter  # the program may set it; this is from before
from typing import Any, Final

_LEADS, _FOLLOWS = "leads", "follows"
_TURN_S: Final = 0.25
_GO, _ALONE = b".", b"!"


class Baton:
    """Of one run: `pipes` are its own and that of the run beside it, none where there is none. `sync` waits for the
    device, which is idle while the other one works."""

    def __init__(self, pipes: Sequence[str], sync: Callable[[], object]) -> None:
        self._own, self._other = map(_opened, pipes) if pipes else (-1, -1)
        self._tells = bool(pipes) and Path(pipes[0]).name == _FOLLOWS  # it says first that it is there
        self._sync, self._is_alone, self._ends_s = sync, not pipes, 0.0

    def take(self, until_s: float) -> None:
        """Between two steps: come back when it is our turn, or is still; at that time of `perf_counter` at last."""
        if self._is_alone or perf_counter() < self._ends_s:
            return
        self._sync()
        if self._tells:
            os.write(self._other, _GO)
        self._tells = True
        self._hear(until_s)
        self._ends_s = perf_counter() + _TURN_S

    def leave(self, until_s: float) -> None:
        """The other one waits for us no more; we do nothing until it has left too: what ends takes time of the host."""
        if self._other >= 0:
            os.write(self._other, _ALONE)
        while not self._is_alone:
            self._hear(until_s)

    def _hear(self, until_s: float) -> None:
        """Wait to be told something. Whoever hears nothing until that time is alone."""
        ready = select.select([self._own], [], [], max(until_s - perf_counter(), 0.0))[0]
        self._is_alone = not ready or _ALONE in os.read(self._own, 64)


@contextmanager
def pipes_in(folder: Path) -> Iterator[tuple[str, str]]:
    """The pipes of two runs, of the one that begins first. They stay open here, so that nothing told is lost."""
    pipes = str(folder / _LEADS), str(folder / _FOLLOWS)
    for pipe in pipes:
        os.mkfifo(pipe)
    ends = [*map(_opened, pipes)]
    try:
        yield pipes
    finally:
        for pipe, end in zip(pipes, ends, strict=True):
            os.close(end)
            Path(pipe).unlink()


def leave_alone(pipe: str) -> None:
    """Tell the run of this pipe that none is beside it any more."""
    end = _opened(pipe)
    os.write(end, _ALONE)
    os.close(end)


def _opened(pipe: str) -> int:
    return os.open(pipe, os.O_RDWR | os.O_NONBLOCK)


def may_stand_beside(torch: Any) -> bool:
    """Whether this process may wait in the middle of its work with another one like it beside it: it is no rank among
    several, no process and no thread of its own works ahead meanwhile, and there is memory for two."""
    import multiprocessing
    import threading

    dist = torch.distributed
    threads = [one for one in threading.enumerate() if not type(one).__module__.startswith(("tqdm", "timesink"))]
    if (dist.is_available() and dist.is_initialized()) or len(threads) > 1 or multiprocessing.active_children():
        return False
    free_bytes, all_bytes = torch.cuda.mem_get_info() if torch.cuda.is_initialized() else (1, 1)
    used_kb, left_kb = _kilobytes("/proc/self/status", "VmHWM"), _kilobytes("/proc/meminfo", "MemAvailable")
    return bool(2 * free_bytes > all_bytes and 2 * used_kb < left_kb)


def _kilobytes(file: str, name: str) -> int:
    """What Linux says of memory under that name; nothing elsewhere."""
    rows = Path(file).read_text(encoding="utf-8").splitlines() if Path(file).exists() else []
    return next((int(row.split()[1]) for row in rows if row.startswith(f"{name}:")), 0)
