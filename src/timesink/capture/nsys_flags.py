"""The command line of `nsys profile`, as the installed version takes it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from timesink.capture.tools import Tool


@dataclass(frozen=True, slots=True)
class NsysOptions:
    """What is recorded. `delay_s` and `duration_s` are for servers, which have no steps; None records it all."""

    traces: tuple[str, ...] = ("cuda", "nvtx", "osrt")
    gpu_metrics: bool = False
    python_gil: bool = False
    cuda_graphs: str = "node"
    cpu_samples: bool = False
    memory: bool = False
    delay_s: float | None = None
    duration_s: float | None = None


def nsys_command(tool: Tool, options: NsysOptions, report: Path, program: Sequence[str], by_range: bool) -> list[str]:
    """`by_range`: collect between cudaProfilerStart and Stop only. Raises `CaptureError` for what the version lacks."""
    argv = [str(tool.path), "profile", f"--output={report}", "--force-overwrite=true"]
    argv.append(f"--trace={','.join(_traces(tool, options))}")
    if not options.cpu_samples:
        argv += ["--sample=none", "--cpuctxsw=none"]
    # Without it the raw file holds the symbols of every loaded library: gigabytes for a PyTorch program.
    argv += ["--resolve-symbols=false"] if tool.knows("--resolve-symbols") and not options.cpu_samples else []
    if options.cuda_graphs == "node" and tool.knows("--cuda-graph-trace"):
        argv.append("--cuda-graph-trace=node")
    if options.memory:
        argv.append(f"{tool.require('--cuda-memory-usage', 'asked for by --memory')}=true")
    if options.gpu_metrics:
        plural = "--gpu-metrics-devices"
        name = plural if tool.knows(plural) else tool.require("--gpu-metrics-device", "asked for by --gpu-metrics")
        argv.append(f"{name}=all")
    argv += _window(tool, options, by_range)
    return [*argv, *program]


def _window(tool: Tool, options: NsysOptions, by_range: bool) -> list[str]:
    words = []
    if options.delay_s is not None:
        words.append(f"--delay={options.delay_s:g}")
    if options.duration_s is not None:
        words.append(f"--duration={options.duration_s:g}")
        words.append("--kill=sigterm")
    if by_range:
        words.append("--capture-range=cudaProfilerApi")
        # Old versions know only one way to end a range, under another name.
        words += ["--capture-range-end=stop"] if tool.knows("--capture-range-end") else ["--stop-on-range-end=true"]
    return words


def _traces(tool: Tool, options: NsysOptions) -> list[str]:
    """The traces asked for; optional ones only where the version's help names them."""
    wanted = [*options.traces, *(["python-gil"] if options.python_gil else [])]
    for name in wanted:
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", tool.help_text):
            tool.require(f"--trace={name}", "this version cannot trace it")
    return list(dict.fromkeys(wanted))
