"""Captures with torch.profiler, Nsight Systems and Nsight Compute: one run, with settings for each of them.

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
from timesink.capture import running
from timesink.capture.errors import failure, refused
from timesink.capture.manifest import Capture, Checked, check
from timesink.capture.processes import Ended, Setting, run
from timesink.capture.running import CaptureSettings, explain_failure, is_python
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule
from timesink.capture.tools import Tool, check_torch, find_installed
from timesink.untrusted import is_made_of
from timesink.untrusted.masking import stored_command
from timesink.untrusted.nvidia_tools import importer_link
from timesink.untrusted.whole_file import whole_file


def torch(program: Sequence[str], *, steps: int | StepSchedule = 6, out: Path | None = None, **options: Any) -> Capture:
    """Record `steps` steps of a PyTorch program with torch.profiler, one file per rank.

    Options are the fields of `CaptureSettings` and of `TorchOptions`, by name.

    Raises
    ------
    CaptureError
        Nothing was recorded; the message says why and the remedy what to do.
    """
    chosen, settings = running.split_options("torch", TorchOptions, steps, out, options)
    return Recording(program, TorchOptions(**chosen), settings).make()


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
    chosen, settings = running.split_options("nsys", NsysOptions, steps, out, options)
    return Recording(program, NsysOptions(**chosen), settings, find_installed("nsys", tool)).make()


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
    chosen, settings = running.split_options("ncu", NcuOptions, steps, out, options)
    return Recording(program, NcuOptions(**chosen), settings, find_installed("ncu", tool)).make()


@dataclass(frozen=True, slots=True)
class Recording:
    """A capture that is to be made: the program, what is recorded of it and how; `tool` runs it, None for torch."""

    program: Sequence[str]
    options: TorchOptions | NsysOptions | NcuOptions
    settings: CaptureSettings
    tool: Tool | None = None

    @property
    def plan(self) -> AgentPlan | None:
        """The agent's orders; None where the program is recorded without it."""
        return self.options.plan(self.program, self.settings)

    def argv(self, out: Path) -> list[str]:
        """The command line that records into the folder. `CaptureError` for an option that the tool does not have."""
        if self.tool is None or isinstance(self.options, TorchOptions):
            return [*self.program]
        return self.options.command(self.tool, out, self.program, by_range=self.plan is not None)

    def make(self) -> Capture:
        """Run the program in a fresh folder, and keep what was recorded with its manifest.

        Where steps are recorded and the settings want it, the program is first timed alone, in a run of its own.
        """
        settings, plan, tool = self.settings, self.plan, self.tool
        if tool is None and not is_python(self.program):
            raise refused(f"{self.program[0]!r} is no Python program", "capture it with nsys, which takes any program")
        argv = self.argv(settings.out.absolute())
        running.ready_folder(settings.out)
        if tool is None:
            check_torch(self.program)
        known = manifests.surroundings(self.program, settings.config_files, settings.facts)
        times = {}
        if tool is not None and plan is not None and settings.unprofiled == "separate":
            alone = running.run_unprofiled(self.program, settings)
            times = {rank["rank"]: {"unprofiled": rank["unprofiled"]} for rank in alone if rank.get("unprofiled")}
        ended = running.run_watched(argv, plan, settings, "torch" if tool is None else tool.name)
        ranks = [{**rank, **times.get(rank["rank"], {})} for rank in running.read_statuses(settings.out)]
        if tool is not None and tool.name == "ncu" and "ERR_NVGPUCTRPERM" in ended.said():
            raise explain_failure(ended, tool.title, settings.out)
        if plan is not None:
            running.refuse_failure(ended, ranks, settings)
        elif ended.status not in self.options.good_ends:
            raise explain_failure(ended, "the program", settings.out)
        known["seconds"] = round(ended.seconds, 3)
        return self._keep(known, ranks, argv, ended)

    def finish_in_process(self) -> Capture:
        """The capture that an agent in this process has made, once the other ranks have ended theirs."""
        running.refuse_unrecorded(running.wait_for_ranks(self.settings.out), self.settings)
        return self._keep(manifests.surroundings(sys.argv, ()), running.read_statuses(self.settings.out))

    def _keep(
        self, known: dict[str, Any], ranks: list[dict[str, Any]], argv: Sequence[str] = (), ended: Ended | None = None
    ) -> Capture:
        """Write the manifest, with the tool and its command, secrets and the capture's folder taken out."""
        settings, tool, options = self.settings, self.tool, self.options
        if tool is None or ended is None or isinstance(options, TorchOptions):
            plan = self.plan
            assert plan is not None
            said: dict[str, Any] = {"plan": {**asdict(plan), "mode": plan.mode.value, "folder": ""}}
            checked = [check(settings.out / f"rank{rank['rank']}.json.gz") for rank in ranks]
            expected = running.torch_records(ranks, steps=not plan.whole)
        else:
            command = stored_command([word.replace(str(settings.out.absolute()), "OUT") for word in argv])
            one, expected, facts = options.collect(tool, settings, ended, by_range=self.plan is not None)
            said, checked = {"version": tool.version, "command": command, **facts}, [one]
        known["tool"] = {"name": "torch" if tool is None else tool.name, **said}
        return running.write_manifest(settings.out, known | settings.stated, checked, expected, ranks)


def _range_plan(settings: CaptureSettings, *, first_rank_only: bool) -> AgentPlan:
    """The agent's orders under nsys and (first rank only) ncu: steps are timed here unless in a run of their own."""
    timed = settings.steps.timed if settings.unprofiled == "inside" else 0
    return AgentPlan(
        Mode.RANGE,
        str(settings.out.absolute()),
        replace(settings.steps, timed=timed),
        stop=not settings.keep_running,
        auto_ranges=settings.auto_ranges,
        first_rank_only=first_rank_only,
        early=not first_rank_only,
    )


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """What torch.profiler records. Stacks cost most: they can double a step."""

    shapes: bool = True
    stacks: bool = False
    memory: bool = False

    good_ends = (0,)

    def plan(self, program: Sequence[str], settings: CaptureSettings) -> AgentPlan:
        """The agent's orders; steps are timed in the captured process, where no profiler is loaded yet."""
        timed = 0 if settings.unprofiled == "none" else settings.steps.timed
        return AgentPlan(
            Mode.TORCH,
            str(settings.out.absolute()),
            replace(settings.steps, timed=timed),
            whole=settings.whole,
            stop=not settings.keep_running,
            auto_ranges=settings.auto_ranges,
            **asdict(self),
        )


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

    good_ends = (0, -15, 143)  # nsys ends the program with SIGTERM once --duration is over

    def plan(self, program: Sequence[str], settings: CaptureSettings) -> AgentPlan | None:
        """Steps are recorded, but not of other than Python programs, whole ones, or servers with a delay."""
        timed = self.duration_s is not None or self.delay_s is not None
        by_range = is_python(program) and not settings.whole and not timed
        return _range_plan(settings, first_rank_only=False) if by_range else None

    def command(self, tool: Tool, out: Path, program: Sequence[str], *, by_range: bool) -> list[str]:
        """`by_range`: collect between cudaProfilerStart and Stop only. `CaptureError` for what the version lacks."""
        argv = [str(tool.path), "profile", f"--output={out / 'report'}", "--force-overwrite=true"]
        argv.append(f"--trace={','.join(self._known_traces(tool))}")
        if not self.cpu_samples:
            argv += ["--sample=none", "--cpuctxsw=none"]
        python = self.cpu_samples and is_python(program) and tool.knows("--python-sampling")
        argv += [one for one in _PYTHON_STACKS if python and tool.knows(one.partition("=")[0])]
        # Without it the raw file holds the symbols of every loaded library: gigabytes for a PyTorch program.
        if tool.knows("--resolve-symbols") and (python or not self.cpu_samples):
            argv.append("--resolve-symbols=false")
        if self.cuda_graphs == "node" and tool.knows("--cuda-graph-trace"):
            argv.append("--cuda-graph-trace=node")
        if self.memory:
            argv.append(f"{tool.require('--cuda-memory-usage', 'asked for by --memory')}=true")
        if self.gpu_metrics:
            plural = "--gpu-metrics-devices"
            name = plural if tool.knows(plural) else tool.require("--gpu-metrics-device", "asked for by --gpu-metrics")
            argv.append(f"{name}=all")
        if self.delay_s is not None:
            argv.append(f"--delay={self.delay_s:g}")
        if self.duration_s is not None:
            argv += [f"--duration={self.duration_s:g}", "--kill=sigterm"]
        if by_range:
            # Old versions know only one way to end a range, under another name.
            ends = "--capture-range-end=stop" if tool.knows("--capture-range-end") else "--stop-on-range-end=true"
            argv += ["--capture-range=cudaProfilerApi", ends]
        return [*argv, *program]

    def _known_traces(self, tool: Tool) -> list[str]:
        """The traces asked for; `CaptureError` where the version's help does not name one. NCCL marks its calls as NVTX
        ranges itself, which is how a version that has no `nccl` records them."""
        wanted = [*self.traces, *(["python-gil"] if self.python_gil else [])]
        # the words of a help text; a dash is part of one
        known = "".join(mark if is_made_of(mark, "_-") else " " for mark in tool.help_text).split()
        traces = ["nvtx" if name == "nccl" and name not in known else name for name in wanted]
        for name in traces:
            if name not in known:
                tool.require(f"--trace={name}", "this version cannot trace it")
        return list(dict.fromkeys(traces))

    def collect(
        self, tool: Tool, settings: CaptureSettings, ended: Ended, *, by_range: bool
    ) -> tuple[Checked, list[str], dict[str, Any]]:
        """`report.sqlite`, from which environment, paths and names are removed; what it is to hold; what was removed.

        The report itself holds the whole environment of the program, so it is deleted unless it is to be kept.
        """
        from timesink.capture.redaction.cleaner import Cleaner
        from timesink.capture.redaction.nsys_sqlite import redact_sqlite
        from timesink.capture.redaction.packed import Unpacked

        report, log = settings.out / "report.nsys-rep", settings.out / "export.txt"
        if not report.is_file():
            raise explain_failure(ended, tool.title, settings.out)
        database = report.with_suffix(".sqlite")
        argv = [str(tool.path), "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(database)]
        argv += ["--include-json", "true"] if tool.knows("--python-sampling") else []  # the stacks that it samples
        exported = run([*argv, str(report)], log, setting=Setting(), timeout_s=_EXPORT_TIMEOUT_S, quiet=True)
        if exported.status != 0 or not database.is_file():
            link = importer_link(tool.path)
            remedy = f"create its importer's link: ln -sfn {link[1]} {link[0]}" if link else f"look at {log}"
            words = " / ".join(exported.tail()) or "it said nothing"
            what = f"{tool.title} recorded {report.name} and cannot export it: {words[:300]}"
            raise failure(what, remedy if link else f"{remedy}; try `nsys export`")
        log.unlink()
        cleaner = Cleaner()
        with whole_file(database) as part:
            redact_sqlite(Unpacked(database), part, cleaner)
        if not settings.keep_report:
            report.unlink()
        expected = ["CUDA API calls", "kernels"] if "cuda" in self.traces else []
        if by_range and "nvtx" in self.traces:
            expected.append("steps")
        return check(database), expected, {"removed": cleaner.summary()}


_EXPORT_TIMEOUT_S = 1800.0
# Stacks by samples and by calls of a Python program: native ones show its interpreter, and none of its lines.
_PYTHON_STACKS = ("--python-sampling=true", "--python-backtrace=cuda", "--cudabacktrace=kernel:0,memory:0,sync:0")
# Kernels of NCCL and NVSHMEM wait for other ranks: replayed, or held back while another rank is replayed, they hang.
NO_COMMUNICATION = "regex:^(?!.*(nccl|nvshmem))"
# The set "rules": the sections whose counters timesink's kernel rules read; about half the passes of "full".
RULE_SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "SpeedOfLight_HierarchicalTensorRooflineChart",
    "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Tables", "SchedulerStats",
    "WarpStateStats", "InstructionStats", "LaunchStats", "Occupancy",
)  # fmt: skip
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
    function names. With `each_shape`, `launch_count` counts the launches of each function with each grid and block.
    """

    set_name: str = "detailed"
    metrics: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    kernels: str | None = None
    nvtx: tuple[str, ...] = ()
    launch_skip: int = 0
    launch_count: int | None = 30
    each_shape: bool = False
    replay: str = "kernel"
    clock_control: str = "none"
    cache_control: str = "all"
    graphs: str = "node"
    source: bool = False

    good_ends = (0,)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (chosen := getattr(self, name)) not in choices:
                what = f"ncu's {name.replace('_', ' ')} cannot be {chosen!r}"
                raise refused(what, f"choose from: {', '.join(choices)}")

    def plan(self, program: Sequence[str], settings: CaptureSettings) -> AgentPlan | None:
        """Steps are profiled, but not of other than Python programs, nor of whole ones; `launch_skip` counts from the
        program's start, as ncu's does."""
        by_range = is_python(program) and not (settings.whole or self.launch_skip)
        return _range_plan(settings, first_rank_only=True) if by_range else None

    def command(self, tool: Tool, out: Path, program: Sequence[str], *, by_range: bool) -> list[str]:
        """`by_range`: profile between cudaProfilerStart and Stop only. `CaptureError` for what the version lacks."""
        argv = [str(tool.path), "--export", str(out / "kernels.ncu-rep"), "--force-overwrite"]
        argv += ["--target-processes", "all", "--kernel-name-base", "function"]
        argv += ["--kernel-name", f"regex:{self.kernels}" if self.kernels else NO_COMMUNICATION]
        sections = self.sections or (RULE_SECTIONS if self.set_name == "rules" else ())
        if self.metrics:
            argv += ["--metrics", ",".join(self.metrics)]
        else:
            argv += [word for name in sections for word in ("--section", name)] or ["--set", self.set_name]
        if self.nvtx:
            argv += ["--nvtx", *(word for range_ in self.nvtx for word in ("--nvtx-include", range_))]
        if self.launch_skip:
            argv += ["--launch-skip", str(self.launch_skip)]
        if self.launch_count is not None:
            argv += ["--launch-count", str(self.launch_count)]
        if self.each_shape:
            argv += [tool.require("--filter-mode", "one launch of each shape"), "per-launch-config"]
        argv += ["--replay-mode", self.replay, "--clock-control", self.clock_control]
        argv += ["--cache-control", self.cache_control]
        if self.graphs == "graph":
            argv += [tool.require("--graph-profiling", "asked for by --graphs graph"), "graph"]
        argv += ["--import-source", "on" if self.source else "off"] if tool.knows("--import-source") else []
        if by_range:
            argv += ["--profile-from-start", "off"]
        return [*argv, *program]

    def collect(
        self, tool: Tool, settings: CaptureSettings, ended: Ended, *, by_range: bool
    ) -> tuple[Checked, list[str], dict[str, Any]]:
        """One report of profiled kernels, `kernels.ncu-rep`, and what it is to hold."""
        report = settings.out.absolute() / "kernels.ncu-rep"
        if report.is_file():
            return check(report), ["kernel profiles"], {}
        if "No kernels were profiled" not in ended.said():
            raise explain_failure(ended, tool.title, settings.out)
        return Checked(report, 0, {}, self.nothing_profiled(by_range=by_range)), ["kernel profiles"], {}

    def nothing_profiled(self, *, by_range: bool) -> str:
        """Why ncu found no kernel: how many it was to skip, of which name, and where it looked."""
        of_name = f" that matches {self.kernels}" if self.kernels else ""
        after = f" after the first {self.launch_skip} (--launch-skip)" if self.launch_skip else ""
        where = "in the recorded steps (--whole looks at the whole program)" if by_range else "in the program"
        return f"no kernel{of_name} was launched{after} {where}"
