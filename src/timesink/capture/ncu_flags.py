"""The command line of `ncu`, as the installed version takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from timesink.capture.tools import Tool

# Kernels of NCCL and NVSHMEM wait for other ranks: replayed, or held back while another rank is replayed, they hang.
NO_COMMUNICATION = "regex:^(?!.*(nccl|nvshmem))"


@dataclass(frozen=True, slots=True)
class NcuOptions:
    """What is profiled of which kernels.

    `clock_control` "none" times kernels at the clocks the program really runs at; "base" locks them, which compares
    better and is not what users see. `metrics` replaces the set. `kernels` is a regular expression on function names.
    """

    set_name: str | None = "detailed"
    metrics: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    kernels: str | None = None
    nvtx: tuple[str, ...] = ()
    launch_skip: int = 0
    launch_count: int | None = 30
    replay: Literal["kernel", "application", "range", "app-range"] = "kernel"
    clock_control: Literal["base", "none"] = "none"
    cache_control: Literal["all", "none"] = "all"
    graphs: Literal["node", "graph"] = "node"
    source: bool = False


def ncu_command(tool: Tool, options: NcuOptions, report: Path, program: Sequence[str], by_range: bool) -> list[str]:
    """`by_range`: profile between cudaProfilerStart and Stop only. Raises `CaptureError` for what the version lacks."""
    argv = [str(tool.path), "--export", str(report), "--force-overwrite", "--target-processes", "all"]
    argv += ["--kernel-name", f"regex:{options.kernels}" if options.kernels else NO_COMMUNICATION]
    if options.metrics:
        argv += ["--metrics", ",".join(options.metrics)]
    for section in options.sections:
        argv += ["--section", section]
    if options.set_name and not (options.metrics or options.sections):
        argv += ["--set", options.set_name]
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
