"""`timesink capture ncu`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timesink.cli.capture import options as given
from timesink.cli.capture.options import translated
from timesink.cli.capture.shown import finished, show_check, show_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from timesink.capture.ncu_run import NcuOptions
    from timesink.capture.running import Settings


def ncu(
    program: given.Program = None,
    out: given.Out = None,
    steps: given.Active = 1,
    settle: given.Settle = 5,
    timed: given.Timed = 10,
    whole: given.Whole = False,
    unprofiled: given.Unprofiled = "none",
    kernels: given.Kernels = None,
    nvtx: given.Nvtx = None,
    launch_skip: given.LaunchSkip = 0,
    launch_count: given.LaunchCount = 30,
    set_name: given.SetName = "detailed",
    metrics: given.MetricNames = None,
    replay: given.Replay = "kernel",
    clocks: given.Clocks = "none",
    caches: given.Caches = "all",
    source: given.Source = False,
    keep_running: given.KeepRunning = False,
    tool: given.Ncu = None,
    timeout: given.Timeout = 3600,
    config_file: given.ConfigFiles = None,
    print_only: given.Print = False,
    dry_run: given.DryRun = False,
) -> int:
    """Why one kernel is slow: Nsight Compute replays the kernels of a step of rank 0 and reads their counters.

    NCCL's kernels are left out: replayed, they hang. Clocks are left alone, so that times are those of the program.
    """
    counts = given.Counts(settle, timed, 0, steps)
    run = {"whole": whole, "unprofiled": unprofiled, "keep_running": keep_running, "timeout_s": timeout}
    with translated():
        from timesink.capture.ncu_run import NcuOptions

        names = tuple(metrics.split(",")) if metrics else ()
        ranges = tuple(nvtx or ())
        chosen = NcuOptions(
            set_name,
            names,
            (),
            kernels,
            ranges,
            launch_skip,
            launch_count,
            replay,
            clocks,
            caches,
            source=source,
        )
        settings = given.settings("ncu", out, counts, config_file, **run)
        return _made(program or (), tool, chosen, settings, "print" if print_only else "check" if dry_run else "run")


def _made(program: Sequence[str], tool: Path | None, chosen: NcuOptions, settings: Settings, what: str) -> int:
    """Print the command, check it, or run it."""
    from timesink.capture.ncu_run import capture_ncu, ncu_by_range, ncu_command
    from timesink.capture.running import agent_environment, range_plan
    from timesink.capture.tools import installed_tool

    found = installed_tool("ncu", tool)
    if what == "run":
        return finished(capture_ncu(program, found, chosen, settings))
    by_range = ncu_by_range(program, settings)
    argv = ncu_command(found, chosen, settings.out / "kernels.ncu-rep", program, by_range)
    if what == "check":
        return show_check(settings, argv, found)
    return show_command(argv, agent_environment(range_plan(settings, True)) if by_range else {})
