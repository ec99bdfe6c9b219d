"""`timesink capture nsys`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timesink.cli.capture import options as given
from timesink.cli.capture.options import translated
from timesink.cli.capture.shown import finished, show_check, show_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from timesink.capture.nsys_run import NsysOptions
    from timesink.capture.running import Settings


def nsys(
    program: given.Program = None,
    out: given.Out = None,
    steps: given.Active = 6,
    settle: given.Settle = 5,
    timed: given.Timed = 10,
    warm_up: given.WarmUp = 2,
    whole: given.Whole = False,
    unprofiled: given.Unprofiled = "inside",
    trace: given.Trace = "cuda,nvtx,osrt",
    gpu_metrics: given.GpuMetrics = False,
    python_gil: given.PythonGil = False,
    cpu_samples: given.CpuSamples = False,
    memory: given.Memory = False,
    whole_graphs: given.WholeGraphs = False,
    delay: given.Delay = None,
    duration: given.Duration = None,
    auto_ranges: given.AutoRanges = False,
    keep_running: given.KeepRunning = False,
    keep_report: given.KeepReport = False,
    tool: given.Nsys = None,
    timeout: given.Timeout = 3600,
    config_file: given.ConfigFiles = None,
    print_only: given.Print = False,
    dry_run: given.DryRun = False,
) -> int:
    """Where the gaps are: Nsight Systems, any program, all processes in one report.

    The report is exported to SQLite and redacted. Programs that are not Python are recorded whole, as are servers, with
    --delay and --duration.
    """
    counts = given.Counts(settle, timed, warm_up, steps)
    run = {"whole": whole, "auto_ranges": auto_ranges, "keep_running": keep_running, "timeout_s": timeout}
    with translated():
        from timesink.capture.nsys_run import NsysOptions

        traces = tuple(part.strip() for part in trace.split(","))
        graphs = "graph" if whole_graphs else "node"
        chosen = NsysOptions(traces, gpu_metrics, python_gil, graphs, cpu_samples, memory, delay, duration)
        kept = {"unprofiled": unprofiled, "keep_report": keep_report}
        settings = given.settings("nsys", out, counts, config_file, **run, **kept)
        return _made(program or (), tool, chosen, settings, "print" if print_only else "check" if dry_run else "run")


def _made(program: Sequence[str], tool: Path | None, chosen: NsysOptions, settings: Settings, what: str) -> int:
    """Print the command, check it, or run it."""
    from timesink.capture.nsys_run import capture_nsys, nsys_by_range, nsys_command
    from timesink.capture.running import agent_environment, range_plan
    from timesink.capture.tools import installed_tool

    found = installed_tool("nsys", tool)
    if what == "run":
        return finished(capture_nsys(program, found, chosen, settings))
    by_range = nsys_by_range(program, chosen, settings)
    argv = nsys_command(found, chosen, settings.out / "report", program, by_range)
    if what == "check":
        return show_check(settings, argv, found)
    return show_command(argv, agent_environment(range_plan(settings, False)) if by_range else {})
