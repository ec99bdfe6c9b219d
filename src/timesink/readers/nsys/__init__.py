"""Nsight Systems: reports, and their exports as SQLite or as a folder of Parquet or Arrow files.

Three readers of the same tables. `export` says which tables and columns are read; `sqlite` and `folder` fetch them. A
report is exported as SQLite first, by nsys, and its export kept in the user's cache folder, named by the digest of the
report. `host`, `ranges` and `device` turn rows into canonical tables, with `identifiers` for what numbers stand for and
`session` for what all tables share; `assemble` makes the trace, whole or through a window.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from timesink._native import give_back
from timesink.errors import MissingTool, ToolFailed, UnreadableTrace
from timesink.knowledge.profiler_texts import ANALYSIS, PROGRESS, SUMS_TABLE
from timesink.readers.formats import OpenedFile, Reader
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.nvidia_tools import find_tool, importer_link

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.readers.nsys.folder import Folder
    from timesink.readers.nsys.sqlite import Database

_SQLITE_MAGIC = b"SQLite format 3\x00"
_REPORT_MAGIC = b"NVIDIA Tegra Profiler Report"
_SUFFIXES = (".nsys-rep", ".qdrep", ".qdstrm")


class NsysSqlite(Reader):
    """Reader of SQLite exports; what it cannot place becomes a note."""

    format = "nsys_sqlite"

    def recognises(self, path: Path, head: bytes) -> bool:
        """Any SQLite database: `read` says so where it is another program's."""
        return head.startswith(_SQLITE_MAGIC)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The checked tables of the export, one rank per process that used a GPU."""
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

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first words of a report, or its name: a raw stream is ours to refuse with the way out."""
        return head.startswith(_REPORT_MAGIC) or (bool(head) and path.suffix.lower() in _SUFFIXES)

    def export(self, path: Path, limits: ReadLimits) -> Database | Folder:
        """The SQLite export of the report."""
        return super().export(exported(path), limits)


class NsysArrow(NsysSqlite):
    """Reader of export folders. For a window, every batch is looked at, and what is outside is dropped at once."""

    format = "nsys_arrow"

    def recognises(self, path: Path, head: bytes) -> bool:
        """A folder with a table of an Nsight Systems export in it."""
        if head or not path.is_dir():
            return False
        from timesink.readers.nsys.folder import is_export_folder

        return is_export_folder(path)

    def export(self, path: Path, limits: ReadLimits) -> Database | Folder:
        """The tables of the folder."""
        from timesink.readers.nsys.folder import open_folder

        return open_folder(path, limits)


class NsysStats(Reader):
    """Reader of what `nsys stats` prints, as CSV, JSON or text: sums by name, which have no timeline."""

    format = "nsys_stats"
    kind = "companion"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the head of a table in a text, the progress that nsys prints before it, or the head of a rule of `nsys
        analyze`, whose reader says what to give."""
        text = "" if b"\0" in head else head.decode("utf-8", "replace")
        return any(pattern.search(text) for pattern in (SUMS_TABLE, PROGRESS, ANALYSIS))

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """The sums of the tables that are read; `UnreadableTrace` where the file holds none of them."""
        from timesink.readers.nsys.stats import read_stats

        return read_stats(path, self.format, limits)


READERS = (NsysSqlite(), NsysReport(), NsysArrow(), NsysStats())


_SECONDS_TO_EXPORT = 3600.0
_LAST_LINES = 3
_EXPORTS_KEPT = 8


def exported(report: Path, cache: Path | None = None) -> Path:
    """The report's export in the cache folder, made if it is not there. `UnreadableTrace` for a raw stream, which
    nsys itself cannot export; `MissingTool` and `ToolFailed` as `export_sqlite` has them.
    """
    from platformdirs import user_cache_path

    from timesink.readers.file import digest_of

    if report.suffix.lower() == ".qdstrm":
        raise UnreadableTrace(
            report,
            "a raw stream that nsys has not yet made a report of",
            remedy=f"run `QdstrmImporter --input-file {report.name}`, which comes with Nsight Systems, "
            "and give timesink the .nsys-rep file",
        )
    folder = cache or user_cache_path("timesink") / "nsys"
    kept = folder / f"{digest_of(report)}.sqlite"
    if kept.is_file():
        os.utime(kept)
        return kept
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(dir=folder, prefix="export-") as scratch:
        export_sqlite(find_nsys(), report, Path(scratch)).replace(kept)
    _forget_old(folder)
    return kept


def _forget_old(folder: Path) -> None:
    """Keep the exports used last; each can be as large as its report several times over."""
    exports = sorted(folder.glob("*.sqlite"), key=lambda file: file.stat().st_mtime, reverse=True)
    for old in exports[_EXPORTS_KEPT:]:
        old.unlink(missing_ok=True)


def find_nsys(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Path | None:
    """The `nsys` to use: on the PATH, in CUDA_HOME or CUDA_PATH, else the newest; Nsight Compute's own comes last."""
    return find_tool("nsys", environment, root)


def export_sqlite(nsys: Path | None, report: Path, folder: Path) -> Path:
    """The report as SQLite in `folder`, which nsys runs in: its file names expand `%`, so ours has none.

    Raises
    ------
    MissingTool
        No `nsys`: the message has the command to run elsewhere.
    ToolFailed
        `nsys` could not export it, for instance because a newer one wrote it.
    """
    if nsys is None:
        raise MissingTool(
            f"reading {report} needs Nsight Systems' nsys, which is not on this machine",
            remedy=f"run `{_by_hand(report)}` where it is installed, and give timesink the .sqlite file",
        )
    target = folder / "export.sqlite"
    options = f"--type sqlite --force-overwrite true --quiet true --output {target.name}"
    status, words = _run([str(nsys), "export", *options.split(), str(report.resolve())], folder)
    if status == 0 and target.is_file() and target.stat().st_size:
        return target
    said = "; ".join(words[-_LAST_LINES:]) or "it said nothing"
    raise ToolFailed(
        f"nsys ({nsys}) ended with status {status} on {report}: {said}", remedy=_remedy(nsys, words, report)
    )


def _run(command: list[str], folder: Path) -> tuple[int, list[str]]:
    """Exit status and lines of a program in a process group of its own, all of which ends with it."""
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolFailed(f"{command[0]} does not start: {error.strerror}", remedy="check the installation") from error
    try:
        output, _ = process.communicate(timeout=_SECONDS_TO_EXPORT)
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(
            f"nsys took more than {_SECONDS_TO_EXPORT:.0f} s to export", remedy="export the report by hand"
        ) from error
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = output.decode(sys.getfilesystemencoding(), errors="replace")
    return process.returncode, [line.strip() for line in text.splitlines() if line.strip()]


def _remedy(nsys: Path, words: list[str], report: Path) -> str:
    said = " ".join(words).lower()
    if "importer" in said and "nsight-compute" in str(nsys):
        host = nsys.parents[1]
        place, target = importer_link(nsys) or (host / "host-linux-x64", "linux-desktop-glibc_2_11_3-x64")
        return (
            "Nsight Compute's nsys lacks a link to its importer; create it with "
            f"`ln -sfn {target} {place}` and install libdw1"
        )
    if "version" in said or "newer" in said:
        return f"use an Nsight Systems at least as new as the one that wrote the report: `{_by_hand(report)}`"
    return f"try it by hand: `{_by_hand(report)}`"


def _by_hand(report: Path) -> str:
    return f"nsys export --type sqlite --output {quote(report.stem + '.sqlite')} {quote(report.name)}"
