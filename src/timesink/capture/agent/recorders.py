"""What records the steps: torch.profiler, or the range that nsys and ncu wait for, or nothing."""

from __future__ import annotations

import ctypes
import inspect
import sys
from pathlib import Path
from typing import Any, Protocol

from timesink.capture.agent.garbage import GarbageMarks, nvtx_marks, torch_marks
from timesink.capture.agent.nvtx import find_nvtx
from timesink.capture.agent.stopwatch import wait
from timesink.capture.schedule import Plan


class Recorder(Protocol):
    """Called at step boundaries: `prepare`, `step` after each step of the warm-up, `start`, `step`, then `stop`."""

    def prepare(self, warm_up: int) -> None:
        """Load what takes time; the next `warm_up` steps are not kept."""

    def start(self) -> None:
        """The next step is kept."""

    def step(self, number: int) -> None:
        """A step has ended, and step `number` (from 1) begins."""

    def stop(self) -> None:
        """The last step has ended: write what was recorded."""

    def abandon(self) -> None:
        """Stop without a result."""


class TorchRecorder:
    """torch.profiler with a schedule of its own making; `target` is a `.json.gz` file."""

    def __init__(self, plan: Plan, target: Path) -> None:
        self._plan = plan
        self._target = target
        self._profile: Any = None
        self._garbage = GarbageMarks()

    def prepare(self, warm_up: int) -> None:
        """Start the profiler in its warm-up."""
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        plan, steps = self._plan, self._plan.steps
        self._profile = profile(
            activities=activities,
            schedule=None if plan.whole else schedule(wait=0, warmup=warm_up, active=steps.active, repeat=1),
            on_trace_ready=None if plan.whole else self._export,
            record_shapes=plan.shapes,
            with_stack=plan.stacks,
            profile_memory=plan.memory,
            experimental_config=_synchronisations(torch),
            **({"acc_events": True} if "acc_events" in inspect.signature(profile).parameters else {}),
        )
        self._profile.timesink_owns_it = True
        self._garbage = torch_marks(torch)
        self._garbage.start()
        self._profile.start()

    def start(self) -> None:
        """The profiler's schedule does it."""

    def step(self, number: int) -> None:
        """Tell the profiler, which marks the step."""
        self._profile.step()

    def stop(self) -> None:
        """Stop, and write what has not been written by the schedule."""
        self._garbage.stop()
        if self._plan.whole:
            self._profile.stop()
            self._export(self._profile)
        else:
            self._profile.step()
            self._profile.stop()

    def abandon(self) -> None:
        """Stop the profiler, if it runs."""
        self._garbage.stop()
        if self._profile is not None:
            self._profile.on_trace_ready = None
            self._profile.stop()

    def _export(self, done: Any) -> None:
        partial = self._target.with_name(f".partial-{self._target.name}")
        done.export_chrome_trace(str(partial))
        partial.replace(self._target)


def _synchronisations(torch: Any) -> Any:
    """Ask for synchronisation events, which tell waits from work, where this torch can record them."""
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError):
        return None


class RangeRecorder:
    """cudaProfilerStart and Stop, and an NVTX range per step; for nsys, which opens `early`, and ncu, which does not:
    it takes seconds for every kernel inside.
    """

    def __init__(self, early: bool) -> None:
        self._nvtx = find_nvtx()
        self._garbage = nvtx_marks(self._nvtx)
        self._early = early
        self._open: object = None

    def prepare(self, warm_up: int) -> None:
        """Open the profiler's range, where it is to be open during the warm-up."""
        if self._early:
            _profiler_range("Start")

    def start(self) -> None:
        """Open the profiler's range, if it is not open yet, and the first step's."""
        if not self._early:
            _profiler_range("Start")
        self._mark("step 1")
        self._garbage.start()

    def step(self, number: int) -> None:
        """End a step's range and begin the next one's."""
        if self._open is not None:
            self._mark(f"step {number}")

    def stop(self) -> None:
        """Close both ranges; kernels still in flight belong to the last step."""
        self._garbage.stop()
        self._mark(None)
        wait()
        _profiler_range("Stop")

    def abandon(self) -> None:
        """Close the step's range."""
        self._garbage.stop()
        self._mark(None)

    def _mark(self, name: str | None) -> None:
        if self._nvtx is None:
            return
        if self._open is not None:
            self._nvtx.end(self._open)
        self._open = None if name is None else self._nvtx.start(name)


class NoRecorder:
    """For timing alone."""

    def prepare(self, warm_up: int) -> None:
        """Nothing."""

    def start(self) -> None:
        """Nothing."""

    def step(self, number: int) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""

    def abandon(self) -> None:
        """Nothing."""


def _profiler_range(which: str) -> None:
    """Through torch where it is loaded (it knows its runtime), else through the driver."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        runtime = torch.cuda.cudart()
        (runtime.cudaProfilerStart if which == "Start" else runtime.cudaProfilerStop)()
        return
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    (driver.cuProfilerStart if which == "Start" else driver.cuProfilerStop)()
