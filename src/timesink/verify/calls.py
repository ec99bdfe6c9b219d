"""Two functions compared in this process, in turns: what differs from one process to the next falls out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from timesink.capture.in_program import gpu_wait
from timesink.startup import dataclass, field
from timesink.verify import limits
from timesink.verify.outcomes import RunRow
from timesink.verify.runs import RunSteps, Side, summarise

_STEP_S, _RUN_S, _LEAST_STEPS = 1e-3, 1.0, 8


@dataclass(frozen=True, slots=True)
class CallsInTurns:
    """Times both sides, as `experiment.verify` asks for it. A step is as many calls as take a millisecond, and ends
    once the GPU is idle; a run is `WANTED_STEPS` steps, or those of a second."""

    bodies: Mapping[Side, Callable[[], object]]
    _calls: dict[Side, int] = field(default_factory=dict)

    def launch(self, side: Side, number: int) -> RunRow:
        """One run; its times are those of a call, in seconds."""
        body, seconds = self.bodies[side], list[float]()
        if side not in self._calls:
            _time(body, 1)  # what only a first call does
            self._calls[side] = math.ceil(_STEP_S / max(_time(body, 1), 1e-9))
        calls = self._calls[side]
        while len(seconds) < limits.WANTED_STEPS and (len(seconds) < _LEAST_STEPS or sum(seconds) * calls < _RUN_S):
            seconds.append(_time(body, calls) / calls)
        return summarise(RunSteps(tuple(seconds)), side, number)


def _time(body: Callable[[], object], calls: int) -> float:
    wait = gpu_wait() or int
    wait()
    started = time.perf_counter()
    for _ in range(calls):
        body()
    wait()
    return time.perf_counter() - started
