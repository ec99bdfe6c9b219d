"""Nsight Systems: reports, and their exports as SQLite or as a folder of Parquet or Arrow files.

Three readers of the same tables. `export` says which tables and columns are read; `sqlite` and `folder` fetch them, and
`report` has nsys export a report first. `host` and `device` turn them into canonical tables, with `identifiers` for
what numbers stand for and `session` for what all tables share; `assemble` makes the trace, whole or through a window.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from timesink.readers.formats import OpenedFile, Reader

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers.nsys.folder import Folder
    from timesink.readers.nsys.sqlite import Database
    from timesink.untrusted.unpack import ReadLimits

_SQLITE_MAGIC = b"SQLite format 3\x00"
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")


class NsysSqlite(Reader):
    """Reader of SQLite exports; what it cannot place becomes a note."""

    format = "nsys_sqlite"
    version = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        """Any SQLite database: `read` says so where it is another program's."""
        return head.startswith(_SQLITE_MAGIC)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the export, one rank per process that used a GPU."""
        from timesink._native import give_back
        from timesink.readers.nsys.assemble import trace_of

        trace = trace_of(self.export(path, limits), path, self.format)
        give_back()  # the threads that read have left what rows came in
        return trace

    def open(self, path: Path, limits: ReadLimits) -> OpenedFile:
        """The export, to be read through a window."""
        from timesink.readers.nsys.assemble import open_for_window

        return open_for_window(self.export(path, limits), path, self.format)

    def export(self, path: Path, limits: ReadLimits) -> Database | Folder:
        """The export that the path names, opened; `UnreadableTrace` where it is no export."""
        from timesink.readers.nsys.sqlite import open_database

        return open_database(path)


class NsysReport(NsysSqlite):
    """Reader of reports, by way of their SQLite export, which is made by `nsys` and kept in the user's cache folder.

    A window of a report is read from the whole export, too. `MissingTool` where there is no `nsys` to export it.
    """

    format = "nsys_report"
    version = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first words of a report, or its name: a raw stream is ours to refuse with the way out."""
        return head.startswith(_REPORT_MAGIC) or (bool(head) and path.suffix.lower() in _SUFFIXES)

    def export(self, path: Path, limits: ReadLimits) -> Database | Folder:
        """The SQLite export of the report."""
        from timesink.readers.nsys.report import exported

        return super().export(exported(path), limits)


class NsysArrow(NsysSqlite):
    """Reader of export folders. For a window, every batch is looked at, and what is outside is dropped at once."""

    format = "nsys_arrow"
    version = 1

    def recognises(self, path: Path, head: bytes) -> bool:
        """A folder with a table of an Nsight Systems export in it."""
        if head or not path.is_dir():
            return False
        from timesink.readers.nsys.folder import is_export_folder

        return is_export_folder(path)

    def export(self, path: Path, limits: ReadLimits) -> Database | Folder:
        """The tables of the folder."""
        from timesink.readers.nsys.folder import open_folder

        return open_folder(path, limits.unpacked_bytes)


READERS = (NsysSqlite(), NsysReport(), NsysArrow())
