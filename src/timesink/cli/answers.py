"""Answers kept: a command asked again, of files that are as they were, is answered before anything heavy is imported.

An answer is kept only where all that it came from is known: the words, the environment, the folder, Python and the
terminal name its file; what was opened, looked for or listed while it was made, this package and its libraries
included, stands in it as the file system then told it. A difference in any of that, a file that is there now and was
not, a file written to less than two seconds before, a process, a connection or a file of its own: no answer from here.
"""

from __future__ import annotations

import io
import json
import os
import resource
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from shutil import get_terminal_size
from threading import get_ident
from typing import Any, Final

from timesink.cli.commands import resolve

State = list[int | str] | None
"""What the file system says of a path; None where that does not last: a pipe, a device, a file just written to."""

BOUND_BYTES: Final = 64 << 20
_LARGEST_BYTES: Final = 4 << 20
_MOST_FILES: Final = 10_000
# Two writes so close may bear the same time; no file system that is in use counts in more than two seconds.
_RACY_NS: Final = 2_000_000_000
# What answers from files alone; what of it writes, starts or asks for something else is noticed.
_COMMANDS: Final = ("diagnose", "plan", "show", "kernels")
# Shells change these from command to command, and nothing here asks for them.
_UNHEEDED: Final = ("_", "SHLVL", "OLDPWD", "PWD")
# What is spent is read there, and is no part of an answer.
_SPENT: Final = "/proc/self/statm"
_ACTS: Final = ("os.", "subprocess.", "socket.", "shutil.", "tempfile.", "urllib.", "http.", "pty.", "webbrowser.")
_LOOKS: Final = ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "os.putenv", "os.unsetenv", "os.getxattr")
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def answered(arguments: Sequence[str], run: Callable[[Sequence[str]], int]) -> int:
    """The exit code of a command line, after its answer as it was kept, or as `run` makes it, which is then kept."""
    place = parts = None
    with suppress(OSError, ValueError, KeyError, TypeError, RuntimeError):  # what cannot be read is as if not there
        place = _place(arguments)
        parts = _load(place) if place else None
    if parts is not None and _shown(parts):
        return 0
    if place is None:
        return run(arguments)
    heard = _Heard(time.time_ns(), arguments)
    with heard.listening():
        code = run(arguments)
    if code == 0 and not heard.spoilt:
        with suppress(OSError, RuntimeError):
            _store(place, heard)
    return code


def _place(arguments: Sequence[str]) -> str | None:
    """The file in which the answer is kept, named by all that is known before; None where none is to be kept."""
    streams: Any = (sys.stdout, sys.stderr)
    if not arguments or "--no-cache" in arguments or not _bound() or not hasattr(os, "geteuid"):
        return None
    if not all(isinstance(getattr(one, "buffer", None), io.BufferedWriter | io.FileIO) for one in streams):
        return None
    if resolve(arguments)[1].partition(" ")[0] not in _COMMANDS:
        return None
    machine = [sys.version, sys.executable, sys.argv[:1], sys.path, repr(sys.flags), sys.warnoptions, *os.uname()]
    shown = [(one.isatty(), one.encoding, one.errors, one.line_buffering) for one in streams]
    whose = [os.getcwd(), os.geteuid(), os.getegid(), time.tzname, time.timezone, *get_terminal_size()]
    known = {name: value for name, value in os.environ.items() if name not in _UNHEEDED}
    key = json.dumps([list(arguments), machine, shown, whose, known], sort_keys=True)
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


def _is_private(status: os.stat_result, others: int) -> bool:
    """Whether it is this user's own, and nobody else has one of these rights."""
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _load(place: str) -> list[Any] | None:
    """The parts of the answer that is kept there, where everything that it came from is as it was."""
    folder = os.lstat(os.path.dirname(place))
    if not stat.S_ISDIR(folder.st_mode) or not _is_private(folder, 0o022):
        return None
    with open(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or not _is_private(status, 0o077):
            return None
        digest, _, body = file.read().partition(b"\n")
    if sha256(body).hexdigest().encode() != digest:
        return None
    kept = json.loads(body)
    for kind, path, before in kept["seen"]:
        if _state(kind, path, 0) != before:
            return None
    os.utime(place)
    parts: list[Any] = kept["parts"]
    return parts


def _shown(parts: list[Any]) -> bool:
    """Write the parts of an answer to where each belongs; False where that cannot be, which the command itself says."""
    with suppress(OSError):
        for descriptor, text in parts:
            place = (sys.stdout, sys.stderr)[descriptor - 1].fileno()
            with open(place, "wb", closefd=False) as stream:
                stream.write(text.encode("latin-1"))
        return True
    return False


def _state(kind: str, path: str, begun_ns: int) -> State:
    """What tells a file from every other and from itself after a change; of a folder, whether it is the same one, or,
    where it was `listed`, what lies in it; of a `link`, where it leads. `begun_ns` is 0 where its age does not matter.
    """
    try:
        if kind == "link" and os.path.islink(path):
            return ["link", os.readlink(path)]
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode) and kind == "data":  # a server of files is asked anew when one is opened
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
            finally:
                os.close(descriptor)
    except (OSError, ValueError) as error:
        return ["none", getattr(error, "errno", None) or 0]
    whole = [status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    if stat.S_ISDIR(status.st_mode) and kind != "listed":
        return ["folder", *whole[:3]]
    lasts = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
    if not lasts or (begun_ns and max(whole[-2:]) > begun_ns - _RACY_NS):
        return None
    return ["file", *whole]


class _Copied(io.BufferedWriter):
    """A stream that also tells what is written to it."""

    def __init__(self, stream: Any, hear: Callable[[bytes], None]) -> None:
        super().__init__(io.FileIO(stream.fileno(), "wb", closefd=False))
        self.hear, self.is_bare = hear, isinstance(stream, io.FileIO)

    def write(self, content: Any) -> int:
        """As of the stream, at once where that keeps nothing back."""
        self.hear(bytes(content))
        count = super().write(content)
        if self.is_bare:
            self.flush()
        return count


class _Heard:
    """What a command opens, looks for, lists and writes to its two streams. `spoilt`: it did what no file tells."""

    def __init__(self, begun_ns: int, arguments: Sequence[str]) -> None:
        self.begun_ns, self.spoilt, self.listens = begun_ns, False, True
        self.looking: set[int] = set()  # threads that look for themselves
        self.children = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.seen: dict[tuple[str, str], State] = {}
        self.parts: list[tuple[int, str]] = []
        for module in [*sys.modules.values()]:  # what was imported by now
            spec = getattr(module, "__spec__", None)
            for path in (getattr(spec, "origin", None), getattr(spec, "cached", None)):
                if path and os.sep in path:
                    self.see("code", path)
        for folder in {*sys.path, *sys.path_importer_cache}:
            self.see("listed", folder or ".")
        self.see("data", "/etc/localtime")
        for path in {part for word in arguments for part in (word, word.partition("=")[2])}:
            self._see_within(path)

    def _see_within(self, path: str) -> None:
        """The files of a folder, which compiled readers open without a word."""
        self.see("data", path)
        for folder, _, names in os.walk(path):
            self.see("listed", folder)
            for name in names:
                self.see("data", os.path.join(folder, name))
            if len(self.seen) > _MOST_FILES:
                self.spoilt = True
                return

    def see(self, kind: str, path: Any) -> None:
        """A path is asked for: what it is now, before the answer comes from it."""
        if isinstance(path, int) or (path := os.fsdecode(path)) == _SPENT or (kind, path) in self.seen:
            return
        self.looking.add(get_ident())
        self.seen[kind, path] = state = _state(kind, path, self.begun_ns)
        self.looking.remove(get_ident())
        self.spoilt |= state is None

    def heed(self, event: str, facts: tuple[Any, ...]) -> None:
        """The audit hook: what Python does, told before it is done."""
        if not self.listens or not facts or get_ident() in self.looking:
            return
        path = facts[0]
        if event == "open" and isinstance(path, int):
            return  # a descriptor, of which the same was told when it was made
        if event == "open":
            if facts[2] & _WRITING or any(letter in "wax+" for letter in facts[1] or ""):
                self._act(path)
            elif str(path).endswith(".pyc"):
                folder, _, name = str(path).rpartition(f"{os.sep}__pycache__{os.sep}")
                self.see("code", path)
                self.see("code", f"{folder}{os.sep}{name.partition('.')[0]}.py")
            else:
                self.see("code" if str(path).endswith(".py") else "data", path)
        elif event in ("os.listdir", "os.scandir"):
            self.see("listed", path or ".")
        elif event == "import" and isinstance(facts[1], str):
            self.see("code", facts[1])
        elif event.startswith(_ACTS) and event not in _LOOKS:
            self._act(path)

    def _act(self, path: object) -> None:
        """Something is done besides answering; what Python compiles for its next start does not count."""
        _, compiled, name = str(path).rpartition("__pycache__")
        self.spoilt |= not compiled or (name != "" and ".pyc" not in name)

    def _asked(self, look: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def heard(path: Any, *rest: Any, **named: Any) -> Any:
            if self.listens and get_ident() not in self.looking:
                self.spoilt |= named.get("dir_fd") is not None
                self.see(kind if named.get("follow_symlinks", True) else "link", path)
            return look(path, *rest, **named)

        return heard

    def _copied(self, descriptor: int, stream: Any) -> io.TextIOWrapper:
        """A stream to the same place, of which every byte is heard."""
        stream.flush()
        buffer = _Copied(stream.buffer, lambda content: self.parts.append((descriptor, content.decode("latin-1"))))
        buffered = stream.line_buffering, stream.write_through
        copy: Any = io.TextIOWrapper(buffer, stream.encoding, stream.errors, None, *buffered)
        copy.uncopied = stream
        return copy  # type: ignore[no-any-return]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear what the block does. What looks for files makes no event: those functions stand behind ours."""
        kinds = {"stat": "data", "access": "data", "lstat": "link", "readlink": "link"}
        former, streams = {name: getattr(os, name) for name in kinds}, (sys.stdout, sys.stderr)
        sys.addaudithook(self.heed)
        try:
            for name, kind in kinds.items():
                setattr(os, name, self._asked(former[name], kind))
            sys.stdout, sys.stderr = copies = [self._copied(at + 1, one) for at, one in enumerate(streams)]
            yield
            for copy in copies:
                copy.flush()
        finally:
            self.listens = False
            for name, function in former.items():
                setattr(os, name, function)
            sys.stdout, sys.stderr = streams
        self.spoilt |= resource.getrusage(resource.RUSAGE_CHILDREN) != self.children


def _store(place: str, heard: _Heard) -> None:
    """Keep what was heard, whole or not at all, where everything that was seen still is as it was."""
    seen = [(kind, path, state) for (kind, path), state in heard.seen.items()]
    if any(_state(kind, path, heard.begun_ns) != state for kind, path, state in seen):
        return
    body = json.dumps({"parts": heard.parts, "seen": seen}).encode()
    if len(body) > min(_LARGEST_BYTES, _bound()):
        return
    folder, part = os.path.dirname(place), f"{place}.{os.getpid()}"
    os.makedirs(folder, 0o700, exist_ok=True)
    if not _is_private(os.lstat(folder), 0o022):
        return
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            file.write(sha256(body).hexdigest().encode() + b"\n" + body)
        os.replace(part, place)
    except OSError:
        os.unlink(part)
        raise
    _prune(folder)


def _prune(folder: str) -> None:
    """Remove the answers asked for longest ago until the rest fits."""
    with os.scandir(folder) as entries:
        by_age = sorted((one.stat().st_mtime_ns, one.path, one.stat().st_size) for one in entries)
    total = sum(size for _, _, size in by_age)
    for _, path, size in by_age:
        if total <= _bound():
            return
        with suppress(OSError):
            os.unlink(path)
        total -= size
