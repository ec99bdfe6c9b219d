"""Step times from inside a program: call ``timesink.step()`` once at the end of every step.

It writes one JSON object per line to the file named by the environment variable ``TIMESINK_STEPS`` and does nothing
where that is unset, so the call may stay in the program. Lines: ``{"step": 1, "seconds": 0.0101}``, optionally with
``"receipt": "2.3107"``. Ranks other than 0 (environment variable RANK) write to the same path with ``.rank<N>`` added.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

VARIABLE = "TIMESINK_STEPS"

listeners: list[Callable[[], None]] = []
"""Called at every step: the agent of a capture is one."""


class _Clock:
    """When the last step ended, and the open file; one per process."""

    def __init__(self) -> None:
        self.file: TextIO | None = None
        self.process = -1
        self.last_ns = 0
        self.count = 0

    def start(self, path: str) -> None:
        rank = os.environ.get("RANK", "0")
        target = Path(path if rank == "0" else f"{path}.rank{rank}")
        self.file = target.open("a", encoding="utf-8", buffering=1)
        self.process = os.getpid()
        self.count = 0


_clock = _Clock()


def step(*, receipt: object = None, wait: Callable[[], object] | None = None) -> None:
    """Mark the end of a step; the time since the previous call is its duration. The first call only starts the clock.

    Parameters
    ----------
    receipt
        What the step computed (a loss, a checksum), as text or number: runs that disagree are not compared.
    wait
        Called before the clock is read, such as ``torch.cuda.synchronize``. Without it the time is the host's, which
        equals the device's in the mean once the launch queue is full, but not step by step.
    """
    path = os.environ.get(VARIABLE)
    if path:
        _write(path, receipt, wait)
    for listener in listeners:
        listener()


def _write(path: str, receipt: object, wait: Callable[[], object] | None) -> None:
    if wait is not None:
        wait()
    now_ns = time.perf_counter_ns()
    if _clock.process != os.getpid():  # first call, or a forked child, which must not write into its parent's file
        if _clock.file is not None:
            return
        _clock.start(path)
    elif _clock.file is not None:
        _clock.count += 1
        line: dict[str, object] = {"step": _clock.count, "seconds": (now_ns - _clock.last_ns) / 1e9}
        if receipt is not None:
            line["receipt"] = str(receipt)
        _clock.file.write(json.dumps(line) + "\n")
    _clock.last_ns = time.perf_counter_ns()


def time_steps(body: Callable[[], object], steps: int) -> None:
    """In the timed process: call `body` once per step, wait for the GPU, and hand the times over."""
    wait = gpu_wait()
    body()
    step(wait=wait)
    for _ in range(steps):
        body()
        step(wait=wait)


def gpu_wait() -> Callable[[], object] | None:
    """``torch.cuda.synchronize`` where the test has loaded torch and a GPU is there; nothing is imported for it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    wait: Callable[[], object] = torch.cuda.synchronize
    return wait
