"""Times every step of a program that runs as it is: no profiler, nothing muted, and to its own end.

Each process that makes steps writes one small JSON file as it ends. A GPU is waited for twice, at the first mark and at
the end: the marks in between are events in the current stream, so that launches run ahead as they would without them.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from itertools import pairwise
from math import isfinite
from pathlib import Path

from timesink.capture.agent.recorders import Stopwatch
from timesink.capture.agent.recording import Agent, StepMark, rank_and_world
from timesink.capture.schedule import AgentPlan


class StepTimer(Agent):
    """Keeps the times between the best marks seen so far: a better one starts anew.

    With `plan.stop` the program is ended after `plan.steps.active` steps. Calls of modules and batches end no program
    that has an optimizer: they may come before the training.
    """

    def __init__(self, plan: AgentPlan) -> None:
        super().__init__(plan)
        self._host_s: list[float] = []
        self._most = plan.steps.active if plan.stop else None

    def _mark(self, source: StepMark) -> None:
        if self.source is None:
            atexit.register(self.write)
        if self.source is None or source > self.source:
            self.source, self._watch = source, Stopwatch()
            self._host_s = [time.perf_counter()]
        elif source is self.source and self._watch is not None:
            self._watch.lap()
            self._host_s.append(time.perf_counter())
            if len(self._host_s) - 1 == self._most and not self._may_be_before_the_training:
                self.write()
                raise SystemExit(0)

    @property
    def _may_be_before_the_training(self) -> bool:
        return self.source is StepMark.LOADER or (self.source is StepMark.FORWARD and self.has_optimizer)

    def write(self) -> None:
        """Hand the times over, once. Where the device's cannot be had, those of the host."""
        if self.finished or self.source is None or os.getpid() != self._process:
            return
        self.finished = True
        rank, world = rank_and_world()
        facts = {"rank": rank, "world": world, "mark": self.source.name.lower(), "steps_ms": self._times_ms()}
        target = Path(self.plan.folder) / f"found-{os.getpid()}.json"
        partial = target.with_suffix(".tmp")
        partial.write_text(json.dumps(facts), encoding="utf-8")
        partial.replace(target)

    def _times_ms(self) -> list[float]:
        """A step has the host's time where CUDA began within it."""
        host_ms = [(end - start) * 1e3 for start, end in pairwise(self._host_s)]
        try:
            device_ms = self._watch.times_ms() if self._watch is not None else []
        except RuntimeError:  # the marks lie on streams of several devices, or the device has failed
            device_ms = []
        if len(device_ms) != len(host_ms):
            device_ms = host_ms
        times_ms = [device if isfinite(device) else host for device, host in zip(device_ms, host_ms, strict=True)]
        return times_ms[: self._most]
