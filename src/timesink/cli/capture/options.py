"""Options that the captures share, declared once; and how they become settings.

Errors of captures, which stand alone, as the errors that the command line shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.capture.errors import CaptureError, Fault
from timesink.errors import MissingTool, TimesinkError, ToolFailed, UsageError

if TYPE_CHECKING:
    from timesink.capture.running import Settings

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
Trace = Annotated[str, typer.Option("--trace", metavar="A,B", help="What nsys traces.")]
GpuMetrics = Annotated[bool, typer.Option("--gpu-metrics", help="Sample GPU counters (needs permission).")]
PythonGil = Annotated[bool, typer.Option("--python-gil", help="Trace Python's interpreter lock.")]
CpuSamples = Annotated[bool, typer.Option("--cpu-samples", help="Sample CPU stacks: large reports.")]
Memory = Annotated[bool, typer.Option("--memory", help="Record allocations and memory use.")]
WholeGraphs = Annotated[bool, typer.Option("--whole-graphs", help="One record per CUDA graph launch.")]
Delay = Annotated[float | None, typer.Option("--delay", metavar="S", help="For servers: wait.", show_default=False)]
Duration = Annotated[
    float | None, typer.Option("--duration", metavar="S", help="For servers: record.", show_default=False)
]
KeepReport = Annotated[
    bool, typer.Option("--keep-report", help="Keep the .nsys-rep, which holds your whole environment.")
]
Nsys = Annotated[Path | None, typer.Option("--nsys", metavar="PATH", help="This nsys.", show_default=False)]
Ncu = Annotated[Path | None, typer.Option("--ncu", metavar="PATH", help="This ncu.", show_default=False)]
Kernels = Annotated[
    str | None, typer.Option("--kernels", metavar="REGEX", help="Only kernels like this.", show_default=False)
]
Nvtx = Annotated[
    list[str] | None, typer.Option("--nvtx", metavar="RANGE", help="Only in this NVTX range.", show_default=False)
]
LaunchSkip = Annotated[int, typer.Option("--launch-skip", metavar="N", help="Kernels to leave out first.")]
LaunchCount = Annotated[int, typer.Option("--launch-count", metavar="N", help="Most kernels to profile.")]
SetName = Annotated[
    str,
    typer.Option("--set", metavar="NAME", help="basic, detailed, full, roofline; rules: what timesink's rules need."),
]
MetricNames = Annotated[
    str | None, typer.Option("--metrics", metavar="A,B", help="These metrics instead of a set.", show_default=False)
]
Replay = Annotated[str, typer.Option("--replay", metavar="MODE", help="kernel, application, range, app-range.")]
Clocks = Annotated[
    str, typer.Option("--clocks", metavar="HOW", help="none: as the program runs; base: locked, and slower.")
]
Caches = Annotated[str, typer.Option("--caches", metavar="HOW", help="all: flushed before each replay; none: warm.")]
Source = Annotated[bool, typer.Option("--source", help="Keep the source in the report: large.")]
Stacks = Annotated[bool, typer.Option("--stacks", help="Record Python stacks: slow, but names lines.")]
Shapes = Annotated[bool, typer.Option("--shapes/--no-shapes", help="Record shapes of operands.")]
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
    from timesink.capture.errors import CaptureError, Fault
    from timesink.capture.running import Settings, default_folder
    from timesink.capture.schedule import StepSchedule

    if absent := [path for path in config_files or () if not path.is_file()]:
        raise CaptureError(Fault.REQUEST, f"there is no file {absent[0]}", remedy="check --config-file")
    steps = StepSchedule(counts.settle, counts.timed, counts.warm_up, counts.active)
    where = out if out is not None else default_folder(tool)
    return Settings(where, steps, config_files=tuple(config_files or ()), **others)  # type: ignore[arg-type]


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
