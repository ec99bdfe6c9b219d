"""Which steps of a program are left alone, timed, and recorded; and the orders of the agent in the program."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum

from timesink.capture.errors import refused

VARIABLE = "TIMESINK_CAPTURE"


class Mode(Enum):
    """What the agent does with the recorded steps."""

    TORCH = "torch"
    """records them with torch.profiler, one file per rank"""
    RANGE = "range"
    """surrounds them with cudaProfilerStart and cudaProfilerStop, for nsys and ncu"""
    TIME = "time"
    """times the program without a profiler and ends it"""
    STEPS = "steps"
    """times every step of the program, which runs as it is: `timesink verify` compares them"""


@dataclass(frozen=True, slots=True)
class StepSchedule:
    """Steps in the order they are run: `settle` warm the program up, `timed` are timed without a profiler, `warm_up`
    run under the profiler and are dropped, `active` are recorded. Starting a profiler takes a second or so, in which
    DataLoader workers fill their queues: as many steps as they hold batches are dropped besides, unless `warm_up` is 0.
    """

    settle: int = 5
    timed: int = 10
    warm_up: int = 2
    active: int = 6

    def __post_init__(self) -> None:
        least = {"settle": 1, "timed": 0, "warm_up": 0, "active": 1}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise refused(f"{getattr(self, name)} {name} steps make no capture", f"ask for at least {low}")

    @property
    def total(self) -> int:
        """Steps the program must at least make."""
        return self.settle + self.timed + self.warm_up + self.active


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """The agent's orders, handed to it as JSON in the variable TIMESINK_CAPTURE. `folder` takes its status files.

    `whole`: record from the import of torch to the end, for programs without steps. `stop`: end the program once the
    steps are recorded. `first_rank_only`: only rank 0 records. `early`: the range of nsys opens before the warm-up.
    """

    mode: Mode
    folder: str
    steps: StepSchedule = field(default_factory=StepSchedule)
    whole: bool = False
    stop: bool = True
    auto_ranges: bool = False
    shapes: bool = True
    stacks: bool = False
    memory: bool = False
    first_rank_only: bool = False
    early: bool = False

    def to_json(self) -> str:
        """One line."""
        return json.dumps({**asdict(self), "mode": self.mode.value})

    @classmethod
    def from_json(cls, text: str) -> AgentPlan:
        """The plan that `to_json` wrote."""
        given = json.loads(text)
        return cls(**{**given, "mode": Mode(given["mode"]), "steps": StepSchedule(**given["steps"])})
