"""Reading only a window of files: a look through each for its first and last moment, then the rows of the window.

The window counts from the first event of all the files, so that the ranks of a job are cut at one moment of their
common clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.errors import UsageError
from timesink.model.trace import ImportNote, NoteKind
from timesink.model.window import Span, Window
from timesink.readers.file import CHANGED, check_holdings, read_file, state_of
from timesink.readers.formats import OpenedFile, WindowReader, reader_of
from timesink.readers.plausibility import make_plausible
from timesink.readers.ranks import join_traces
from timesink.records import Record, replace
from timesink.units import time_text

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.untrusted.budget import ReadLimits


class _File(Record):
    """A file and what was seen of it. `opened` is None for a format without a time to cut along."""

    path: Path
    opened: OpenedFile | None
    state: object


def read_window(files: Sequence[Path], span: Span, limits: ReadLimits, *, cache: bool) -> Trace:
    """The rows of a window of the files, as one trace; its first note says what was looked at.

    A file that has no time to cut along, such as a kernel report, is read whole; a note names it. `UsageError` where no
    file can be cut, or one has nothing in the window.
    """
    if not files:
        return join_traces([], [])
    with ThreadPoolExecutor(max_workers=min(len(files), cpu_count() or 1)) as pool:
        looked_at = list(pool.map(lambda file: _look(file, limits), files))
        window = _window(looked_at, span)
        parts = list(pool.map(lambda file: _read(file, window, limits, cache), looked_at))
    trace = parts[0] if len(parts) == 1 else join_traces(parts, list(files))
    notes = [ImportNote(NoteKind.SKIPPED, f"only the {window} was read, counted from the first event")]
    if uncut := [file.path.name for file in looked_at if file.opened is None]:
        notes.append(ImportNote(NoteKind.ASSUMED, f"read whole, not the window: {', '.join(uncut)}", len(uncut)))
    return replace(trace, notes=(*notes, *trace.notes), cut_to=window)


def _look(path: Path, limits: ReadLimits) -> _File:
    reader = reader_of(path)
    state = state_of(path)
    if not isinstance(reader, WindowReader):
        return _File(path, None, state)
    opened = reader.open(path, limits)
    if opened.extent_ns is None:
        check_holdings(reader.read(path, limits))
    return _File(path, opened, state)


def _window(files: Sequence[_File], span: Span) -> Window:
    """The window on the files' clock. `UsageError` where a file cannot be cut, or has nothing in it."""
    opened = {file.path: file.opened for file in files if file.opened is not None}
    if not opened:
        raise UsageError(
            f"{files[0].path} cannot be read through a window: the format has no timeline",
            remedy="leave the window out; PyTorch profiler traces and Nsight Systems reports and exports can be cut",
        )
    extents = {path: extent for path, file in opened.items() if (extent := file.extent_ns) is not None}
    if not extents:
        raise UsageError(f"{next(iter(opened))} holds nothing that has a time", remedy="leave the window out")
    window = Window.of(span, min(start for start, _ in extents.values()), max(end for _, end in extents.values()))
    for path, (start_ns, end_ns) in extents.items():
        if start_ns >= window.end_ns or end_ns < window.start_ns:
            begins, ends = (time_text(value - window.first_ns) for value in (start_ns, end_ns))
            raise UsageError(
                f"{path} has nothing in the {window}: it lasts from {begins} to {ends} after the first event",
                remedy="choose a window that all files share; where their clocks differ, read the files one by one",
            )
    return window


def _read(file: _File, window: Window, limits: ReadLimits, cache: bool) -> Trace:
    opened = file.opened
    trace = make_plausible(opened.within(window), limits) if opened else read_file(file.path, limits, cache=cache)
    return trace if state_of(file.path) == file.state else trace.with_notes(CHANGED)
