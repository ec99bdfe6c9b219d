"""Capture with torch.profiler: the agent in the program does it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from timesink.capture import manifest as manifests
from timesink.capture.captured import Capture
from timesink.capture.errors import CaptureError, Fault
from timesink.capture.finishing import finished, missing_from, refuse_failure, refuse_unrecorded
from timesink.capture.manifest import check
from timesink.capture.running import Settings, is_python, ready_folder, run_watched, statuses
from timesink.capture.schedule import Mode, Plan


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
    refuse_failure(ended, statuses(settings.out), "the program", settings)
    return _checked(plan, settings, {**known, "seconds": round(ended.seconds, 3)})


def finish_in_process(plan: Plan) -> Capture:
    """The capture that an agent in this process has made."""
    settings = Settings(Path(plan.folder), plan.steps)
    refuse_unrecorded(statuses(settings.out), settings)
    return _checked(plan, settings, manifests.surroundings(sys.argv, ()))


def _checked(plan: Plan, settings: Settings, known: dict[str, Any]) -> Capture:
    ranks = statuses(settings.out)
    checked = [check(settings.out / f"rank{rank['rank']}.json.gz") for rank in ranks]
    expected = ["operators"] if plan.whole else ["operators", "steps"]
    if any("gpu" in rank.get("software", {}) for rank in ranks):
        expected += ["CUDA API calls", "kernels"]
    tool = {"name": "torch", "plan": {**asdict(plan), "mode": plan.mode.value, "folder": ""}}
    return finished(settings, checked, missing_from(checked, expected, ranks), {**known, "tool": tool}, ranks)
