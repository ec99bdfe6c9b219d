"""Nsight Systems: reports, and their exports as SQLite or as a folder of Parquet or Arrow files.

Three readers of the same tables. `export` says which tables and columns are read; `database` and `folder` fetch them;
the other modules turn them into canonical tables, one module per kind of event; `assemble` makes the trace.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.errors import UnreadableTrace

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers import ReadLimits
    from timesink.readers.cutting import Opened

_SQLITE_MAGIC = b"SQLite format 3\x00"
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_SUFFIXES = (".nsys-rep", ".qdrep")
_RAW = ".qdstrm"
_EXPORTS_KEPT = 8
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class NsysSqlite:
    """The reader; what it cannot place becomes a note."""

    format: str = "nsys_sqlite"
    version: int = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        """Any SQLite database: `read` says so where it is another program's."""
        return head.startswith(_SQLITE_MAGIC)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the export, one rank per process that used a GPU."""
        from timesink.readers.nsys.assemble import trace_of
        from timesink.readers.nsys.database import open_database

        return trace_of(open_database(path), path, self.format)

    def open(self, path: Path, limits: ReadLimits) -> Opened:
        """The export, to be read through a window."""
        from timesink.readers.nsys.cut import opened
        from timesink.readers.nsys.database import open_database

        return opened(open_database(path), path, self.format)


@dataclass(frozen=True, slots=True)
class NsysArrow:
    """The reader of export folders."""

    format: str = "nsys_arrow"
    version: int = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """A folder with a table of an Nsight Systems export in it."""
        if head or not path.is_dir():
            return False
        from timesink.readers.nsys.folder import is_export_folder

        return is_export_folder(path)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the export, one rank per process that used a GPU."""
        from timesink.readers.nsys.assemble import trace_of
        from timesink.readers.nsys.folder import open_folder

        return trace_of(open_folder(path, limits.unpacked_bytes), path, self.format)

    def open(self, path: Path, limits: ReadLimits) -> Opened:
        """The export, to be read through a window. Every batch is looked at; what lies outside is let go at once."""
        from timesink.readers.nsys.cut import opened
        from timesink.readers.nsys.folder import open_folder

        return opened(open_folder(path, limits.unpacked_bytes), path, self.format)


@dataclass(frozen=True, slots=True)
class NsysReport:
    """The reader. Exports are kept in the user's cache folder, named by the digest of the report's bytes."""

    format: str = "nsys_report"
    version: int = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first words of a report, or its name: a raw stream is ours to refuse with the way out."""
        return head.startswith(_REPORT_MAGIC) or (bool(head) and path.suffix.lower() in (*_SUFFIXES, _RAW))

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the report. `MissingTool` where there is no `nsys` to export it."""
        from timesink.readers.nsys.assemble import trace_of
        from timesink.readers.nsys.database import open_database

        return trace_of(open_database(_exported_sqlite(path)), path, self.format)

    def open(self, path: Path, limits: ReadLimits) -> Opened:
        """The report, to be read through a window. It is exported whole, for the export is kept and read again."""
        from timesink.readers.nsys.cut import opened
        from timesink.readers.nsys.database import open_database

        return opened(open_database(_exported_sqlite(path)), path, self.format)


def _exported_sqlite(path: Path) -> Path:
    if path.suffix.lower() == _RAW:
        raise UnreadableTrace(
            path,
            "a raw stream that nsys has not yet made a report of",
            remedy=f"run `QdstrmImporter --input-file {path.name}`, which comes with Nsight Systems, "
            "and give timesink the .nsys-rep file",
        )
    return exported(path)


def exported(report: Path, cache: Path | None = None) -> Path:
    """The report's SQLite export in the cache folder, made if it is not there."""
    from platformdirs import user_cache_path

    from timesink.readers.nsys.tool import export_sqlite, find_nsys

    folder = cache or user_cache_path("timesink") / "nsys"
    kept = folder / f"{_digest(report)}.sqlite"
    if kept.is_file():
        os.utime(kept)
        return kept
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder, prefix="export-") as scratch:
        export_sqlite(find_nsys(), report, Path(scratch)).replace(kept)
    _forget_old(folder)
    return kept


def _digest(report: Path) -> str:
    digest = hashlib.sha256()
    with report.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _forget_old(folder: Path) -> None:
    """Keep the exports used last; each can be as large as its report several times over."""
    exports = sorted(folder.glob("*.sqlite"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in exports[_EXPORTS_KEPT:]:
        old.unlink(missing_ok=True)


READERS = (NsysSqlite(), NsysReport(), NsysArrow())
