"""One file, read by the reader that takes it: the digest of its bytes, and whether they changed meanwhile.

Reading only a window of files: a look through each for its first and last moment, then the rows of the window.

The window counts from the first event of all the files, so that the ranks of a job are cut at one moment of their
common clock.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from pathlib import Path
from threading import Event

import polars as pl

from timesink.errors import UnreadableTrace, UsageError
from timesink.model.span import Span
from timesink.model.tables import COMPILE_EVENTS, DEVICE_OPS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.model.window import Window
from timesink.readers.formats import OWN_LOG, OpenedFile, Reader, WindowReader, reader_of
from timesink.readers.plausibility import make_plausible
from timesink.readers.ranks import join_traces
from timesink.records import Record, replace
from timesink.units import time_text
from timesink.untrusted.budget import ReadLimits

_PIECE_BYTES = 4 << 20
CHANGED = ImportNote(NoteKind.DAMAGE, "the file was written to or replaced while it was read: read it again", 1)


def read_file(path: Path, limits: ReadLimits, *, cache: bool) -> Trace:
    """The trace of a file, by the reader that takes it; with the digest of its bytes where it may be kept."""
    reader = reader_of(path)
    return read_with_digest(reader, path, limits) if cache else _read(reader, path, limits)


def _read(reader: Reader, path: Path, limits: ReadLimits) -> Trace:
    trace = reader.read(path, limits)
    check_holdings(trace)
    return make_plausible(trace, limits)


def check_holdings(trace: Trace) -> None:
    """`UnreadableTrace` where all that the file holds is passed over, as of a log of operations: no command can answer
    from it. Work of another accelerator is no such thing, since its times are told; nor is the log of a compiler, whose
    silence is an answer."""
    passed = trace.passed_over
    of_another = DEVICE_OPS.name in [note.table for note in passed]
    if passed and not (trace.holds_rows or of_another or COMPILE_EVENTS in trace):
        held = "; ".join([*(note.message for note in passed), *trace.damage])
        raise UnreadableTrace(trace.source, f"it holds only {held}", remedy=OWN_LOG)


def read_with_digest(reader: Reader, path: Path, limits: ReadLimits) -> Trace:
    """The trace of a file with its digest, which is taken meanwhile; a note says where the file changed under it."""
    if not path.is_file():
        return _read(reader, path, limits)
    before, stopped = state_of(path), Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = pool.submit(digest_of, path, stopped)
        try:
            trace = _read(reader, path, limits)
        except BaseException:
            stopped.set()  # whoever is interrupted need not wait for the digest
            raise
        digest = waiting.result()
    if SOURCES in trace:
        sources = trace[SOURCES].with_columns(sha256=pl.lit(digest))
        trace = replace(trace, tables={**trace.tables, SOURCES: sources})
    return trace if state_of(path) == before else trace.with_notes(CHANGED)


def state_of(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written to or replaced; None where it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def digest_of(path: Path, stopped: Event | None = None) -> str:
    """SHA-256 of the file's bytes, hexadecimal; of nothing in particular once it was `stopped`."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while (piece := stream.read(_PIECE_BYTES)) and not (stopped and stopped.is_set()):
            digest.update(piece)
    return digest.hexdigest()


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
        parts = list(pool.map(lambda file: _read_within(file, window, limits, cache), looked_at))
    trace = parts[0] if len(parts) == 1 else join_traces(parts, list(files))
    notes = [ImportNote(NoteKind.SKIPPED, f"only the {window} was read, counted from the first event")]
    if uncut := [file.path.name for file in looked_at if file.opened is None]:
        notes.append(
            ImportNote(NoteKind.ASSUMED, f"read whole, not the window: {', '.join(uncut)}", len(uncut), whole=True)
        )
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


def _read_within(file: _File, window: Window, limits: ReadLimits, cache: bool) -> Trace:
    opened = file.opened
    trace = make_plausible(opened.within(window), limits) if opened else read_file(file.path, limits, cache=cache)
    return trace if state_of(file.path) == file.state else trace.with_notes(CHANGED)
