"""Finding `nsys`, and having it export a report."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from timesink.errors import MissingTool, ToolFailed
from timesink.untrusted.nvidia_tools import find_tool, importer_link

_SECONDS_TO_EXPORT = 3600.0
_LAST_LINES = 3


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
    command = [
        str(nsys),
        "export",
        "--type",
        "sqlite",
        "--force-overwrite",
        "true",
        "--quiet",
        "true",
        "--output",
        target.name,
    ]
    status, words = _run([*command, str(report.resolve())], folder)
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
