"""The invariants of reading: only declared errors, bounded memory and time, nothing touched but the input.

What Python does is seen by an audit hook. A library written in C or Rust opens files unseen by it; of those, only the
SQLite and Arrow libraries are handed a path, and it is the input's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import sysconfig
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from timesink.capture.errors import CaptureError
from timesink.errors import SchemaViolation, TimesinkError, UnreadableTrace

# What one input may cost, by its size; eight times what mutated inputs were seen to take.
BASE_CPU_S, CPU_S_PER_BYTE = 5.0, 20e-6
BASE_BYTES, BYTES_PER_BYTE = 256 << 20, 200
_FORBIDDEN = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.kill", "os.chmod", "os.chown", "os.link"),
    *("os.symlink", "os.putenv", "socket.connect", "socket.bind", "socket.getaddrinfo", "pickle.find_class", "exec"),
    *("sqlite3.enable_load_extension", "ctypes.dlopen", "urllib.Request"),
)
_OF_TYPER = (b"PYDANTIC_DISABLE_PLUGINS",)  # set while it makes a parameter
_PACKAGES = [Path(find_spec(name).origin).parent for name in ("timesink", "polars")]  # type: ignore[union-attr,arg-type]
_PLACES = (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), *_PACKAGES, _PACKAGES[1].parent)
_LIBRARIES = tuple({str(Path(place).resolve()) for place in _PLACES})


class Broken(BaseException):
    """An invariant does not hold. Not an `Exception`, so that no reader takes it for damage."""


class _Watch:
    """What is watched now: the folder that may be touched, or nothing."""

    folder: str = ""
    child: str = ""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _Watch.folder:
        return
    if event == "open":
        _check_open(arguments[0], arguments[2])
    elif event == "subprocess.Popen":
        if _Watch.child not in map(str, arguments[1]):
            raise Broken(f"a process was started: {arguments[1]}")
    elif event == "exec":
        code = arguments[0]
        if not str(getattr(code, "co_filename", "<")).startswith((*_LIBRARIES, "<")):
            raise Broken(f"code was executed: {code}")
    elif event == "os.chmod" and os.path.realpath(arguments[0]).startswith(f"{_Watch.folder}/.writing-"):
        return  # a file that is written anew keeps the permissions of the one that it replaces
    elif event.startswith(_FORBIDDEN) and arguments[:1] != _OF_TYPER:
        raise Broken(f"{event} {arguments[:1]}")


def _check_open(name: object, flags: object) -> None:
    if isinstance(name, int):
        return
    where = os.path.realpath(os.fsdecode(name))  # type: ignore[arg-type]
    if where.startswith((_Watch.folder, "/dev/null", f"/proc/{os.getpid()}/", "/proc/cpuinfo", "/sys/devices")):
        return
    writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or not where.startswith(_LIBRARIES):
        raise Broken(f"{'writes' if writes else 'reads'} {where}")


def size_of(path: Path) -> int:
    """Bytes of a file, or of the files of a folder."""
    return sum(part.stat().st_size for part in path.iterdir()) if path.is_dir() else path.stat().st_size


def _too_slow(_: int, __: FrameType | None) -> None:
    raise Broken("more CPU time than an input of its size may take")


sys.dont_write_bytecode = True  # what is imported late is written nowhere
_installed: list[bool] = []


@contextlib.contextmanager
def watched(folder: Path, size_bytes: int, slower: float = 1.0) -> Iterator[None]:
    """Under the hook and the clock, which something makes so many times slower. Imports that reading needs should be
    done before."""
    from timesink.readers.torch_snapshot import CHILD

    if not _installed:
        sys.addaudithook(_hook)
        _installed.append(True)
    signal.signal(signal.SIGPROF, _too_slow)
    Path("/proc/self/clear_refs").write_text("5")  # the peak of memory begins anew
    before = _peak_bytes()
    _Watch.folder, _Watch.child = str(folder.resolve()), str(CHILD)
    signal.setitimer(signal.ITIMER_PROF, slower * (BASE_CPU_S + CPU_S_PER_BYTE * size_bytes))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        _Watch.folder = ""
    growth = _peak_bytes() - before
    if growth > BASE_BYTES + BYTES_PER_BYTE * size_bytes:
        raise Broken(f"{growth >> 20} MB of memory for an input of {size_bytes} bytes")


def _peak_bytes() -> int:
    """The most memory that this process held since the peak began anew."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


def holds(work: Callable[[Path], object], path: Path, slower: float = 1.0) -> str:
    """Do the work under every invariant: "" where it went through, else the declared error's text.

    Raises
    ------
    Broken
        It ended in anything else; the first cause is chained.
    """
    try:
        with watched(path.parent, size_of(path), slower):
            work(path)
    except SchemaViolation as ours:
        raise Broken(f"a table against its own declaration: {ours}") from ours
    except (TimesinkError, CaptureError) as declared:
        if isinstance(declared, UnreadableTrace) and not declared.remedy:
            raise Broken(f"an error without a remedy: {declared}") from declared
        return str(declared)
    except Exception as other:  # whatever it is: that is the finding
        raise Broken(f"{type(other).__name__}: {other}"[:300]) from other
    return ""
