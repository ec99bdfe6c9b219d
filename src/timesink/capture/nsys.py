"""The command line of `nsys profile`, as the installed version takes it.

An nsys report as SQLite: exported by the nsys that wrote it, then redacted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from timesink.capture.errors import CaptureError, Fault
from timesink.capture.processes import run
from timesink.capture.redaction.nsys_sqlite import redact_sqlite
from timesink.capture.tools import Tool
from timesink.untrusted.nvidia_tools import importer_link


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


_PATIENCE_S = 1800.0


def exported(tool: Tool, report: Path, keep_report: bool) -> tuple[Path, list[str]]:
    """The redacted database beside the report, and what was removed. The report, which holds the whole environment of
    the program, goes unless it is to be kept.
    """
    database = report.with_suffix(".sqlite")
    argv = [str(tool.path), "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(database)]
    log = report.with_name("export.txt")
    ended = run([*argv, str(report)], log, extra={}, timeout_s=_PATIENCE_S, quiet=True)
    if ended.status != 0 or not database.is_file():
        link = importer_link(tool.path)
        remedy = (
            f"create its importer's link: ln -sfn {link[1]} {link[0]}" if link else f"look at {log}; try `nsys export`"
        )
        words = " / ".join(ended.tail()) or "it said nothing"
        raise CaptureError(
            Fault.FAILED, f"{tool.title} recorded {report.name} and cannot export it: {words[:300]}", remedy=remedy
        )
    log.unlink()
    removed = redact_sqlite(database)
    if not keep_report:
        report.unlink()
    return database, removed
