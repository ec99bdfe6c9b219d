"""What the capture commands share: errors in their words, checks of the tools, and the page of what was captured."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from timesink.capture.errors import CaptureError, Fault
from timesink.cli import asked
from timesink.cli.output import sink
from timesink.errors import MissingTool, TimesinkError, ToolFailed, UsageError
from timesink.units import bytes_text
from timesink.untrusted import scrub

if TYPE_CHECKING:
    from timesink.capture.manifest import Capture
    from timesink.capture.running import CaptureSettings
    from timesink.capture.tools import Tool
    from timesink.views import Page


_KINDS: dict[Fault, type[TimesinkError]] = {
    Fault.REQUEST: UsageError,
    Fault.MISSING: MissingTool,
    Fault.FAILED: ToolFailed,
}


@contextmanager
def translated() -> Iterator[None]:
    """A `CaptureError` in the block leaves it as the error of that kind."""
    try:
        yield
    except CaptureError as error:
        raise _KINDS[error.fault](error.message, remedy=error.remedy) from error


def show_command(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command line, fit to paste into a shell."""
    run = asked.program(argv, "run")
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    sys.stdout.write(" ".join([*words, shlex.join(run)]) + "\n")
    return 0


def show_check(settings: CaptureSettings, argv: Sequence[str], tool: Tool | None = None) -> int:
    """That nothing stands in the way: the program exists, the tool takes its options, the folder is free."""
    from timesink.capture.running import is_python, ready_folder

    is_python(argv)
    if shutil.which(argv[0]) is None:
        raise UsageError(f"there is no program {argv[0]!r}", remedy="check the path and the spelling")
    existed = settings.out.exists()
    ready_folder(settings.out)
    if not existed:
        settings.out.rmdir()
    named = f"{tool.title} at {tool.path}" if tool is not None else _profiler_of(argv)
    marked = _marked(argv)
    sys.stdout.write(f"ready: {named}, into {settings.out}, {settings.steps.total} steps{marked}\n")
    return 0


def _marked(argv: Sequence[str]) -> str:
    """Which ranges the script among the words opens by name, or how they would be marked; "" without a script."""
    from timesink.knowledge.ranges import MARKS

    script = next((path for path in map(Path, argv) if path.suffix == ".py" and path.is_file()), None)
    if script is None:
        return ""
    found = MARKS.findall(script.read_text(encoding="utf-8", errors="replace"))
    if not found:
        return f"; {script.name} itself marks no ranges: --auto-ranges marks data, forward, backward and optimizer"
    names = list(dict.fromkeys(filter(None, found))) or ["named as it runs"]
    return f"; ranges of {script.name}: {scrub(', '.join(names[:8]))}{' and more' if len(names) > 8 else ''}"


def _profiler_of(argv: Sequence[str]) -> str:
    """torch.profiler, with what is known of the PyTorch that it belongs to. `CaptureError` where that is not there."""
    from timesink.capture.tools import check_torch

    known = check_torch(argv, load=True) or "not looked at: the command line does not tell which Python runs"
    return f"torch.profiler ({known})"


def finished(done: Capture) -> int:
    """Show the capture; the exit code is 5 where something is missing from it."""
    sink(None, None, False).show(_page(done))
    return 0 if done.is_complete else 5


def _page(done: Capture) -> Page:
    """Files, step times with and without the profiler, what is missing, and what to do with it."""
    from timesink.views import Page, listed
    from timesink.views.capture import steps_sheet

    files = ((one["file"], one["bytes"], _counted(one["counts"])) for one in done.manifest["files"])
    sheets = [listed("capture.files", files)]
    if done.unprofiled_step_ms is not None or done.profiled_step_ms is not None:
        sheets.append(steps_sheet(done.unprofiled_steps_ms, done.unprofiled_step_ms, done.profiled_step_ms))
    what = "kernels" if done.manifest["tool"]["name"] == "ncu" else "diagnose"
    target = done.files[0] if what == "kernels" and done.files else done.folder
    following = [] if done.missing else [f"next: timesink {what} {shlex.quote(str(target))}"]
    title = f"Captured into {done.folder}" if done.is_complete else f"Incomplete capture in {done.folder}"
    return Page(title, tuple(sheets), (*done.missing, *done.doubts, *_kept(done), *following))


def _kept(done: Capture) -> Iterator[str]:
    """How large a report is that was kept, and what for: people take a small one for a run that was not profiled."""
    report = done.folder / "report.nsys-rep"
    if report.is_file():
        held = " and ".join(filter(None, (_counted(one["counts"]) for one in done.manifest["files"])))
        yield (
            f"{report.name} is {bytes_text(report.stat().st_size)} and holds {held or 'no record'}: its size grows "
            "with the steps that --steps records, and a small one is complete where nothing is missing above"
        )


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
