"""Captures that a training program makes of itself: one line in its profiler, its trainer or its own loop.

`timesink.handler` is what `torch.profiler.profile(on_trace_ready=...)` calls at the end of every recorded window;
`timesink.recorder` counts the steps of a loop, or of a trainer that calls back at the end of every step. Nothing here
raises into the training: what cannot be recorded is said in one line on stderr. What takes time (manifest, diagnosis,
report) is the work of another process of low priority (`window_verdict`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timesink.capture.agent.recording import Agent, Status, free_folder, rank_and_world, software
from timesink.capture.schedule import VARIABLE, AgentPlan, Mode, StepSchedule
from timesink.capture.window_verdict import Order, Verdicts, warn

_FAILURES = (OSError, RuntimeError, ValueError)


def handler(
    folder: str | Path,
    *,
    verdict: bool = True,
    log: str | Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
) -> TraceHandler:
    """A handler for ``torch.profiler.profile(..., on_trace_ready=timesink.handler("runs/x"))``.

    Every window becomes a folder ``runs/x/step<N>``, `N` being the profiler's step at which it ended, with one trace
    per rank, ``rank<R>.json``, as ``export_chrome_trace`` writes it. Rank 0 then starts a process of low priority that
    writes the manifest and, with `verdict`, the report and ``runs/x/timesink/index.html``, and prints the verdict.

    Parameters
    ----------
    log
        ``"wandb"``, ``"mlflow"``, ``"tensorboard"``, or several of them: figures and the link go to the run that is
        active when the window ends.
    facts
        What the run is (``{"resolution": "512"}``), to be said with its figures.

    Raises
    ------
    CaptureError
        A library of `log` is not installed, or a fact is none. The handler itself raises nothing.
    """
    place = Path(folder).absolute()  # programs change the current folder
    return TraceHandler(Verdicts(place, verdict, log, facts))


class TraceHandler:
    """See `handler`. `wait` blocks until what was started for the windows so far has ended."""

    def __init__(self, verdicts: Verdicts) -> None:
        self.folder = verdicts.root
        self._verdicts = verdicts
        self.wait = verdicts.wait  # until verdicts are printed, or so many seconds have passed

    def __call__(self, profiler: Any) -> None:
        """Write the trace of the window that has ended."""
        try:
            self._keep(profiler)
        except _FAILURES as error:
            warn(f"the window was not kept: {type(error).__name__}: {error}")

    def _keep(self, profiler: Any) -> None:
        rank, world = rank_and_world()
        step = int(getattr(profiler, "step_num", 0))
        window = free_folder(self.folder / f"step{step}", rank)
        status = Status(window, rank, world)
        if not status.claim():
            raise RuntimeError(f"another process of rank {rank} has taken {window.name}")
        name = f"rank{rank}.json"
        partial = window / f".partial-{name}"
        profiler.export_chrome_trace(str(partial))
        partial.replace(window / name)
        status.tell(phase="done", file=name, software=software())
        if rank == 0:
            self._verdicts.follow(Order(str(window), step, {"name": "torch"}))


def recorder(
    folder: str | Path,
    steps: int | StepSchedule = 6,
    *,
    verdict: bool = True,
    log: str | Sequence[str] = (),
    facts: Mapping[str, str] | None = None,
    **recorded: bool,
) -> StepRecorder:
    """Records once, early in a loop: call ``.step()`` at the end of every step, and ``.close()`` after the last.

    Of the first steps 5 settle, 10 are timed without a profiler, 2 warm it up and `steps` are recorded into `folder`
    (a `StepSchedule` says otherwise), one file per rank. After that a call of ``step()`` returns at once. `verdict`,
    `log` and `facts` are those of `timesink.handler`; `recorded` takes ``shapes=True``, ``stacks=False`` and
    ``memory=False``, as torch.profiler knows them.

    Raises
    ------
    CaptureError
        A library of `log` is not installed, or a fact is none. ``step()`` and ``close()`` raise nothing.
    """
    schedule = steps if isinstance(steps, StepSchedule) else StepSchedule(active=steps)
    place = Path(folder).absolute()  # programs change the current folder
    return StepRecorder(schedule, Verdicts(place, verdict, log, facts), recorded)


class StepRecorder:
    """See `recorder`. `folder` is where this rank records: the one asked for, or one beside it that is not taken."""

    def __init__(self, schedule: StepSchedule, verdicts: Verdicts, recorded: Mapping[str, bool]) -> None:
        self.folder = verdicts.root
        self.is_done = VARIABLE in os.environ  # `timesink capture` or `verify` runs this program, and has its own agent
        self._schedule, self._verdicts, self._recorded = schedule, verdicts, recorded
        self._agent: Agent | None = None
        self._steps = 0
        self.wait = verdicts.wait  # until verdicts are printed, or so many seconds have passed

    def step(self) -> None:
        """A step has ended."""
        if self.is_done:
            return
        if self._agent is None:
            self.folder = free_folder(self._verdicts.root / "window", rank_and_world()[0])
            plan = AgentPlan(Mode.TORCH, str(self.folder), self._schedule, stop=False, **self._recorded)
            self._agent = Agent(plan)
        self._steps += 1
        self._agent.explicit_step()
        if self._agent.finished:
            self._end(self._agent)

    def close(self) -> None:
        """The loop is over. Waits for nothing; the verdict may be printed after it."""
        was_done, self.is_done = self.is_done, True
        if was_done or self._agent is None:
            return
        self._agent.leave()
        warn(f"nothing was recorded: the loop ended after {self._steps} of {self._schedule.total} steps")

    def _end(self, agent: Agent) -> None:
        """Recorded, or failed: either way the training goes on."""
        self.is_done = True
        status: dict[str, Any] = agent.facts
        if status.get("phase") != "done":
            warn(f"nothing was recorded: {status.get('error', 'another process of this rank records')}")
        elif status["rank"] == 0:
            tool = {"name": "torch", "recorded": dict(self._recorded)}
            self._verdicts.follow(Order(str(self.folder), self._steps, tool, asdict(self._schedule)))
