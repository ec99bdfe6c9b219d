"""``with timesink.profile(steps=6) as run:`` records steps of a loop in this very process, for notebooks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timesink.capture import steps_file
from timesink.capture.errors import CaptureError, Fault
from timesink.capture.schedule import Mode, Plan, Steps

if TYPE_CHECKING:
    from timesink.capture.captured import Capture


@dataclass(slots=True)
class Run:
    """Filled when the block ends: `capture` holds files, manifest and step times."""

    folder: Path
    capture: Capture | None = field(default=None)

    def read(self) -> Any:
        """The trace of the block."""
        if self.capture is None:
            raise CaptureError(Fault.REQUEST, "the block has not ended", remedy="read the run after the with block")
        return self.capture.read()


@contextmanager
def profile(
    steps: int | Steps = 6, *, out: Path | None = None, shapes: bool = True, stacks: bool = False, memory: bool = False
) -> Iterator[Run]:
    """Record `steps` steps of the loop in the block with torch.profiler; the block runs on to its end.

    A step ends where ``timesink.step()`` is called, else where the first optimizer steps. Before them a few steps
    settle and a few are timed without the profiler (`Steps` says how many).

    Raises
    ------
    CaptureError
        The block ended before the steps were recorded.
    """
    from timesink.capture.agent.recording import Agent
    from timesink.capture.agent.torch_hooks import watch_for_now
    from timesink.capture.running import ready_folder
    from timesink.capture.torch_run import finish_in_process

    folder = ready_folder(out if out is not None else Path("captures") / time.strftime("%Y%m%d-%H%M%S-profile"))
    wanted = steps if isinstance(steps, Steps) else Steps(settle=2, timed=4, warm_up=1, active=steps)
    plan = Plan(Mode.TORCH, str(folder.absolute()), wanted, stop=False, shapes=shapes, stacks=stacks, memory=memory)
    agent = Agent(plan)
    run = Run(folder)
    steps_file.listeners.append(agent.explicit_step)
    stop_watching = watch_for_now(agent)
    try:
        yield run
    finally:
        steps_file.listeners.remove(agent.explicit_step)
        stop_watching()
        agent.leave()
    run.capture = finish_in_process(plan)
