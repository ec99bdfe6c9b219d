"""Answers kept: a command asked again, of files that are as they were, is answered before anything heavy is imported.

An answer is kept only where all that it came from is known. The words, the environment, the folder, the machine, Python
and the terminal name its file; every path that was opened, looked for or listed while it was made, and this package and
its libraries, stand in it as the file system told them. A difference in any of that, a file that is there now and was
not, one written to less than two seconds before, a process, a connection or a file of its own: no answer from here.
"""

from __future__ import annotations

import json
import os
import resource
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, Final

from timesink.cli.commands import resolve

BOUND_BYTES: Final = 64 << 20
_LARGEST_BYTES: Final = 4 << 20
# Two writes so close may bear the same time; no file system that is in use counts in more than two seconds.
_RACY_NS: Final = 2_000_000_000
# What answers from files alone; what of it writes, starts or asks for something else is noticed.
_COMMANDS: Final = ("diagnose", "plan", "show", "kernels", "ranks")
# Shells change these from command to command, and nothing here asks for them.
_UNHEEDED: Final = ("_", "SHLVL", "OLDPWD", "PWD")
# What is spent is read there, and is no part of an answer.
_SPENT: Final = "/proc/self/statm"
_CODE: Final = (".py", ".pyc", ".so")
_ACTS: Final = ("os.", "subprocess.", "socket.")
_LISTS: Final = ("os.listdir", "os.scandir")
_LOOKS: Final = ("os.walk", "os.fwalk", "os.putenv", "os.unsetenv", "os.getxattr")
_WHOLE: Final = 6  # numbers that tell a file
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def answered(arguments: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """The exit code of a command line, after its answer as it was kept, or as `run` makes it, which is then kept."""
    place = None
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError):  # what cannot be read is as if not there
        place = _place(arguments)
        if place and _give_again(place):
            return 0
    if place is None:
        return run(arguments)
    heard = _Heard()
    with heard.listening():
        code = run(arguments)
    if code == 0:
        with suppress(OSError, RuntimeError):
            _keep(place, heard)
    return code


def _place(arguments: Sequence[str]) -> str | None:
    """The file in which the answer is kept, named by all that is known before; None where none is to be kept."""
    streams = [sys.stdout, sys.stderr]
    if "--no-cache" in arguments or None in streams:
        return None
    if resolve(arguments)[1].partition(" ")[0] not in _COMMANDS:
        return None
    machine = [sys.version, sys.argv[:1], sys.path, repr(sys.flags), sys.warnoptions, *os.uname(), os.cpu_count()]
    widths = [os.get_terminal_size(one.fileno()) if one.isatty() else None for one in streams]
    shown = [*widths, *((one.encoding, one.errors) for one in streams)]
    known = {name: value for name, value in os.environ.items() if name not in _UNHEEDED}
    key = json.dumps([list(arguments), machine, shown, os.getcwd(), known], sort_keys=True)
    return os.path.join(_folder(), sha256(key.encode()).hexdigest())


def _folder() -> str:
    if chosen := os.environ.get("TIMESINK_CACHE_DIR"):
        return f"{chosen}/answers"
    from platformdirs import user_cache_path

    return str(user_cache_path("timesink") / "answers")


def _bound() -> int:
    """`TIMESINK_CACHE_BYTES`, or the default."""
    chosen = os.environ.get("TIMESINK_CACHE_BYTES", "")
    return int(chosen) if chosen.isascii() and chosen.isdigit() else BOUND_BYTES


def _is_own(folder: str) -> bool:
    """Whether nobody else can read or write in it."""
    status = os.lstat(folder)
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077  # which the mode of a link is not


def _give_again(place: str) -> bool:
    """Whether the answer kept there was written, everything that it came from being as it was."""
    if not _is_own(os.path.dirname(place)) or not stat.S_ISREG(os.lstat(place).st_mode):
        return False
    with open(place, "rb") as file:
        digest, _, body = file.read().partition(b"\n")
    if sha256(body).hexdigest().encode() != digest:
        return False
    kept = json.loads(body)
    if any(_state(path) != before for path, before in kept["seen"].items()):
        return False
    for at, text in kept["parts"]:
        stream = (sys.stdout, sys.stderr)[at]
        stream.write(text)
        stream.flush()  # who cannot take it is told so by the command itself
    return True


def _state(path: str) -> list[int] | None:
    """What tells a file from every other and from itself after a change; of a folder, whether it is the same one, or,
    where its path ends in a slash, also what lies in it. None of what does not last, such as a pipe.
    """
    try:
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode) and not path.endswith(_CODE):
            descriptor = os.open(path, os.O_RDONLY)  # a server of files is asked anew when one is opened
            try:
                status = os.fstat(descriptor)
            finally:
                os.close(descriptor)
    except (OSError, ValueError) as error:
        return [getattr(error, "errno", None) or 0]
    same = [status.st_dev, status.st_ino, status.st_mode]
    if stat.S_ISDIR(status.st_mode) and not path.endswith(os.sep):
        return same
    lasts = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    return [*same, status.st_size, status.st_mtime_ns, status.st_ctime_ns] if lasts else None


class _Copied:
    """A stream of which every text is heard; whoever asks for more than to write to it may write unheard."""

    def __init__(self, stream: Any, at: int, heard: _Heard) -> None:
        self.uncopied, self._at, self._heard = stream, at, heard

    def write(self, text: str) -> int:
        """As of the stream, which refuses bytes: so Click asks it whether it is one of text."""
        written = int(self.uncopied.write(text))
        self._heard.parts.append((self._at, text))
        return written

    def __getattr__(self, name: str) -> Any:
        self._heard.is_known &= name in ("flush", "isatty", "encoding", "errors")
        return getattr(self.uncopied, name)


class _Heard:
    """What a command opens, looks for, lists and writes to its two streams. `is_known`: it did nothing else."""

    def __init__(self) -> None:
        self.begun_ns, self.is_known, self.listens = time.time_ns(), True, True
        self.children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seen: dict[str, list[int] | None] = {}
        self.parts: list[tuple[int, str]] = []

    def see(self, path: Any) -> None:
        """A path is asked for: what it is now, before the answer comes from it."""
        if not isinstance(path, int) and (path := os.fsdecode(path)) not in self.seen and path != _SPENT:
            self.seen[path] = None  # to look asks for it as well
            self.seen[path] = _state(path)

    def heed(self, event: str, facts: tuple[Any, ...]) -> None:
        """The audit hook: what Python does, told before it is done."""
        if not self.listens:
            return
        if event == "open" and not facts[2] & _WRITING:
            self.see(facts[0])
        elif event in _LISTS and not isinstance(facts[0], int):
            self.see(os.path.join(os.fsdecode(facts[0] or "."), ""))
        elif event == "open" or (event.startswith(_ACTS) and event not in _LOOKS):
            self.is_known = False

    def _asked(self, look: Callable[..., Any]) -> Callable[..., Any]:
        def heard(path: Any, *rest: Any, **named: Any) -> Any:
            if self.listens:
                self.is_known &= named.get("dir_fd") is None
                self.see(path)
            return look(path, *rest, **named)

        return heard

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear what the block does. To look for a file makes no event: those two functions stand behind ours."""
        former, streams = (os.stat, os.lstat), (sys.stdout, sys.stderr)
        sys.addaudithook(self.heed)
        try:
            os.stat, os.lstat = map(self._asked, former)
            sys.stdout, sys.stderr = (_Copied(one, at, self) for at, one in enumerate(streams))
            yield
        finally:
            self.listens = False
            os.stat, os.lstat = former
            sys.stdout, sys.stderr = streams

    def all_seen(self) -> dict[str, list[int]] | None:
        """What the answer came from, modules included, all as it was since before it was made; None otherwise."""
        if not self.is_known or resource.getrusage(resource.RUSAGE_CHILDREN) != self.children:
            return None
        if any(_state(path) != state for path, state in self.seen.items()):
            return None
        specs = [getattr(module, "__spec__", None) for module in [*sys.modules.values()]]
        code = [one.origin for one in specs if one and one.has_location]
        for path in (*code, *(os.path.join(folder, "") for folder in sys.path_importer_cache)):
            self.see(path)
        seen = {path: state for path, state in self.seen.items() if state}
        is_whole = len(seen) == len(self.seen) and all(len(seen[path]) == _WHOLE for path in code)
        last_ns = max(max(state[4:], default=0) for state in seen.values())
        return seen if is_whole and last_ns < self.begun_ns - _RACY_NS else None


def _keep(place: str, heard: _Heard) -> None:
    """Keep what was heard, whole or not at all, where all that it came from is known."""
    import shutil
    from pathlib import Path

    from timesink.untrusted.whole_file import write_whole

    seen = heard.all_seen()
    body = json.dumps({"parts": heard.parts, "seen": seen})
    if seen is None or len(body) > min(_LARGEST_BYTES, _bound()):
        return
    folder = os.path.dirname(place)
    os.makedirs(folder, 0o700, exist_ok=True)
    if not _is_own(folder):
        return
    write_whole(Path(place), f"{sha256(body.encode()).hexdigest()}\n{body}")
    with os.scandir(folder) as kept:
        is_full = sum(one.stat().st_size for one in kept) > _bound()
    if is_full:  # begin anew
        shutil.rmtree(folder)
