"""Captures with nsys and with ncu: run the program under the tool, the agent opening the range that it records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.captured import Capture
from timesink.capture.finishing import finished, missing_from, refuse_failure, with_unprofiled
from timesink.capture.manifest import check
from timesink.capture.ncu_flags import NcuOptions, ncu_command
from timesink.capture.nsys import NsysOptions, exported, nsys_command
from timesink.capture.running import Settings, explained, is_python, ready_folder, run_watched, statuses, unprofiled_run
from timesink.capture.schedule import Mode, Plan
from timesink.capture.tools import Tool
from timesink.untrusted.masking import stored_command

_ENDED_BY_DURATION = (-15, 143)  # nsys ends the program with SIGTERM once --duration is over


def range_plan(settings: Settings, first_rank_only: bool) -> Plan:
    """The agent's orders under nsys and (first rank only) ncu: steps are timed here unless in a run of their own."""
    timed = settings.steps.timed if settings.unprofiled == "inside" else 0
    return Plan(
        Mode.RANGE,
        str(settings.out.absolute()),
        replace(settings.steps, timed=timed),
        stop=not settings.keep_running,
        auto_ranges=settings.auto_ranges,
        first_rank_only=first_rank_only,
        early=not first_rank_only,
    )


def capture_nsys(program: Sequence[str], tool: Tool, options: NsysOptions, settings: Settings) -> Capture:
    """One report, exported to `report.sqlite`, from which environment, paths and names are removed."""
    by_range = nsys_by_range(program, options, settings)
    argv = nsys_command(tool, options, settings.out.absolute() / "report", program, by_range)
    known, alone = _before(program, settings, by_range)
    ended = run_watched(argv, range_plan(settings, False) if by_range else None, settings, tool.name)
    raw = settings.out / "report.nsys-rep"
    ranks = with_unprofiled(statuses(settings.out), alone)
    if by_range:
        refuse_failure(ended, ranks, "the program", settings)
    elif ended.status not in (0, *_ENDED_BY_DURATION):
        raise explained(ended, "the program", settings.out)
    if not raw.is_file():
        raise explained(ended, tool.title, settings.out)
    database, removed = exported(tool, raw, settings.keep_report)
    checked = [check(database)]
    facts = {"name": "nsys", "version": tool.version, "command": _stored(argv, settings), "removed": removed}
    missing = missing_from(checked, _expected_of_nsys(options, by_range), ranks)
    return finished(settings, checked, missing, {**known, "tool": facts, "seconds": round(ended.seconds, 3)}, ranks)


def capture_ncu(program: Sequence[str], tool: Tool, options: NcuOptions, settings: Settings) -> Capture:
    """One report of profiled kernels, `kernels.ncu-rep`."""
    by_range = ncu_by_range(program, settings)
    report = settings.out.absolute() / "kernels.ncu-rep"
    argv = ncu_command(tool, options, report, program, by_range)
    known, alone = _before(program, settings, by_range)
    ended = run_watched(argv, range_plan(settings, True) if by_range else None, settings, tool.name)
    ranks = with_unprofiled(statuses(settings.out), alone)
    if "ERR_NVGPUCTRPERM" in ended.said():
        raise explained(ended, tool.title, settings.out)
    if by_range:
        refuse_failure(ended, ranks, "the program", settings)
    elif ended.status != 0:
        raise explained(ended, "the program", settings.out)
    if not report.is_file() and "No kernels were profiled" not in ended.said():
        raise explained(ended, tool.title, settings.out)
    checked = [check(report)]
    facts = {"name": "ncu", "version": tool.version, "command": _stored(argv, settings)}
    missing = missing_from(checked, ["kernel profiles"], ranks)
    return finished(settings, checked, missing, {**known, "tool": facts, "seconds": round(ended.seconds, 3)}, ranks)


def nsys_by_range(program: Sequence[str], options: NsysOptions, settings: Settings) -> bool:
    """Whether steps are recorded: not for other than Python programs, whole ones, or servers with a delay."""
    timed = options.duration_s is not None or options.delay_s is not None
    return is_python(program) and not settings.whole and not timed


def ncu_by_range(program: Sequence[str], settings: Settings) -> bool:
    """Whether steps are profiled: not for other than Python programs, nor for whole ones."""
    return is_python(program) and not settings.whole


def _before(program: Sequence[str], settings: Settings, by_range: bool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The folder made ready, the surroundings noted, and the steps timed in a run of their own where that is wanted."""
    ready_folder(settings.out)
    known = manifests.surroundings(program, settings.config_files)
    return known, unprofiled_run(program, settings) if by_range and settings.unprofiled == "separate" else []


def _stored(argv: Sequence[str], settings: Settings) -> str:
    """The tool's command for the manifest: secrets taken out, and OUT for the capture's folder."""
    return stored_command([word.replace(str(settings.out.absolute()), "OUT") for word in argv])


def _expected_of_nsys(options: NsysOptions, by_range: bool) -> list[str]:
    expected = ["CUDA API calls", "kernels"] if "cuda" in options.traces else []
    if by_range and "nvtx" in options.traces:
        expected.append("steps")
    return expected
