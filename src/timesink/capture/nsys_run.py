"""Captures with Nsight Systems: the command line as the installed version takes it, the run, the redacted export.

The report is exported to SQLite by the nsys that wrote it, because only nsys can write its own format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timesink.capture.errors import failure
from timesink.capture.manifest import Capture, check
from timesink.capture.processes import run
from timesink.capture.redaction.nsys_sqlite import redact_sqlite
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
from timesink.untrusted.nvidia_tools import importer_link
from timesink.untrusted.plain_text import is_made_of
from timesink.untrusted.whole_file import whole_file

_EXPORT_TIMEOUT_S = 1800.0
_ENDED_BY_DURATION = (-15, 143)  # nsys ends the program with SIGTERM once --duration is over


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


def nsys(
    program: Sequence[str],
    *,
    steps: int | StepSchedule = 6,
    out: Path | None = None,
    tool: Path | None = None,
    **options: Any,
) -> Capture:
    """Record `steps` steps of any program with Nsight Systems; `tool` is the nsys to use. Raises `CaptureError`.

    Options are the fields of `CaptureSettings` and of `NsysOptions`, by name.
    """
    chosen, settings = split_options("nsys", NsysOptions, steps, out, options)
    return capture_nsys(program, installed_tool("nsys", tool), NsysOptions(**chosen), settings)


def capture_nsys(program: Sequence[str], tool: Tool, options: NsysOptions, settings: CaptureSettings) -> Capture:
    """One report, exported to `report.sqlite`, from which environment, paths and names are removed."""
    by_range = nsys_by_range(program, options, settings)
    argv = nsys_command(tool, options, settings.out.absolute() / "report", program, by_range)
    watched = run_tool(program, argv, tool, settings, range_plan(settings, False) if by_range else None)
    ended, report = watched.ended, settings.out / "report.nsys-rep"
    if by_range:
        refuse_failure(ended, watched.ranks, settings)
    elif ended.status not in (0, *_ENDED_BY_DURATION):
        raise explained(ended, "the program", settings.out)
    if not report.is_file():
        raise explained(ended, tool.title, settings.out)
    database, removed = export(tool, report, settings.keep_report)
    expected = ["CUDA API calls", "kernels"] if "cuda" in options.traces else []
    if by_range and "nvtx" in options.traces:
        expected.append("steps")
    return watched.finish(check(database), expected, removed=removed)


def nsys_by_range(program: Sequence[str], options: NsysOptions, settings: CaptureSettings) -> bool:
    """Whether steps are recorded: not for other than Python programs, whole ones, or servers with a delay."""
    timed = options.duration_s is not None or options.delay_s is not None
    return is_python(program) and not settings.whole and not timed


def nsys_command(tool: Tool, options: NsysOptions, report: Path, program: Sequence[str], by_range: bool) -> list[str]:
    """`by_range`: collect between cudaProfilerStart and Stop only. Raises `CaptureError` for what the version lacks."""
    argv = [str(tool.path), "profile", f"--output={report}", "--force-overwrite=true"]
    argv.append(f"--trace={','.join(_traces(tool, options))}")
    if not options.cpu_samples:
        argv += ["--sample=none", "--cpuctxsw=none"]
    # Without it the raw file holds the symbols of every loaded library: gigabytes for a PyTorch program.
    argv += ["--resolve-symbols=false"] if tool.knows("--resolve-symbols") and not options.cpu_samples else []
    if options.cpu_samples and is_python(program) and tool.knows("--python-sampling"):
        argv.append("--python-sampling=true")  # native stacks of a Python program show its interpreter, and no line
    if options.cuda_graphs == "node" and tool.knows("--cuda-graph-trace"):
        argv.append("--cuda-graph-trace=node")
    if options.memory:
        argv.append(f"{tool.require('--cuda-memory-usage', 'asked for by --memory')}=true")
    if options.gpu_metrics:
        plural = "--gpu-metrics-devices"
        name = plural if tool.knows(plural) else tool.require("--gpu-metrics-device", "asked for by --gpu-metrics")
        argv.append(f"{name}=all")
    if options.delay_s is not None:
        argv.append(f"--delay={options.delay_s:g}")
    if options.duration_s is not None:
        argv += [f"--duration={options.duration_s:g}", "--kill=sigterm"]
    if by_range:
        # Old versions know only one way to end a range, under another name.
        ends = "--capture-range-end=stop" if tool.knows("--capture-range-end") else "--stop-on-range-end=true"
        argv += ["--capture-range=cudaProfilerApi", ends]
    return [*argv, *program]


def _traces(tool: Tool, options: NsysOptions) -> list[str]:
    """The traces asked for; `CaptureError` where the version's help does not name one."""
    wanted = [*options.traces, *(["python-gil"] if options.python_gil else [])]
    for name in wanted:
        if name not in _words(tool.help_text):
            tool.require(f"--trace={name}", "this version cannot trace it")
    return list(dict.fromkeys(wanted))


def _words(text: str) -> list[str]:
    """The words of a help text; a dash is part of one."""
    return "".join(mark if is_made_of(mark, "_-") else " " for mark in text).split()


def export(tool: Tool, report: Path, keep_report: bool) -> tuple[Path, list[str]]:
    """The redacted database next to the report, and what was removed from it.

    The report holds the whole environment of the program, so it is deleted unless it is to be kept.
    """
    database = report.with_suffix(".sqlite")
    argv = [str(tool.path), "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(database)]
    argv += ["--include-json", "true"] if tool.knows("--python-sampling") else []  # holds the stacks that it samples
    log = report.with_name("export.txt")
    ended = run([*argv, str(report)], log, extra={}, timeout_s=_EXPORT_TIMEOUT_S, quiet=True)
    if ended.status != 0 or not database.is_file():
        link = importer_link(tool.path)
        remedy = (
            f"create its importer's link: ln -sfn {link[1]} {link[0]}" if link else f"look at {log}; try `nsys export`"
        )
        words = " / ".join(ended.tail()) or "it said nothing"
        raise failure(f"{tool.title} recorded {report.name} and cannot export it: {words[:300]}", remedy)
    log.unlink()
    with whole_file(database) as part:
        removed = redact_sqlite(database, part)
    if not keep_report:
        report.unlink()
    return database, removed
