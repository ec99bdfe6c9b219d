"""Captures with torch.profiler: the agent inside the program records, one trace per rank."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.errors import refused
from timesink.capture.interpreter import check_torch
from timesink.capture.manifest import Capture, check
from timesink.capture.running import (
    CaptureSettings,
    ended_ranks,
    finish,
    is_python,
    missing_from,
    ready_folder,
    refuse_failure,
    refuse_unrecorded,
    run_watched,
    split_options,
    statuses,
)
from timesink.capture.schedule import AgentPlan, Mode, StepSchedule


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
    expected = ["operators"] if plan.whole else ["operators", "steps"]
    if any("gpu" in rank.get("software", {}) for rank in ranks):
        expected += ["CUDA API calls", "kernels"]
    tool = {"name": "torch", "plan": {**asdict(plan), "mode": plan.mode.value, "folder": ""}}
    return finish(settings, checked, missing_from(checked, expected, ranks), {**known, "tool": tool}, ranks)
