"""Captures with torch.profiler, Nsight Systems and Nsight Compute: options, command line, run and what is expected.

torch.profiler is run by the agent inside the program, one trace per rank. nsys and ncu get the options that the
installed version takes. An nsys report is exported to SQLite by the nsys that wrote it, because only nsys can write its
own format, and the export is redacted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.errors import failure, refused
from timesink.capture.manifest import Capture, Checked, check
from timesink.capture.processes import run
from timesink.capture.running import (
    CaptureSettings,
    ended_ranks,
    explained,
    is_python,
    range_plan,
    ready_folder,
    refuse_failure,
    refuse_unrecorded,
    run_tool,
    run_watched,
    split_options,
    statuses,
    torch_records,
    write_manifest,
)
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule
from timesink.capture.tools import Tool, check_torch, installed_tool
from timesink.untrusted.nvidia_tools import importer_link
from timesink.untrusted.scrub import is_made_of
from timesink.untrusted.whole_file import whole_file


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """What torch.profiler records. Stacks cost most: they can double a step."""

    shapes: bool = True
    stacks: bool = False
    memory: bool = False


def torch(program: Sequence[str], *, steps: int | StepSchedule = 6, out: Path | None = None, **options: Any) -> Capture:
    """Record `steps` steps of a PyTorch program with torch.profiler, one file per rank.

    Options are the fields of `CaptureSettings` and of `TorchOptions`, by name.

    Raises
    ------
    CaptureError
        Nothing was recorded; the message says why and the remedy what to do.
    """
    chosen, settings = split_options("torch", TorchOptions, steps, out, options)
    return capture_torch(program, TorchOptions(**chosen), settings)


def torch_plan(options: TorchOptions, settings: CaptureSettings) -> AgentPlan:
    """The agent's orders; steps are timed in the captured process, where no profiler is loaded yet."""
    timed = 0 if settings.unprofiled == "none" else settings.steps.timed
    return AgentPlan(
        Mode.TORCH,
        str(settings.out.absolute()),
        replace(settings.steps, timed=timed),
        whole=settings.whole,
        stop=not settings.keep_running,
        auto_ranges=settings.auto_ranges,
        shapes=options.shapes,
        stacks=options.stacks,
        memory=options.memory,
    )


def capture_torch(program: Sequence[str], options: TorchOptions, settings: CaptureSettings) -> Capture:
    """One trace per rank, `rank<N>.json.gz`."""
    if not is_python(program):
        raise refused(f"{program[0]!r} is no Python program", "capture it with nsys, which takes any program")
    ready_folder(settings.out)
    check_torch(program)
    plan = torch_plan(options, settings)
    known = manifests.surroundings(program, settings.config_files, settings.facts)
    ended = run_watched(program, plan, settings, "torch")
    refuse_failure(ended, statuses(settings.out), settings)
    return _checked(plan, settings, {**known, "seconds": round(ended.seconds, 3)})


def finish_in_process(plan: AgentPlan) -> Capture:
    """The capture that an agent in this process has made, once the other ranks have ended theirs."""
    settings = CaptureSettings(Path(plan.folder), plan.steps)
    refuse_unrecorded(ended_ranks(settings.out), settings)
    return _checked(plan, settings, manifests.surroundings(sys.argv, ()))


def _checked(plan: AgentPlan, settings: CaptureSettings, known: dict[str, Any]) -> Capture:
    ranks = statuses(settings.out)
    checked = [check(settings.out / f"rank{rank['rank']}.json.gz") for rank in ranks]
    tool = {"name": "torch", "plan": {**asdict(plan), "mode": plan.mode.value, "folder": ""}}
    known = {**known, "tool": tool, **settings.stated}
    return write_manifest(settings.out, known, checked, torch_records(ranks, steps=not plan.whole), ranks)


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
    from timesink.capture.redaction.nsys_sqlite import redact_sqlite

    with whole_file(database) as part:
        removed = redact_sqlite(database, part)
    if not keep_report:
        report.unlink()
    return database, removed
