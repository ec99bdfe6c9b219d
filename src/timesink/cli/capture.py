"""`timesink capture`: run a program under the right profiler, with the right flags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from timesink.cli import capture_options as given
from timesink.cli.capture_errors import translated
from timesink.cli.capture_sheets import show_capture, show_check, show_command

if TYPE_CHECKING:
    from timesink.capture.captured import Capture

app = typer.Typer(
    help="Record a program with torch.profiler, nsys or ncu.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("torch")
def torch(
    program: given.Program = None,
    out: given.Out = None,
    steps: given.Active = 6,
    settle: given.Settle = 5,
    timed: given.Timed = 10,
    warm_up: given.WarmUp = 2,
    whole: given.Whole = False,
    stacks: Annotated[bool, typer.Option("--stacks", help="Record Python stacks: slow, but names lines.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Record allocations.")] = False,
    shapes: Annotated[bool, typer.Option("--shapes/--no-shapes", help="Record shapes of operands.")] = True,
    auto_ranges: given.AutoRanges = False,
    keep_running: given.KeepRunning = False,
    timeout: given.Timeout = 3600,
    config_file: given.ConfigFiles = None,
    print_only: given.Print = False,
    dry_run: given.DryRun = False,
) -> int:
    """Which operator, which line: PyTorch's own profiler, one trace per rank, no change to the script.

    torchrun, srun and mpirun work. A step ends at timesink.step(), else at the program's own profiler.step(), else at
    the first optimizer's step, else (inference) at a call of the outermost module.
    """
    with translated():
        from timesink.capture.running import agent_environment
        from timesink.capture.torch_run import TorchOptions, capture_torch, torch_plan

        chosen = TorchOptions(shapes, stacks, memory)
        settings = given.settings(
            "torch",
            out,
            given.Counts(settle, timed, warm_up, steps),
            config_file,
            whole=whole,
            auto_ranges=auto_ranges,
            keep_running=keep_running,
            timeout_s=timeout,
        )
        if print_only:
            return show_command(program or (), agent_environment(torch_plan(chosen, settings)))
        if dry_run:
            return show_check(settings, program or ())
        return finished(capture_torch(program or (), chosen, settings))


@app.command("nsys")
def nsys(
    program: given.Program = None,
    out: given.Out = None,
    steps: given.Active = 6,
    settle: given.Settle = 5,
    timed: given.Timed = 10,
    warm_up: given.WarmUp = 2,
    whole: given.Whole = False,
    unprofiled: given.Unprofiled = "inside",
    trace: Annotated[str, typer.Option("--trace", metavar="A,B", help="What nsys traces.")] = "cuda,nvtx,osrt",
    gpu_metrics: Annotated[bool, typer.Option("--gpu-metrics", help="Sample GPU counters (needs permission).")] = False,
    python_gil: Annotated[bool, typer.Option("--python-gil", help="Trace Python's interpreter lock.")] = False,
    cpu_samples: Annotated[bool, typer.Option("--cpu-samples", help="Sample CPU stacks: large reports.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Trace GPU memory use.")] = False,
    whole_graphs: Annotated[bool, typer.Option("--whole-graphs", help="One record per CUDA graph launch.")] = False,
    delay: Annotated[float | None, typer.Option("--delay", metavar="S", help="For servers: wait.")] = None,
    duration: Annotated[float | None, typer.Option("--duration", metavar="S", help="For servers: record.")] = None,
    auto_ranges: given.AutoRanges = False,
    keep_running: given.KeepRunning = False,
    keep_report: Annotated[
        bool, typer.Option("--keep-report", help="Keep the .nsys-rep, which holds your whole environment.")
    ] = False,
    tool: Annotated[Path | None, typer.Option("--nsys", metavar="PATH", help="This nsys.")] = None,
    timeout: given.Timeout = 3600,
    config_file: given.ConfigFiles = None,
    print_only: given.Print = False,
    dry_run: given.DryRun = False,
) -> int:
    """Where the gaps are: Nsight Systems, any program, all processes in one report.

    The report is exported to SQLite and redacted. Programs that are not Python are recorded whole, as are servers, with
    --delay and --duration.
    """
    with translated():
        from timesink.capture.nsys_flags import NsysOptions, nsys_command
        from timesink.capture.running import agent_environment
        from timesink.capture.tool_runs import capture_nsys, nsys_by_range, range_plan
        from timesink.capture.tools import installed

        chosen = NsysOptions(
            tuple(part.strip() for part in trace.split(",")),
            gpu_metrics,
            python_gil,
            "graph" if whole_graphs else "node",
            cpu_samples,
            memory,
            delay,
            duration,
        )
        settings = given.settings(
            "nsys",
            out,
            given.Counts(settle, timed, warm_up, steps),
            config_file,
            whole=whole,
            unprofiled=unprofiled,
            auto_ranges=auto_ranges,
            keep_running=keep_running,
            keep_report=keep_report,
            timeout_s=timeout,
        )
        found = installed("nsys", tool)
        if print_only or dry_run:
            by_range = nsys_by_range(program or (), chosen, settings)
            argv = nsys_command(found, chosen, settings.out / "report", program or (), by_range)
            if dry_run:
                return show_check(settings, argv, found)
            return show_command(argv, agent_environment(range_plan(settings, False)) if by_range else {})
        return finished(capture_nsys(program or (), found, chosen, settings))


@app.command("ncu")
def ncu(
    program: given.Program = None,
    out: given.Out = None,
    steps: given.Active = 1,
    settle: given.Settle = 5,
    timed: given.Timed = 10,
    whole: given.Whole = False,
    unprofiled: given.Unprofiled = "none",
    kernels: Annotated[str | None, typer.Option("--kernels", metavar="REGEX", help="Only kernels like this.")] = None,
    nvtx: Annotated[list[str] | None, typer.Option("--nvtx", metavar="RANGE", help="Only in this NVTX range.")] = None,
    launch_skip: Annotated[int, typer.Option("--launch-skip", metavar="N", help="Leave out the first.")] = 0,
    launch_count: Annotated[int, typer.Option("--launch-count", metavar="N", help="Most kernels to profile.")] = 30,
    set_name: Annotated[
        str,
        typer.Option(
            "--set", metavar="NAME", help="basic, detailed, full, roofline; rules: what timesink's rules need."
        ),
    ] = "detailed",
    metrics: Annotated[
        str | None, typer.Option("--metrics", metavar="A,B", help="These metrics instead of a set.")
    ] = None,
    replay: Annotated[str, typer.Option("--replay", metavar="MODE", help="kernel, application, range.")] = "kernel",
    clock_control: Annotated[
        str, typer.Option("--clocks", metavar="HOW", help="none: as the program runs; base: locked, and slower.")
    ] = "none",
    cache_control: Annotated[str, typer.Option("--caches", metavar="HOW", help="all: flushed; none: warm.")] = "all",
    source: Annotated[bool, typer.Option("--source", help="Keep the source in the report: large.")] = False,
    keep_running: given.KeepRunning = False,
    tool: Annotated[Path | None, typer.Option("--ncu", metavar="PATH", help="This ncu.")] = None,
    timeout: given.Timeout = 3600,
    config_file: given.ConfigFiles = None,
    print_only: given.Print = False,
    dry_run: given.DryRun = False,
) -> int:
    """Why one kernel is slow: Nsight Compute replays the kernels of a step of rank 0 and reads their counters.

    NCCL's kernels are left out: replayed, they hang. Clocks are left alone, so that times are those of the program.
    """
    with translated():
        from timesink.capture.ncu_flags import NcuOptions, ncu_command
        from timesink.capture.running import agent_environment
        from timesink.capture.tool_runs import capture_ncu, ncu_by_range, range_plan
        from timesink.capture.tools import installed

        chosen = NcuOptions(
            set_name,
            tuple(metrics.split(",")) if metrics else (),
            (),
            kernels,
            tuple(nvtx or ()),
            launch_skip,
            launch_count,
            replay,  # type: ignore[arg-type]
            clock_control,  # type: ignore[arg-type]
            cache_control,  # type: ignore[arg-type]
            source=source,
        )
        settings = given.settings(
            "ncu",
            out,
            given.Counts(settle, timed, 0, steps),
            config_file,
            whole=whole,
            unprofiled=unprofiled,
            keep_running=keep_running,
            timeout_s=timeout,
        )
        found = installed("ncu", tool)
        if print_only or dry_run:
            by_range = ncu_by_range(program or (), settings)
            argv = ncu_command(found, chosen, settings.out / "kernels.ncu-rep", program or (), by_range)
            if dry_run:
                return show_check(settings, argv, found)
            return show_command(argv, agent_environment(range_plan(settings, True)) if by_range else {})
        return finished(capture_ncu(program or (), found, chosen, settings))


def finished(done: Capture) -> int:
    """Show the capture; exit with 5 where something is missing from it."""
    show_capture(done)
    return 0 if done.is_complete else 5
