"""`timesink.recorder`: steps of a loop of one's own, or of a trainer that calls back at the end of every step."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from timesink.capture.agent.recording import Agent, free_folder, rank_and_world
from timesink.capture.schedule import VARIABLE, AgentPlan, Mode, StepSchedule
from timesink.capture.trainer.logs import opened
from timesink.capture.trainer.verdict import Order, Verdicts, checked_facts, warn


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
    return StepRecorder(place, schedule, Verdicts(place, verdict, opened(log, place)), checked_facts(facts), recorded)


class StepRecorder:
    """See `recorder`. `folder` is where this rank records: the one asked for, or one beside it that is not taken."""

    def __init__(
        self,
        folder: Path,
        schedule: StepSchedule,
        verdicts: Verdicts,
        facts: Mapping[str, str],
        recorded: Mapping[str, bool],
    ) -> None:
        self.root = folder
        self.folder = folder
        self.is_done = VARIABLE in os.environ  # `timesink capture` or `verify` runs this program, and has its own agent
        self._schedule = schedule
        self._verdicts = verdicts
        self._facts = facts
        self._recorded = recorded
        self._agent: Agent | None = None
        self._steps = 0

    def step(self) -> None:
        """A step has ended."""
        if self.is_done:
            return
        if self._agent is None:
            self._agent = self._begun()
        self._steps += 1
        self._agent.explicit_step()
        if self._agent.finished:
            self._ended(self._agent)

    def close(self) -> None:
        """The loop is over. Waits for nothing; the verdict may be printed after it."""
        if self.is_done or self._agent is None:
            self.is_done = True
            return
        self.is_done = True
        self._agent.leave()
        warn(f"nothing was recorded: the loop ended after {self._steps} of {self._schedule.total} steps")

    def wait(self, timeout_s: float | None = None) -> None:
        """Until the verdict is printed, or that many seconds have passed."""
        self._verdicts.wait(timeout_s)

    def _begun(self) -> Agent:
        """The agent that records this rank, in a folder where the rank has not recorded before."""
        self.folder = free_folder(self.root / "window", rank_and_world()[0])
        return Agent(AgentPlan(Mode.TORCH, str(self.folder), self._schedule, stop=False, **self._recorded))

    def _ended(self, agent: Agent) -> None:
        """Recorded, or failed: either way the training goes on."""
        self.is_done = True
        status: dict[str, Any] = agent.facts
        if status.get("phase") != "done":
            warn(f"nothing was recorded: {status.get('error', 'another process of this rank records')}")
        elif status["rank"] == 0:
            tool = {"name": "torch", "recorded": dict(self._recorded)}
            order = Order(str(self.folder), self._steps, dict(self._facts), tool, asdict(self._schedule))
            self._verdicts.follow(order)
