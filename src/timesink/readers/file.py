"""One file, read by the reader that takes it: the digest of its bytes, and whether they changed meanwhile."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.tables import COMPILE_EVENTS, DEVICE_OPS, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.formats import OWN_LOG, reader_of
from timesink.readers.plausibility import make_plausible
from timesink.records import replace

if TYPE_CHECKING:
    from timesink.readers.formats import Reader
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
