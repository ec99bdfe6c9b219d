"""What marks the end of a step, the better mark the higher, and what was seen of a program that shows none."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

_MANY, _SOME, _LONG_S = 64, 4, 3.0
_GIVEN_UP = 200  # turns of others without one of its own
_TRAINS_WITHIN_S = 60.0  # after its optimizer is made: a program that only evaluates may have one too
SEEN = "seen-{}.json"


class StepMark(IntEnum):
    """What marks steps; a higher one wins over a lower one."""

    LOOP = 0
    """an iteration of the program's loop around its work (`agent.loops`)"""
    LOADER = 1
    FORWARD = 2
    """a call of the outermost module"""
    REPLAY = 3
    BACKWARD = 4
    OPTIMIZER = 5
    PROFILER = 6
    EXPLICIT = 7


class OneThatCounts:
    """Which of several things counts (optimizers, data sets): the first that is seen, as long as the program has it and
    uses it; then the next. A program that makes an optimizer for each task or phase has steps all the while."""

    def __init__(self) -> None:
        self._it: Callable[[], object] = lambda: None
        self._others = 0

    def counts(self, thing: object) -> bool:
        """Whether it does, at one of its turns. It is not held."""
        counted = self._it()
        if counted is not thing and (counted is None or self._others >= _GIVEN_UP):
            try:
                self._it = weakref.ref(thing)
            except TypeError:
                self._it = lambda: thing
            counted = thing
        self._others = 0 if counted is thing else self._others + 1
        return counted is thing


@dataclass(slots=True)
class Seen:
    """Counts of what a program has called so far; `pid` is the process."""

    pid: int = 0
    seconds: float = 0.0
    modules: int = 0
    backward_passes: int = 0
    optimizer_steps: int = 0
    replays: int = 0
    gpu_bytes: int = 0
    """the most that PyTorch has allocated on the GPU"""

    def words(self) -> str:
        """For a reader who wonders why no step was found."""
        used = f"{self.gpu_bytes / 2**20:.0f} MiB" if self.gpu_bytes else "no memory"
        return (
            f"in {self.seconds:.0f} s {self.modules} calls of modules, {self.backward_passes} backward passes, "
            f"{self.optimizer_steps} steps of optimizers and {self.replays} replays of graphs were seen, and {used} "
            "of a GPU was used through PyTorch"
        )


class Sightings:
    """Counts what is seen, and tells which of it may stand for a step.

    A module is called with gradients, and a backward pass made, in a step that an optimizer ends. So they count by
    themselves only where no better mark comes although it should have.
    """

    def __init__(self) -> None:
        self.seen = Seen(os.getpid())
        self._optimizer_made: float | None = None
        self._began = self._first_call = time.monotonic()
        self._by_grad = 0
        self.inside = threading.local()
        """`depth`: whether this thread is in a call of a module"""

    def optimizer_made(self) -> None:
        """The program has an optimizer from now on."""
        if self._optimizer_made is None:
            self._optimizer_made = time.monotonic()

    @property
    def has_optimizer(self) -> bool:
        """Whether the program has made an optimizer."""
        return self._optimizer_made is not None

    @property
    def awaits_training(self) -> bool:
        """Whether an optimizer is made and nothing was trained yet: what runs now is an evaluation or a rollout, which
        shows no step of the training."""
        if self._optimizer_made is None or self.seen.optimizer_steps or self.seen.backward_passes:
            return False
        return time.monotonic() - self._optimizer_made < _TRAINS_WITHIN_S

    def module_called(self, *, trains: bool) -> bool:
        """One call of an outermost module; whether it may be a step."""
        if not self.seen.modules:
            self._first_call = time.monotonic()
        self.seen.modules += 1
        if not trains:
            return True
        calls, waited_s = self.seen.modules, time.monotonic() - self._first_call
        is_due = calls >= _MANY or (calls >= _SOME and waited_s > _LONG_S)
        return is_due and not self.has_optimizer and not self.seen.backward_passes

    def went_back(self, *, by_grad: bool = False) -> bool:
        """One outermost backward pass (`torch.autograd.grad`, or what losses call); whether it may be a step."""
        self.seen.backward_passes += 1
        self._by_grad += by_grad
        if by_grad and self.seen.backward_passes > self._by_grad:
            return False  # gradients of a penalty, beside a loss
        overdue = self.seen.backward_passes >= 4 * _MANY and not self.seen.optimizer_steps
        return not self.has_optimizer or overdue

    def withdraw(self, folder: Path) -> None:
        """There were steps after all: what was left of a long quiet time says nothing."""
        (folder / SEEN.format(self.seen.pid)).unlink(missing_ok=True)

    def write(self, folder: Path) -> None:
        """Into the folder of the agent's plan, for `read_seen`."""
        torch: Any = sys.modules.get("torch")
        with suppress(AttributeError, RuntimeError):  # torch may be half imported
            if torch is not None and torch.cuda.is_initialized():
                self.seen.gpu_bytes = int(torch.cuda.max_memory_allocated())
        self.seen.seconds = round(time.monotonic() - self._began, 1)
        target = folder / SEEN.format(self.seen.pid)
        with suppress(OSError):
            partial = target.with_suffix(".tmp")
            partial.write_text(json.dumps(asdict(self.seen)), encoding="utf-8")
            partial.replace(target)


def read_seen(folder: Path) -> str:
    """What the busiest process of a program without steps has called, in words; empty where none imported torch."""
    found = []
    for path in folder.glob(SEEN.format("*")):
        with suppress(OSError, ValueError, TypeError):
            found.append(Seen(**json.loads(path.read_text(encoding="utf-8"))))
    if not found:
        return ""
    return max(found, key=lambda one: (one.modules + one.backward_passes, one.gpu_bytes, one.seconds)).words()
