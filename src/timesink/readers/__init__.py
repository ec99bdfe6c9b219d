"""Readers turn files into traces. `read` looks at the first 4 KiB and asks each reader in turn.

A damaged record is an `ImportNote`; a damaged file is `UnreadableTrace`; a truncated file yields its readable prefix
with a DATA_LOSS note.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from timesink.errors import UnreadableTrace

if TYPE_CHECKING:
    from timesink.model.trace import Span, Trace

HEAD_BYTES = 4096
# A bomb is told from a repetitive trace once enough has come out.
BOMB_FROM_BYTES = 64 << 20

# Asked in this order; each module holds `READERS`. The order matters only where two formats look alike.
MODULES = (
    "timesink.readers.nsys",
    "timesink.readers.torch_logs",
    "timesink.readers.memory_timeline",
    "timesink.readers.kineto",
    "timesink.readers.ncu.report",
    "timesink.readers.ncu.csv_pages",
    "timesink.readers.torch_snapshot",
)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """What a reader may spend on one file before it refuses; a file somebody mailed may be a bomb."""

    unpacked_bytes: int = 64 << 30
    unpacking_ratio: int = 300
    # Formats that must be held in memory whole may take no more than this, packed or not.
    held_bytes: int = 4 << 30

    @property
    def most_held_bytes(self) -> int:
        """What a format that is held in memory whole may take."""
        return min(self.held_bytes, self.unpacked_bytes)

    def is_bomb(self, unpacked_bytes: int, packed_bytes: int) -> bool:
        """Whether so much out of so little is no repetitive trace: 52 to 1 was seen, 1,032 is deflate's maximum."""
        return unpacked_bytes > max(BOMB_FROM_BYTES, self.unpacking_ratio * packed_bytes)


class Reader(Protocol):
    """One file format. `version` changes whenever the same bytes would give other tables: the cache keys by it."""

    @property
    def format(self) -> str:
        """Name of the format, as it stands in `sources.format`."""

    @property
    def version(self) -> int:
        """Number of this reader's behaviour."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the file is of this format, judged by its first 4 KiB. `head` is empty for a folder."""

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the file, rank as the file says or 0; or `UnreadableTrace`."""


def read(  # noqa: PLR0913  # every way to read a file is one keyword of the public function
    path: str | Path,
    *,
    rank: int | None = None,
    ranks: Collection[int] | None = None,
    linked_only: bool = False,
    cache: bool = True,
    limits: ReadLimits | None = None,
    window: str | Span | None = None,
) -> Trace:
    """One file (or one export folder) as a trace.

    Parameters
    ----------
    rank
        Overrides what the file says of its rank.
    ranks
        Keep only the rows of these ranks of a file that holds several.
    linked_only
        Leave out the GPU work whose launch is not in the file; a note says how much that is.
    cache
        Keep the tables in the user's cache folder, and take them from there where the same bytes were read before.
    limits
        What may be spent on the file.
    window
        Read only this stretch, counted from the first event: ``12.5s:13.5s``, ``800ms:``, ``:3s``. The tables are those
        of `Trace.between`; the digest of the file is left out. The format must be one with a timeline.

    Raises
    ------
    UnreadableTrace
        No reader takes the file, or its reader cannot make a trace of it.
    UsageError
        The window makes no sense, begins after the trace's end, or the format cannot be cut; a rank is not there.
    """
    from timesink.readers import cache as store

    where = Path(path)
    reader = reader_of(where)
    allowed = limits or ReadLimits()
    if window is not None:
        trace = _through([where], window, cache, allowed)
    else:
        trace = store.read_through(reader, where, allowed) if cache else reader.read(where, allowed)
    return _selected(trace if rank is None else trace.with_rank(rank), ranks, linked_only)


def read_all(
    paths: Iterable[str | Path],
    *,
    ranks: Collection[int] | None = None,
    linked_only: bool = False,
    cache: bool = True,
    limits: ReadLimits | None = None,
    window: str | Span | None = None,
) -> Trace:
    """Several files as one trace, each under its own rank. A folder stands for the trace files in it.

    Two files that claim the same rank get the rank in their file names (``rank3``, ``worker3``), else their position in
    the order given; a note says so. Clocks of different machines are not aligned here. The other arguments are those of
    `read`; a `window` counts from the first event of all files.
    """
    from concurrent.futures import ThreadPoolExecutor

    from timesink.readers.ranks import joined

    files = [file for path in paths for file in trace_files(Path(path))]
    if window is not None:
        trace = _through(files, window, cache, limits or ReadLimits())
    elif len(files) == 1:
        trace = read(files[0], cache=cache, limits=limits)
    else:
        with ThreadPoolExecutor(max_workers=min(len(files), _workers()) or 1) as pool:
            trace = joined(list(pool.map(lambda file: read(file, cache=cache, limits=limits), files)), files)
    return _selected(trace, ranks, linked_only)


def _selected(trace: Trace, ranks: Collection[int] | None, linked_only: bool) -> Trace:
    """Of a trace that was read, what was asked for."""
    if ranks:
        trace = trace.of_ranks(ranks)
    return trace.linked_only() if linked_only else trace


def _through(files: Sequence[Path], window: str | Span, cache: bool, limits: ReadLimits) -> Trace:
    """The files through a window."""
    from timesink.model.trace import Span
    from timesink.readers.cutting import read_window

    span = Span.parse(window) if isinstance(window, str) else window
    return read_window(files, span, limits, cache=cache, whole=lambda file: read(file, cache=cache, limits=limits))


def trace_files(path: Path) -> list[Path]:
    """The path itself, or where it is a folder that is no export of its own, the trace files in it, by name."""
    if not path.is_dir() or any(reader.recognises(path, b"") for reader in readers()):
        return [path]
    files = [file for file in sorted(path.iterdir()) if _is_trace(file)]
    if not files:
        raise UnreadableTrace(path, "no trace file in this folder", remedy=_KNOWN)
    return files


def readers() -> Iterator[Reader]:
    """Every reader, in the order they are asked; its module is imported when its turn comes."""
    return (reader for module in MODULES for reader in import_module(module).READERS)


def reader_of(path: Path) -> Reader:
    """The reader that takes the file, or `UnreadableTrace` that says what the file looks like."""
    found = _recognised(path)
    if found is None:
        raise UnreadableTrace(path, _looks_like(path), remedy=_KNOWN)
    return found


def head_of(path: Path) -> bytes:
    """The first 4 KiB; empty for a folder. `UnreadableTrace` where the file cannot be opened."""
    if path.is_dir():
        return b""
    try:
        with path.open("rb") as stream:
            return stream.read(HEAD_BYTES)
    except OSError as error:
        raise UnreadableTrace(path, error.strerror or str(error), remedy="check the path") from error


def _is_trace(path: Path) -> bool:
    """Whether a file of a folder is one to read: `timesink capture` leaves a manifest and a log beside its traces.

    The log holds what the program printed, which may look like anything; only the compiler's messages are read from it.
    """
    if not path.is_file() or path.name == "manifest.json":
        return False
    found = _recognised(path)
    is_log = path.name == "log.txt" and path.with_name("manifest.json").is_file()
    return found is not None and (not is_log or found.format == "torch_logs")


def _recognised(path: Path) -> Reader | None:
    head = head_of(path)
    return next((reader for reader in readers() if reader.recognises(path, head)), None)


def _workers() -> int:
    import os

    return os.cpu_count() or 1


_KNOWN = (
    "give a PyTorch profiler trace (.json, .json.gz), an Nsight Systems report (.nsys-rep, .qdrep) or its export "
    "(.sqlite, or a folder of Parquet or Arrow files), an Nsight Compute report (.ncu-rep, .ncu-repz) or its CSV "
    "page, a PyTorch memory snapshot (.pickle), or a log of torch.compile (TORCH_TRACE, TORCH_LOGS)"
)


def _looks_like(path: Path) -> str:
    head = head_of(path)
    if path.is_dir():
        return "a folder that is no export timesink knows"
    if not head:
        return "the file is empty"
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        return "this is a git-LFS pointer, not the file itself (run `git lfs pull`)"
    return f"no reader takes a file that begins with {head[:16]!r}"
