"""Times of the single steps of a block, the device included."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from statistics import median
from typing import Any


def wait() -> None:
    """For the device, where the program uses one."""
    torch = _cuda()
    if torch is not None:
        torch.cuda.synchronize()


class Stopwatch:
    """Starts on an idle device; `lap` at the end of every step waits for nothing, as the block may be recorded.

    With a GPU the laps are events in the current stream: a step lasts from the end of the device's work for the step
    before to the end of its own. Without one they are times of the host.
    """

    def __init__(self) -> None:
        wait()
        self._marks: list[Any] = []
        self.lap()

    def lap(self) -> None:
        """A step ends here."""
        torch = _cuda()
        if torch is None:
            self._marks.append(time.perf_counter())
        else:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)

    def result(self) -> dict[str, object]:
        """The steps so far in ms, and their median. Waits for the device."""
        wait()
        times = [_between_ms(first, second) for first, second in pairwise(self._marks)]
        return {"step_ms": median(times), "steps_ms": [round(ms, 4) for ms in times]}


def _between_ms(first: Any, second: Any) -> float:
    """From mark to mark; a host mark among events (CUDA began in between) has no time of its own."""
    if isinstance(first, float) and isinstance(second, float):
        return (second - first) * 1e3
    if isinstance(first, float) or isinstance(second, float):
        return float("nan")
    return float(first.elapsed_time(second))


def _cuda() -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return None
    return torch
