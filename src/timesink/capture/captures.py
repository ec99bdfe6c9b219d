"""The three captures: run the program under its profiler, check the result, write the manifest."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.artefacts import Checked, check
from timesink.capture.captured import Capture
from timesink.capture.errors import CaptureError, Fault
from timesink.capture.ncu_flags import NcuOptions, ncu_command
from timesink.capture.nsys_export import exported
from timesink.capture.nsys_flags import NsysOptions, nsys_command
from timesink.capture.processes import Ended
from timesink.capture.running import (
    Settings,
    all_done,
    explained,
    is_python,
    ready_folder,
    run_watched,
    statuses,
    unprofiled_run,
)
from timesink.capture.schedule import Mode, Plan
from timesink.capture.tools import Tool
from timesink.masking import stored_command


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """What torch.profiler records. Stacks cost most: they can double a step."""

    shapes: bool = True
    stacks: bool = False
    memory: bool = False


def torch_plan(options: TorchOptions, settings: Settings) -> Plan:
    """The agent's orders; steps are timed in the captured process, where no profiler is loaded yet."""
    timed = 0 if settings.unprofiled == "none" else settings.steps.timed
    return Plan(
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


def capture_torch(program: Sequence[str], options: TorchOptions, settings: Settings) -> Capture:
    """One trace per rank, `rank<N>.json.gz`."""
    if not is_python(program):
        raise CaptureError(
            Fault.REQUEST,
            f"{program[0]!r} is no Python program",
            remedy="capture it with nsys, which takes any program",
        )
    ready_folder(settings.out)
    plan = torch_plan(options, settings)
    known = manifests.surroundings(program, settings.config_files)
    ended = run_watched(program, plan, settings, "torch")
    ranks = statuses(settings.out)
    _refuse_failure(ended, ranks, "the program", settings)
    checked = [check(settings.out / f"rank{rank['rank']}.json.gz") for rank in ranks]
    expected = ["operators"] if settings.whole else ["operators", "steps"]
    if any("gpu" in rank.get("software", {}) for rank in ranks):
        expected += ["CUDA API calls", "kernels"]
    tool = {"name": "torch", "plan": plan.to_json()}
    return _finished(settings, checked, _missing(checked, expected, ranks), {**known, "tool": tool}, ended)


def range_plan(settings: Settings, first_rank_only: bool) -> Plan:
    """The agent's orders under nsys and ncu: steps are timed here where they are not timed in a run of their own."""
    timed = settings.steps.timed if settings.unprofiled == "inside" else 0
    return Plan(
        Mode.RANGE,
        str(settings.out.absolute()),
        replace(settings.steps, timed=timed),
        stop=not settings.keep_running,
        auto_ranges=settings.auto_ranges,
        first_rank_only=first_rank_only,
    )


def capture_nsys(program: Sequence[str], tool: Tool, options: NsysOptions, settings: Settings) -> Capture:
    """One report, exported to `report.sqlite`, from which environment, paths and names are removed."""
    by_range = is_python(program) and not settings.whole and options.duration_s is None and options.delay_s is None
    report = settings.out.absolute() / "report"
    ready_folder(settings.out)
    argv = nsys_command(tool, options, report, program, by_range)
    known = manifests.surroundings(program, settings.config_files)
    alone = unprofiled_run(program, settings) if by_range and settings.unprofiled == "separate" else []
    plan = range_plan(settings, False) if by_range else None
    ended = run_watched(argv, plan, settings, tool.name)
    raw = report.with_suffix(".nsys-rep")
    if not raw.is_file():
        raise explained(ended, tool.title, settings.out)
    ranks = _with_unprofiled(statuses(settings.out), alone)
    _refuse_failure(ended, ranks if by_range else None, "the program", settings)
    database, removed = exported(tool, raw, settings.keep_report)
    checked = [check(database)]
    expected = _expected_of_nsys(options, by_range)
    facts = {"name": "nsys", "version": tool.version, "command": stored_command(argv), "removed": removed}
    return _finished(settings, checked, _missing(checked, expected, ranks), {**known, "tool": facts}, ended, ranks)


def capture_ncu(program: Sequence[str], tool: Tool, options: NcuOptions, settings: Settings) -> Capture:
    """One report of profiled kernels, `kernels.ncu-rep`."""
    by_range = is_python(program) and not settings.whole
    ready_folder(settings.out)
    report = settings.out.absolute() / "kernels.ncu-rep"
    argv = ncu_command(tool, options, report, program, by_range)
    known = manifests.surroundings(program, settings.config_files)
    alone = unprofiled_run(program, settings) if by_range and settings.unprofiled == "separate" else []
    ended = run_watched(argv, range_plan(settings, True) if by_range else None, settings, tool.name)
    ranks = _with_unprofiled(statuses(settings.out), alone)
    if "ERR_NVGPUCTRPERM" in ended.said():
        raise explained(ended, tool.title, settings.out)
    _refuse_failure(ended, ranks if by_range else None, "the program", settings)
    if not report.is_file() and "No kernels were profiled" not in ended.said():
        raise explained(ended, tool.title, settings.out)
    checked = [check(report)]
    facts = {"name": "ncu", "version": tool.version, "command": stored_command(argv)}
    missing = _missing(checked, ["kernel profiles"], ranks)
    return _finished(settings, checked, missing, {**known, "tool": facts}, ended, ranks)


def _expected_of_nsys(options: NsysOptions, by_range: bool) -> list[str]:
    expected = ["CUDA API calls", "kernels"] if "cuda" in options.traces else []
    if by_range and "nvtx" in options.traces:
        expected.append("steps")
    return expected


def _with_unprofiled(ranks: list[dict[str, Any]], alone: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each rank with the step time of the run of its own, where there was one."""
    times = {rank["rank"]: rank.get("unprofiled") for rank in alone}
    return [{**rank, "unprofiled": times[rank["rank"]]} if times.get(rank["rank"]) else rank for rank in ranks]


def _refuse_failure(ended: Ended, ranks: Sequence[dict[str, Any]] | None, what: str, settings: Settings) -> None:
    """A program that failed before its steps were recorded is an error; so is one whose steps nobody saw."""
    if ranks is None:
        if ended.status != 0:
            raise explained(ended, what, settings.out)
        return
    failed = [rank for rank in ranks if rank["phase"] == "failed"]
    if failed:
        raise CaptureError(
            Fault.FAILED,
            f"rank {failed[0]['rank']} could not record: {failed[0]['error']}",
            remedy=f"look at {ended.log}",
        )
    if all_done(ranks):
        return
    if ended.status != 0:
        raise explained(ended, what, settings.out)
    raise CaptureError(Fault.FAILED, _no_steps(ranks, settings), remedy=_STEPS_REMEDY)


_STEPS_REMEDY = (
    "call timesink.step() at the end of each step, ask for fewer steps (--steps, --settle, --timed), or record all of a "
    "program without steps with --whole"
)


def _no_steps(ranks: Sequence[dict[str, Any]], settings: Settings) -> str:
    if not ranks:
        return "the program ended, and no step was seen in it (no optimizer, no torch.profiler, no timesink.step())"
    first = next(rank for rank in ranks if rank["phase"] != "done")
    return (
        f"the program ended in the phase {first['phase']!r} of rank {first['rank']}: "
        f"a capture needs {settings.steps.total} steps"
    )


def _missing(checked: Sequence[Checked], expected: Sequence[str], ranks: Sequence[dict[str, Any]]) -> list[str]:
    missing = [sentence for one in checked for sentence in one.missing(tuple(expected))]
    absent = sorted(set(range(ranks[0]["world"])) - {rank["rank"] for rank in ranks}) if ranks else []
    return missing + [f"rank {rank} recorded nothing" for rank in absent]


def _finished(
    settings: Settings,
    checked: Sequence[Checked],
    missing: Sequence[str],
    known: dict[str, Any],
    ended: Ended,
    ranks: Sequence[dict[str, Any]] | None = None,
) -> Capture:
    """Write the manifest beside the artefacts."""
    told = statuses(settings.out) if ranks is None else ranks
    entry = {
        **known,
        "steps": {name: getattr(settings.steps, name) for name in settings.steps.__slots__},
        "unprofiled": settings.unprofiled,
        "ranks": [{key: value for key, value in rank.items() if key != "pid"} for rank in told],
        "seconds": round(ended.seconds, 3),
        "ended": int(time.time()),
        "files": manifests.files_entry(checked),
        "missing": list(missing),
    }
    manifests.write(settings.out, entry)
    return Capture(settings.out, tuple(one.path for one in checked if one.size_bytes), entry, tuple(missing))


def default_folder(tool: str, root: Path = Path("captures")) -> Path:
    """A folder that is not there yet, named by time and tool."""
    return root / f"{time.strftime('%Y%m%d-%H%M%S')}-{tool}"
