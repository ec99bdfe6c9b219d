"""What a capture shows: its files and figures, or the command it would run, or whether it could."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from timesink.cli.output import sink
from timesink.errors import UsageError

if TYPE_CHECKING:
    from timesink.capture.manifest import Capture
    from timesink.capture.running import Settings
    from timesink.capture.tools import Tool


def show_command(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command line, fit to paste into a shell."""
    if not argv:
        raise UsageError("no program to run", remedy="write it after --, such as: -- python train.py")
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    sys.stdout.write(" ".join([*words, shlex.join(argv)]) + "\n")
    return 0


def show_check(settings: Settings, argv: Sequence[str], tool: Tool | None = None) -> int:
    """That nothing stands in the way: the program exists, the tool takes its options, the folder is free."""
    from timesink.capture.running import is_python, ready_folder

    is_python(argv)
    if shutil.which(argv[0]) is None:
        raise UsageError(f"there is no program {argv[0]!r}", remedy="check the path and the spelling")
    existed = settings.out.exists()
    ready_folder(settings.out)
    if not existed:
        settings.out.rmdir()
    named = f"{tool.title} at {tool.path}" if tool is not None else "torch.profiler, in the program"
    sys.stdout.write(f"ready: {named}, into {settings.out}, {settings.steps.total} steps\n")
    return 0


def show_capture(done: Capture) -> None:
    """Files, step times with and without the profiler, what is missing, and what to do with it."""
    from timesink.views.page import Column, Page, Sheet

    files = tuple(
        (
            entry["file"],
            entry["bytes"],
            ", ".join(f"{count} {kind}" for kind, count in entry["counts"].items() if count),
        )
        for entry in done.manifest["files"]
    )
    columns = (Column("file", "file", is_name=True), Column("size", "size", "bytes"), Column("holds", "holds"))
    sheets = [Sheet("files", "Files", columns, files)]
    if done.unprofiled_step_ms is not None or done.profiled_step_ms is not None:
        ratio = None if done.overhead_ratio is None else done.overhead_ratio
        times = (
            Column("unprofiled_step_ms", "without profiler", "ms"),
            Column("profiled_step_ms", "recorded", "ms"),
            Column("overhead_ratio", "longer by", "ratio"),
        )
        row = (done.unprofiled_step_ms, done.profiled_step_ms, ratio)
        sheets.append(Sheet("steps", "Step", times, (row,), "medians; of several ranks the slowest"))
    what = "kernels" if done.manifest["tool"]["name"] == "ncu" else "diagnose"
    target = done.files[0] if what == "kernels" and done.files else done.folder
    notes = (
        *done.missing,
        *done.doubts,
        *([] if done.missing else [f"next: timesink {what} {shlex.quote(str(target))}"]),
    )
    title = f"Captured into {done.folder}" if done.is_complete else f"Incomplete capture in {done.folder}"
    sink(None, None, False).page(Page(title, tuple(sheets), notes))


def finished(done: Capture) -> int:
    """Show the capture; the exit code is 5 where something is missing from it."""
    show_capture(done)
    return 0 if done.is_complete else 5
