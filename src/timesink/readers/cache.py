"""Tables read before, kept as Parquet in the user's cache folder.

An entry is a folder named after the reader, its version, and the size and digest of the file's bytes. It is written
under another name and moved to its own once it is complete. Each table carries a checksum; an entry that does not hold
what it should is thrown away and the file read again. The least recently used entries go once the folder exceeds its
bound.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import polars as pl

from timesink.errors import SchemaViolation, UnreadableTrace
from timesink.model.schema import lean
from timesink.model.tables import ALL, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.readers.formats import reader_of
from timesink.readers.plausibility import make_plausible
from timesink.startup import replace
from timesink.untrusted.plain_json import document
from timesink.untrusted.unpack import refuse_special

if TYPE_CHECKING:
    from timesink.readers.formats import Reader
    from timesink.untrusted.budget import ReadLimits

# Changes with the tables' declarations and with this file's layout.
LAYOUT = 7
# A smaller file is read anew in less time than its entry would be worth.
WORTH_BYTES = 8 << 20
BOUND_BYTES = 8 << 30
_MANIFEST = "manifest.json"
_PIECE_BYTES = 4 << 20
# A folder this old was left behind by a writer that was killed; one that lives takes no such time.
_LEFT_BEHIND_S = 3600.0
CHANGED = ImportNote(NoteKind.DAMAGE, "the file was written to or replaced while it was read: read it again", 1)


def folder() -> Path:
    """Where entries live: `TIMESINK_CACHE_DIR`, or the user's cache folder."""
    if chosen := os.environ.get("TIMESINK_CACHE_DIR"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("timesink") / "tables"


def read_file(path: Path, limits: ReadLimits, *, cache: bool) -> Trace:
    """The trace of a file, by the reader that takes it; through the cache, or past it."""
    reader = reader_of(path)
    return read_through(reader, path, limits) if cache else _read(reader, path, limits)


def _read(reader: Reader, path: Path, limits: ReadLimits) -> Trace:
    return make_plausible(reader.read(path, limits), limits)


def read_through(reader: Reader, path: Path, limits: ReadLimits) -> Trace:
    """The trace of a file, from the cache where the same bytes were read before by the same reader."""
    if not path.is_file():
        return _read(reader, path, limits)
    before = state_of(path)
    size = path.stat().st_size
    if size < WORTH_BYTES:
        trace = _with_digest(_read(reader, path, limits), digest_of(path))
        return trace if state_of(path) == before else trace.with_notes(CHANGED)
    root, prefix = folder(), _prefix(reader, size)
    if any(root.glob(prefix + "*")):  # only then can the digest save the reading
        digest = digest_of(path)
        cached = load(root / (prefix + digest), path)
        if cached is not None:
            return cached
        trace = _read(reader, path, limits)
    else:
        stopped = Event()
        with ThreadPoolExecutor(max_workers=1) as pool:
            waiting = pool.submit(digest_of, path, stopped)
            try:
                trace = _read(reader, path, limits)
            except BaseException:
                stopped.set()  # whoever is interrupted need not wait for the digest
                raise
            digest = waiting.result()
    trace = _with_digest(trace, digest)
    if state_of(path) != before:  # the digest may be of other bytes than the tables: nothing to keep
        return trace.with_notes(CHANGED)
    store(root / (prefix + digest), trace)
    return trace


def kept(reader: Reader, path: Path) -> Trace | None:
    """The whole trace of a file, where the cache holds it; None where it does not, or the file is small."""
    if not path.is_file() or path.stat().st_size < WORTH_BYTES:
        return None
    root, prefix = folder(), _prefix(reader, path.stat().st_size)
    return load(root / (prefix + digest_of(path)), path) if any(root.glob(prefix + "*")) else None


def _prefix(reader: Reader, size_bytes: int) -> str:
    """What the names of all entries of files of that size begin with."""
    return f"{reader.format}-{reader.version}-{LAYOUT}-{size_bytes}-"


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


def load(entry: Path, path: Path) -> Trace | None:
    """The trace an entry holds, under the name the file has now. A damaged entry is removed, and None returned."""
    if not entry.is_dir():
        return None
    try:
        for file in entry.iterdir():
            refuse_special(file)
        manifest = document(entry / _MANIFEST)
        if {file.stem for file in entry.glob("*.parquet")} != set(manifest["tables"]):
            raise ValueError("the manifest does not name what is there")
        by_name = {table.name: table for table in ALL}
        tables = {}
        for name, checksum in manifest["tables"].items():
            file = entry / f"{name}.parquet"
            if _checksum(file) != checksum:
                raise ValueError(f"table {name} is not what was written")
            frame = pl.DataFrame([lean(column) for column in pl.read_parquet(file, memory_map=False)])
            tables[by_name[name]] = by_name[name].check(frame)
        notes = tuple(ImportNote(NoteKind(kind), *rest) for kind, *rest in manifest["notes"])
        sources = tables[SOURCES].with_columns(path=pl.lit(str(path)))
        os.utime(entry)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        pl.exceptions.PolarsError,
        SchemaViolation,
        UnreadableTrace,
    ):
        shutil.rmtree(entry, ignore_errors=True)
        return None
    return Trace(str(path), {**tables, SOURCES: sources}, notes)


def store(entry: Path, trace: Trace, *, bound_bytes: int | None = None) -> None:
    """Keep a trace under `entry`. A folder that cannot be written is no error: the cache is a convenience."""
    try:
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=entry.parent) as scratch:
            complete = Path(scratch) / "entry"
            complete.mkdir(mode=0o700)
            _write(complete, trace)
            complete.rename(entry)
        _prune(entry.parent, _bound() if bound_bytes is None else bound_bytes)
    except (OSError, pl.exceptions.PolarsError):  # Polars has an error of its own for a full disk
        return


def _write(entry: Path, trace: Trace) -> None:
    checksums = {}
    for table, frame in trace.tables.items():
        file = entry / f"{table.name}.parquet"
        frame.write_parquet(file, compression="lz4", statistics=False)
        checksums[table.name] = _checksum(file)
    notes = [(note.kind.value, note.message, note.count, note.table, note.of) for note in trace.notes]
    manifest: dict[str, Any] = {"tables": checksums, "notes": notes}
    (entry / _MANIFEST).write_text(json.dumps(manifest), "utf-8")


def _prune(root: Path, bound_bytes: int) -> None:
    """Remove what killed writers left, then the entries used longest ago until the rest fits."""
    for abandoned in root.glob(".new-*"):
        try:
            if time.time() - abandoned.stat().st_mtime > _LEFT_BEHIND_S:
                shutil.rmtree(abandoned, ignore_errors=True)
        except OSError:
            continue
    entries = []
    for entry in root.iterdir():
        try:
            if not entry.name.startswith("."):
                size = sum(file.stat().st_size for file in entry.iterdir())
                entries.append((entry.stat().st_mtime_ns, entry.name, size))
        except OSError:
            continue  # another process removed it
    total = sum(size for _, _, size in entries)
    for _, name, size in sorted(entries):
        if total <= bound_bytes:
            return
        shutil.rmtree(root / name, ignore_errors=True)
        total -= size


def _bound() -> int:
    """`TIMESINK_CACHE_BYTES`, or the default."""
    chosen = os.environ.get("TIMESINK_CACHE_BYTES", "")
    return int(chosen) if chosen.isascii() and chosen.isdigit() else BOUND_BYTES


def _checksum(file: Path) -> int:
    from isal import isal_zlib

    checksum = 0
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            checksum = int(isal_zlib.crc32(piece, checksum))
    return checksum


def _with_digest(trace: Trace, digest: str) -> Trace:
    if SOURCES not in trace:
        return trace
    sources = trace[SOURCES].with_columns(sha256=pl.lit(digest))
    return replace(trace, tables={**trace.tables, SOURCES: sources})
