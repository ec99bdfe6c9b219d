"""Captures with Nsight Compute: the command line as the installed version takes it, and the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timesink.capture.errors import refused
from timesink.capture.manifest import Capture, Checked, check
from timesink.capture.running import (
    CaptureSettings,
    explained,
    is_python,
    range_plan,
    refuse_failure,
    run_tool,
    split_options,
)
from timesink.capture.schedule import StepSchedule
from timesink.capture.tools import Tool, installed_tool

# Kernels of NCCL and NVSHMEM wait for other ranks: replayed, or held back while another rank is replayed, they hang.
NO_COMMUNICATION = "regex:^(?!.*(nccl|nvshmem))"
# The set "rules": the sections whose counters timesink's kernel rules read; about half the passes of "full".
RULE_SECTIONS = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "SpeedOfLight_HierarchicalTensorRooflineChart",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "LaunchStats",
    "Occupancy",
)
_CHOICES = {
    "replay": ("kernel", "application", "range", "app-range"),
    "clock_control": ("none", "base"),
    "cache_control": ("all", "none"),
    "graphs": ("node", "graph"),
}


@dataclass(frozen=True, slots=True)
class NcuOptions:
    """What is profiled of which kernels.

    `clock_control` "none" times kernels at the clocks the program really runs at; "base" locks them, which compares
    better and is not what users see. `metrics` replaces the set, as do `sections`. `kernels` is a regular expression on
    function names.
    """

    set_name: str = "detailed"
    metrics: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    kernels: str | None = None
    nvtx: tuple[str, ...] = ()
    launch_skip: int = 0
    launch_count: int | None = 30
    replay: str = "kernel"
    clock_control: str = "none"
    cache_control: str = "all"
    graphs: str = "node"
    source: bool = False

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise refused(
                    f"ncu's {name.replace('_', ' ')} cannot be {getattr(self, name)!r}",
                    f"choose from: {', '.join(choices)}",
                )


def ncu(
    program: Sequence[str],
    *,
    steps: int | StepSchedule = 1,
    out: Path | None = None,
    tool: Path | None = None,
    **options: Any,
) -> Capture:
    """Profile kernels of `steps` steps with Nsight Compute; `tool` is the ncu to use. Raises `CaptureError`.

    Options are the fields of `CaptureSettings` and of `NcuOptions`, by name.
    """
    chosen, settings = split_options("ncu", NcuOptions, steps, out, options)
    return capture_ncu(program, installed_tool("ncu", tool), NcuOptions(**chosen), settings)


def capture_ncu(program: Sequence[str], tool: Tool, options: NcuOptions, settings: CaptureSettings) -> Capture:
    """One report of profiled kernels, `kernels.ncu-rep`."""
    by_range = ncu_by_range(program, settings)
    report = settings.out.absolute() / "kernels.ncu-rep"
    argv = ncu_command(tool, options, report, program, by_range)
    watched = run_tool(program, argv, tool, settings, range_plan(settings, True) if by_range else None)
    ended = watched.ended
    if "ERR_NVGPUCTRPERM" in ended.said():
        raise explained(ended, tool.title, settings.out)
    if by_range:
        refuse_failure(ended, watched.ranks, settings)
    elif ended.status != 0:
        raise explained(ended, "the program", settings.out)
    if not report.is_file() and "No kernels were profiled" not in ended.said():
        raise explained(ended, tool.title, settings.out)
    profiled = check(report) if report.is_file() else Checked(report, 0, {}, nothing_profiled(options, by_range))
    return watched.finish(profiled, ["kernel profiles"])


def nothing_profiled(options: NcuOptions, by_range: bool) -> str:
    """Why ncu found no kernel: how many it was to skip, of which name, and where it looked."""
    of_name = f" that matches {options.kernels}" if options.kernels else ""
    after = f" after the first {options.launch_skip} (--launch-skip)" if options.launch_skip else ""
    where = "in the recorded steps (--whole counts from the start of the program)" if by_range else "in the program"
    return f"no kernel{of_name} was launched{after} {where}"


def ncu_by_range(program: Sequence[str], settings: CaptureSettings) -> bool:
    """Whether steps are profiled: not for other than Python programs, nor for whole ones."""
    return is_python(program) and not settings.whole


def ncu_command(tool: Tool, options: NcuOptions, report: Path, program: Sequence[str], by_range: bool) -> list[str]:
    """`by_range`: profile between cudaProfilerStart and Stop only. Raises `CaptureError` for what the version lacks."""
    argv = [str(tool.path), "--export", str(report), "--force-overwrite", "--target-processes", "all"]
    argv += ["--kernel-name-base", "function"]
    argv += ["--kernel-name", f"regex:{options.kernels}" if options.kernels else NO_COMMUNICATION]
    argv += _metrics(options)
    if options.nvtx:
        argv.append("--nvtx")
        argv += [word for range_ in options.nvtx for word in ("--nvtx-include", range_)]
    if options.launch_skip:
        argv += ["--launch-skip", str(options.launch_skip)]
    if options.launch_count is not None:
        argv += ["--launch-count", str(options.launch_count)]
    argv += ["--replay-mode", options.replay, "--clock-control", options.clock_control]
    argv += ["--cache-control", options.cache_control]
    if options.graphs == "graph":
        argv += [tool.require("--graph-profiling", "asked for by --graphs graph"), "graph"]
    argv += ["--import-source", "on" if options.source else "off"] if tool.knows("--import-source") else []
    if by_range:
        argv += ["--profile-from-start", "off"]
    return [*argv, *program]


def _metrics(options: NcuOptions) -> list[str]:
    """Metrics, else sections, else a set."""
    if options.metrics:
        return ["--metrics", ",".join(options.metrics)]
    sections = options.sections or (RULE_SECTIONS if options.set_name == "rules" else ())
    if sections:
        return [word for section in sections for word in ("--section", section)]
    return ["--set", options.set_name]
