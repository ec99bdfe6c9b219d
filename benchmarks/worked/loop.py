"""The loop both examples run: steps with `timesink.step()`, and one check of what was computed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import timesink

Step = Callable[[], Tensor]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an example runs; `dry` shrinks it to what a CPU does in a second."""

    device: str
    dry: bool

    @classmethod
    def of(cls, dry: bool) -> Place:
        return cls("cpu" if dry else "cuda", dry)

    def size(self, full: int, tiny: int) -> int:
        return tiny if self.dry else full

    def wait(self) -> None:
        if not self.dry:
            torch.cuda.synchronize()


def agreement(measured: float, tolerance: float, what: str) -> str:
    """The check of a run whose result is right; a run whose result is wrong ends here."""
    print(json.dumps({"compared": what, "error": measured, "tolerance": tolerance}), flush=True)
    if not measured <= tolerance:
        raise SystemExit(
            f"{what} is off by {measured:.3g}, more than {tolerance:g}: the change computes something else"
        )
    return f"{what} within {tolerance:g}"


def answer_each(step: Step, steps: int, place: Place, check: str) -> None:
    """As a server does: the answer of a step is waited for before the next one begins."""
    for _ in range(steps):
        step()
        place.wait()
        timesink.step(check=check)


def train(step: Step, steps: int, place: Place, check_step: int) -> None:
    """As a training loop does: the host prepares one step while the GPU runs the one before, and never more.

    The loss of step `check_step` is the check: both sides of a comparison reach it, however many steps follow.
    """
    marks: deque[torch.cuda.Event] = deque()
    for number in range(1, steps + 1):
        loss = step()
        if not place.dry:
            marks.append(torch.cuda.Event())
            marks[-1].record()
        if len(marks) > 1:
            marks.popleft().synchronize()
        timesink.step(check=f"{loss.item():.6f}" if number == check_step else None)
