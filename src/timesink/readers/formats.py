"""Which reader takes a file: what a reader is, and the registry of all readers.

The folder is the registry: a module or package in it whose name begins with no underscore and which holds `READERS`
reads the formats listed there. Its top level is imported before any file is recognised, so what is heavy is imported
in `read`.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final, Literal, Protocol, runtime_checkable

from timesink.errors import UnreadableTrace, cannot_read
from timesink.untrusted.budget import FEWER, ReadLimits, crowded
from timesink.untrusted.unpack import ZSTANDARD_MAGIC, refuse_special

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.model.window import Window

HEAD_BYTES = 4096
_FRAME_BYTES = 132 << 10  # a block of a Zstandard frame is unpacked whole; it has 128 KiB at most
OWN_LOG = (
    "give a profiler's trace of the same run; logs of your own need a reader, which is one file "
    "(docs/how-to/write-a-reader.md)"
)
_KNOWN = "give a profile of PyTorch, Nsight Systems or Nsight Compute; `timesink help diagnose` lists the files"


class Reader(Protocol):
    """One file format.

    `format` is its name, as `sources.format` holds it. A `trace` records a run of a rank; a `companion` (a compile log,
    a memory snapshot, a kernel report) adds to the traces it is read with and claims no rank of its own. Readers of a
    lower `priority` are asked first: 0 where the content proves the format, 1 where it only suggests it, 2 where a file
    name may.
    """

    format: str
    kind: Literal["trace", "companion"] = "trace"
    priority: int = 0

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the file is of this format, judged by its first 4 KiB. `head` is empty for a folder."""

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the file, rank as the file says or 0; or `UnreadableTrace`."""


class OpenedFile(Protocol):
    """A file that was looked through once."""

    @property
    def extent_ns(self) -> tuple[int, int] | None:
        """First and last moment, as `Trace.extent_ns` of the whole file says; None where nothing in it has a time."""

    def within(self, window: Window) -> Trace:
        """The tables that `Trace.within` leaves of the whole file, read without the rest of it."""


@runtime_checkable
class WindowReader(Protocol):
    """A reader whose format has a timeline and can be read through a window of it."""

    def open(self, path: Path, limits: ReadLimits) -> OpenedFile:
        """Look the file through; or `UnreadableTrace`."""


@cache
def readers() -> tuple[Reader, ...]:
    """Every reader, in the order they are asked: by priority, then by the name of the module."""
    names = sorted(module.name for module in iter_modules([str(Path(__file__).parent)]))
    modules = [import_module(f"timesink.readers.{name}") for name in names if not name.startswith("_")]
    every: list[Reader] = [reader for module in modules for reader in getattr(module, "READERS", ())]
    return tuple(sorted(every, key=lambda reader: reader.priority))


def reader_of(path: Path) -> Reader:
    """The reader that takes the file, or `UnreadableTrace` that says what the file looks like.

    A text that is named like a log, and was given by its name, is the output of a program: of a compiler that had
    nothing to say, or said it late.
    """
    reader = recognised(path)
    if reader is None and is_text_log(path):
        return next(one for one in readers() if one.format == "torch_logs")
    if reader is None:
        why, way_out = _looks_like(path)
        raise UnreadableTrace(path, why, remedy=way_out)
    return reader


def head_of(path: Path) -> bytes:
    """The first 4 KiB, of a Zstandard file with its first block; empty for a folder. `UnreadableTrace` where the file
    cannot be opened."""
    refuse_special(path)
    if path.is_dir():
        return b""
    try:
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            return head + stream.read(_FRAME_BYTES) if head.startswith(ZSTANDARD_MAGIC) else head
    except OSError as error:
        raise cannot_read(path, error) from error


def trace_files(path: Path) -> list[Path]:
    """The path itself, or, where it is a folder that is no export of its own, the trace files in it, by name.
    `UnreadableTrace` where those are more than are looked at."""
    if path.is_dir() and (why := crowded(path)):
        raise UnreadableTrace(path, why, remedy=FEWER)
    if not path.is_dir() or any(reader.recognises(path, b"") for reader in readers()):
        return [path]
    files = [file for file in sorted(path.iterdir()) if _is_trace(file)]
    if not files:
        raise UnreadableTrace(path, "no trace file in this folder", remedy=_KNOWN)
    return files


def _is_trace(path: Path) -> bool:
    """Whether a file of a folder is one to read: `timesink capture` leaves a manifest and a log next to its traces.

    The log holds what the program printed, which may look like anything; only the compiler's messages are read from it.
    """
    if not path.is_file() or path.name == "manifest.json":
        return False
    reader = recognised(path)
    is_log = path.name == "log.txt" and path.with_name("manifest.json").is_file()
    return reader is not None and (not is_log or reader.format == "torch_logs")


# One of these stands near the beginning of every Chrome trace, the last of a memory timeline.
_TRACE_WORDS = (b'"traceEvents"', b'"schemaVersion"', b'"displayTimeUnit"', b'"deviceProperties"', b'"ph"', b"[[")


def recognised(path: Path) -> Reader | None:
    """The reader that takes the file, by its beginning; None where no reader does."""
    head = head_of(path)
    return next((reader for reader in readers() if reader.recognises(path, head)), None)


def is_profile(path: Path) -> bool:
    """Whether a reader takes the file, and plain JSON begins like a trace: a folder of runs holds other JSON too."""
    try:
        is_json = path.suffix == ".json"
        return recognised(path) is not None and (not is_json or any(word in head_of(path) for word in _TRACE_WORDS))
    except UnreadableTrace:
        return False


_TEXT_LOGS = (".log", ".err", ".stderr", ".out", ".txt")


def is_text_log(path: Path) -> bool:
    """Whether the file is named like a log of text, and holds text or nothing."""
    head = head_of(path)
    return path.suffix.lower() in _TEXT_LOGS and path.is_file() and b"\0" not in head and not head.startswith(b"{")


def beginning(head: bytes) -> str:
    """How an unknown file begins, for a person: ``begins with "hello"``, ``is binary and begins with 7f 45``."""
    text = head[:16].decode("ascii", "replace").split("\n")[0].strip()
    if text and text.isprintable() and text.isascii():
        return f'begins with "{text}"'
    return f"is binary and begins with {head[:8].hex(' ')}"


_NO_PROFILES: Final = (
    ((b"PAR1",), "this is a Parquet table, such as a log of operations, and no profile", OWN_LOG),
    (
        (b"version https://git-lfs.github.com/spec/",),
        "this is a git-LFS pointer, not the file itself (run `git lfs pull`)", _KNOWN,
    ),
    (
        (b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"BZh", b"PK\x03\x04", b"7z\xbc\xaf"),
        "this is a compressed file", "unpack it first: xz -d, zstd -d, bunzip2, unzip or 7z x",
    ),
)  # fmt: skip
"""What a file is that begins so, and the way out."""


def _looks_like(path: Path) -> tuple[str, str]:
    """What a file that no reader takes is, and the way out."""
    head = head_of(path)
    for begins, what, way_out in _NO_PROFILES:
        if head.startswith(begins):
            return what, way_out
    if path.name.endswith((".pftrace", ".perfetto-trace")):
        return "this is a Perfetto trace in protocol buffers", "convert it: traceconv json TRACE.pftrace TRACE.json"
    if path.name.endswith(".xplane.pb"):
        return "this is an XPlane profile of XLA (JAX, TensorFlow), which is not read", _KNOWN
    if path.is_dir():
        return "a folder that is no export timesink knows", _KNOWN
    return (f"unknown file format: it {beginning(head)}" if head else "the file is empty"), _KNOWN
