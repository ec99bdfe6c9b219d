"""Reading only a window of files: a look through each for its first and last moment, then the rows of the window.

The window counts from the first event of all the files, so that the ranks of a job are cut at one moment of their
common clock. The cache does not keep what was read through a window; a trace that it holds whole is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from timesink.errors import UsageError
from timesink.model.trace import ImportNote, NoteKind, Span, Window
from timesink.units import time_text

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits


class Opened(Protocol):
    """A file that was looked through once."""

    @property
    def extent_ns(self) -> tuple[int, int] | None:
        """First and last moment, as `Trace.extent_ns` of the whole file says; None where nothing in it has a time."""

    def within(self, window: Window) -> Trace:
        """The tables that `Trace.within` leaves of the whole file, read without the rest of it."""


@runtime_checkable
class CuttingReader(Protocol):
    """A reader whose format can be read through a window."""

    def open(self, path: Path, limits: ReadLimits) -> Opened:
        """Look the file through; or `UnreadableTrace`."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file and what was seen of it. `opened` is None for a format without a time to cut along."""

    path: Path
    opened: Opened | None
    state: object


def read_window(
    files: Sequence[Path], span: Span, limits: ReadLimits, *, cache: bool, whole: Callable[[Path], Trace]
) -> Trace:
    """The rows of a window of the files, as one trace; its first note says what was looked at.

    A file beside traces that has no time to cut along, such as a kernel report, is read by `whole`; a note names it.
    """
    from timesink.readers.ranks import joined

    if not files:
        return joined([], [])
    with ThreadPoolExecutor(max_workers=_workers(len(files))) as pool:
        seen = list(pool.map(lambda file: _look(file, limits, cache), files))
        window = _window(seen, span)
        parts = list(pool.map(lambda file: _read(file, window, whole), seen))
    trace = parts[0] if len(parts) == 1 else joined(parts, list(files))
    notes = [ImportNote(NoteKind.SKIPPED, f"only the {window} was read, counted from the first event")]
    if left := [file.path.name for file in seen if file.opened is None]:
        notes.append(ImportNote(NoteKind.ASSUMED, f"read whole, not the window: {', '.join(left)}", len(left)))
    return replace(trace, notes=(*notes, *trace.notes), window=window)


def _look(path: Path, limits: ReadLimits, cache: bool) -> _File:
    from timesink.readers import cache as store
    from timesink.readers import reader_of

    reader = reader_of(path)
    state = store.state_of(path)
    if not isinstance(reader, CuttingReader):
        return _File(path, None, state)
    held = store.kept(reader, path) if cache else None
    return _File(path, held or reader.open(path, limits), state)


def _window(files: Sequence[_File], span: Span) -> Window:
    """The window on the files' clock. `UsageError` where a file cannot be cut, or has nothing in it."""
    cut = [file for file in files if file.opened is not None]
    if not cut:
        raise UsageError(
            f"{files[0].path} cannot be read through a window: the format has no timeline",
            remedy="leave the window out; PyTorch profiler traces and Nsight Systems reports and exports can be cut",
        )
    extents = {file.path: file.opened.extent_ns for file in cut if file.opened is not None}
    known = {path: extent for path, extent in extents.items() if extent is not None}
    if not known:
        raise UsageError(f"{cut[0].path} holds nothing that has a time", remedy="leave the window out")
    window = Window.of(span, min(start for start, _ in known.values()), max(end for _, end in known.values()))
    for path, (start_ns, end_ns) in known.items():
        if start_ns >= window.end_ns or end_ns < window.start_ns:
            begins, ends = (time_text(value - window.first_ns) for value in (start_ns, end_ns))
            raise UsageError(
                f"{path} has nothing in the {window}: it lasts from {begins} to {ends} after the first event",
                remedy="choose a window that all files share; where their clocks differ, read the files one by one",
            )
    return window


def _read(file: _File, window: Window, whole: Callable[[Path], Trace]) -> Trace:
    from timesink.readers import cache as store

    trace = whole(file.path) if file.opened is None else file.opened.within(window)
    return trace if store.state_of(file.path) == file.state else trace.with_notes(store.CHANGED)


def _workers(files: int) -> int:
    import os

    return min(files, os.cpu_count() or 1)
