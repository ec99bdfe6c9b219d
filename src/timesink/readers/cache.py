"""Tables read before, kept as Parquet in the user's cache folder.

An entry is a folder named after the reader, its version, and the size and digest of the file's bytes. It is written
beside its place and moved there whole; each table carries a checksum, and an entry that does not hold what it should is
thrown away and the file read again. The least recently used entries go once the folder exceeds its bound.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import polars as pl

from timesink.errors import SchemaViolation
from timesink.model.lookup import lean
from timesink.model.tables import ALL, SOURCES
from timesink.model.trace import ImportNote, NoteKind, Trace
from timesink.untrusted.plain_json import document

if TYPE_CHECKING:
    from timesink.readers import Reader, ReadLimits

# Changes with the tables' declarations and with this file's layout.
LAYOUT = 2
# A smaller file is read anew in less time than its entry would be worth.
WORTH_BYTES = 8 << 20
BOUND_BYTES = 8 << 30
_MANIFEST = "manifest.json"
# What a writer that was killed leaves behind; one that lives takes no such time.
_WINDOW_BYTES = 4 << 20
_LEFT_BEHIND_S = 3600.0
CHANGED = ImportNote(NoteKind.DATA_LOSS, "the file was written to or replaced while it was read: read it again", 1)


def folder() -> Path:
    """Where entries live: `TIMESINK_CACHE_DIR`, or the user's cache folder."""
    if chosen := os.environ.get("TIMESINK_CACHE_DIR"):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("timesink") / "tables"


def read_through(reader: Reader, path: Path, limits: ReadLimits) -> Trace:
    """The trace of a file, from the cache where the same bytes were read before by the same reader."""
    if not path.is_file():
        return reader.read(path, limits)
    before = state_of(path)
    size = path.stat().st_size
    if size < WORTH_BYTES:
        trace = _with_digest(reader.read(path, limits), digest_of(path))
        return trace if state_of(path) == before else trace.with_notes(CHANGED)
    root, prefix = folder(), _prefix(reader, size)
    if any(root.glob(prefix + "*")):  # only then can the digest save the reading
        digest = digest_of(path)
        found = load(root / (prefix + digest), path)
        if found is not None:
            return found
        trace = reader.read(path, limits)
    else:
        stopped = Event()
        with ThreadPoolExecutor(max_workers=1) as pool:
            waiting = pool.submit(digest_of, path, stopped)
            try:
                trace = reader.read(path, limits)
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
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def digest_of(path: Path, stopped: Event | None = None) -> str:
    """SHA-256 of the file's bytes, hexadecimal; of nothing in particular once it was `stopped`."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while (window := stream.read(_WINDOW_BYTES)) and not (stopped and stopped.is_set()):
            digest.update(window)
    return digest.hexdigest()


def load(entry: Path, path: Path) -> Trace | None:
    """The trace an entry holds, under the name the file has now; None, and no entry any more, if it is damaged."""
    if not entry.is_dir():
        return None
    try:
        manifest = document(entry / _MANIFEST)
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
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError, SchemaViolation):
        shutil.rmtree(entry, ignore_errors=True)
        return None
    return Trace(str(path), {**tables, SOURCES: sources}, notes)


def store(entry: Path, trace: Trace, *, bound_bytes: int | None = None) -> None:
    """Keep a trace under `entry`. A folder that cannot be written is no error: the cache is a convenience."""
    try:
        entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=entry.parent) as made:
            whole = Path(made) / "entry"
            whole.mkdir(mode=0o700)
            _write(whole, trace)
            whole.rename(entry)
        _prune(entry.parent, _bound() if bound_bytes is None else bound_bytes)
    except (OSError, pl.exceptions.PolarsError):  # Polars has an error of its own for a full disk
        return


def _write(entry: Path, trace: Trace) -> None:
    checksums = {}
    for table, frame in trace.tables.items():
        file = entry / f"{table.name}.parquet"
        frame.write_parquet(file, compression="lz4", statistics=False)
        checksums[table.name] = _checksum(file)
    notes = [(note.kind.value, note.message, note.count, note.table) for note in trace.notes]
    manifest: dict[str, Any] = {"tables": checksums, "notes": notes}
    (entry / _MANIFEST).write_text(json.dumps(manifest), "utf-8")


def _prune(root: Path, bound_bytes: int) -> None:
    """Remove what killed writers left, then the entries used longest ago until the rest fits."""
    for left in root.glob(".new-*"):
        try:
            if time.time() - left.stat().st_mtime > _LEFT_BEHIND_S:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue
    entries = []
    for entry in root.iterdir():
        try:
            if not entry.name.startswith("."):
                entries.append((entry.stat().st_mtime_ns, entry.name, _size(entry.iterdir())))
        except OSError:
            continue  # another process removed it
    total = sum(size for _, _, size in entries)
    for _, name, size in sorted(entries):
        if total <= bound_bytes:
            return
        shutil.rmtree(root / name, ignore_errors=True)
        total -= size


def _size(files: Iterable[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _bound() -> int:
    """`TIMESINK_CACHE_BYTES`, or the default."""
    chosen = os.environ.get("TIMESINK_CACHE_BYTES", "")
    return int(chosen) if chosen.isascii() and chosen.isdigit() else BOUND_BYTES


def _checksum(file: Path) -> int:
    from isal import isal_zlib

    checksum = 0
    with file.open("rb") as stream:
        while window := stream.read(_WINDOW_BYTES):
            checksum = int(isal_zlib.crc32(window, checksum))
    return checksum


def _with_digest(trace: Trace, digest: str) -> Trace:
    if SOURCES not in trace:
        return trace
    sources = trace[SOURCES].with_columns(sha256=pl.lit(digest))
    return replace(trace, tables={**trace.tables, SOURCES: sources})
