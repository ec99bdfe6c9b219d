"""Options that the captures share, declared once; and how they become settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from timesink.capture.running import Settings

STEPS = "Which steps"
RUNNING = "How to run"

Program = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- CMD...", help="The program and its arguments; no shell runs.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="DIR", help="Folder for the capture [default: captures/TIME-TOOL].", show_default=False
    ),
]
Settle = Annotated[int, typer.Option("--settle", metavar="N", help="Steps to warm the program up.")]
Timed = Annotated[int, typer.Option("--timed", metavar="N", help="Steps to time without a profiler.")]
WarmUp = Annotated[int, typer.Option("--warm-up", metavar="N", help="Steps under the profiler that are dropped.")]
Active = Annotated[int, typer.Option("--steps", metavar="N", help="Steps to record.")]
Whole = Annotated[bool, typer.Option("--whole", help="Record the whole program: for programs without steps.")]
Unprofiled = Annotated[
    str,
    typer.Option(
        "--unprofiled",
        metavar="HOW",
        help="Time steps without a profiler: inside (same run, before recording), separate (a run of its own), none.",
    ),
]
AutoRanges = Annotated[
    bool, typer.Option("--auto-ranges", help="Mark data, forward, backward, optimizer and checkpoint (PyTorch).")
]
KeepRunning = Annotated[bool, typer.Option("--keep-running", help="Let the program go on once its steps are recorded.")]
Timeout = Annotated[float, typer.Option("--timeout", metavar="S", help="Longest a run may take, in seconds.")]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--config-file", metavar="FILE", help="Keep the hash of this file; may be repeated.", show_default=False
    ),
]
Print = Annotated[bool, typer.Option("--print", help="Print the command that would run, and stop.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check tool, options and disk, and stop.")]


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of steps, as the options give them."""

    settle: int
    timed: int
    warm_up: int
    active: int


def settings(
    tool: str,
    out: Path | None,
    counts: Counts,
    config_files: Sequence[Path] | None,
    **others: object,
) -> Settings:
    """Settings from options; `others` are fields of `Settings`. `CaptureError` for numbers that make no sense."""
    from timesink.capture.calls import default_folder
    from timesink.capture.errors import CaptureError, Fault
    from timesink.capture.running import Settings
    from timesink.capture.schedule import Steps

    if absent := [path for path in config_files or () if not path.is_file()]:
        raise CaptureError(Fault.REQUEST, f"there is no file {absent[0]}", remedy="check --config-file")
    steps = Steps(counts.settle, counts.timed, counts.warm_up, counts.active)
    where = out if out is not None else default_folder(tool)
    return Settings(where, steps, config_files=tuple(config_files or ()), **others)  # type: ignore[arg-type]
