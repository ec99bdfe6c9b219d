"""A report's SQLite export, made by `nsys` and kept in the user's cache folder, named by the digest of the report."""

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

from timesink.errors import MissingTool, ToolFailed, UnreadableTrace
from timesink.readers.cache import digest_of
from timesink.untrusted.nvidia_tools import find_tool, importer_link

_SECONDS_TO_EXPORT = 3600.0
_LAST_LINES = 3


_EXPORTS_KEPT = 8


def exported(report: Path, cache: Path | None = None) -> Path:
    """The report's export in the cache folder, made if it is not there. `UnreadableTrace` for a raw stream, which
    nsys itself cannot export; `MissingTool` and `ToolFailed` as `export_sqlite` has them.
    """
    from platformdirs import user_cache_path

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
