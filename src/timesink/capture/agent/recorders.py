"""What records the steps: torch.profiler, or the range that nsys and ncu wait for, or nothing.

With them go the stopwatch that times single steps, the device included, and ranges around Python's garbage
collections, which neither profiler records by itself and any of which can stop a step.
"""

from __future__ import annotations

import ctypes
import gc
import gzip
import json
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter  # the program may set `time.perf_counter`; this one is from before
from typing import Any

from timesink.capture.agent import samples
from timesink.capture.agent.nvtx import Nvtx, find_nvtx
from timesink.capture.schedule import AgentPlan


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
            self._marks.append(perf_counter())
        else:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)

    def times_ms(self) -> list[float]:
        """The steps so far. Waits for the device."""
        wait()
        return [_between_ms(first, second) for first, second in pairwise(self._marks)]

    def result(self) -> dict[str, object]:
        """The steps so far in ms, and their median. Waits for the device."""
        times = self.times_ms()
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
    if torch is None or not torch.cuda.is_initialized() or not torch.cuda.is_available():
        return None
    return torch


def is_capturing() -> bool:
    """Whether what the program launches now goes into a CUDA graph, where nothing runs and nothing can be timed."""
    torch = _cuda()
    return torch is not None and bool(torch.cuda.is_current_stream_capturing())


NAME = "Python GC"  # as torch.profiler calls them where it records stacks and is asked to
_YOUNG = 0  # collections of the youngest generation run every few hundred allocations and take microseconds

Close = Callable[[], object]


class GarbageMarks:
    """Marks collections between `start` and `stop`. `open` opens a range, and returns what closes it; None: no marks.

    The callback touches no tensor and no module of torch, so that the compiler leaves its frame alone.
    """

    def __init__(self, open: Callable[[], Close] | None = None) -> None:
        self._open = open
        self._close: Close | None = None

    def start(self) -> None:
        """From now on, collections are marked."""
        if self._open is not None:
            gc.callbacks.append(self._collecting)

    def stop(self) -> None:
        """Mark no more; without effect where nothing was started."""
        with suppress(ValueError):
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] > _YOUNG and self._open is not None:
            self._close = self._open()
        elif phase == "stop" and self._close is not None:
            close, self._close = self._close, None
            close()


def torch_marks(torch: Any) -> GarbageMarks:
    """Marks for torch.profiler, without a dispatched call, which a collection may not make wherever it comes.

    PyTorch before 2.2 has no such range: nothing is marked.
    """
    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    if fast is None:
        return GarbageMarks()

    def open() -> Close:
        span = fast(NAME)
        span.__enter__()
        return lambda: span.__exit__(None, None, None)

    return GarbageMarks(open)


def nvtx_marks(nvtx: Nvtx | None) -> GarbageMarks:
    """Marks for Nsight Systems, where NVTX can be reached. Collections end where they begin, on one thread."""
    return GarbageMarks() if nvtx is None else GarbageMarks(lambda: nvtx.range(NAME))


class Recorder:
    """Records nothing, for timing alone; the others record the steps.

    Called at step boundaries: `prepare`, `step` after each step of the warm-up, `start`, `step`, then `stop`.
    """

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


class TorchRecorder(Recorder):
    """torch.profiler, whose own schedule starts the recording; `target` is a `.json.gz` file."""

    def __init__(self, plan: AgentPlan, target: Path) -> None:
        self._plan = plan
        self._target = target
        self._profile: Any = None
        self._garbage = GarbageMarks()
        self._samples = samples.FrameSampler()
        self._sampled = ""

    def prepare(self, warm_up: int) -> None:
        """Start the profiler in its warm-up."""
        import torch
        from torch.profiler import ProfilerActivity, profile, schedule

        # It advises to keep the events of all cycles as Python objects. There is one cycle, and it goes to the file.
        warnings.filterwarnings("ignore", message=".*Profiler clears events")
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
        )
        self._profile.timesink_owns_it = True
        self._garbage = torch_marks(torch)
        self._garbage.start()
        self._profile.start()
        if plan.whole:
            self.start()

    def start(self) -> None:
        """The next step is kept: where stacks are not recorded, its lines are sampled."""
        if not self._plan.stacks:
            self._samples.start()

    def step(self, number: int) -> None:
        """Tell the profiler, which marks the step."""
        self._profile.step()

    def stop(self) -> None:
        """Stop, and write what has not been written by the schedule."""
        self._garbage.stop()
        self._sampled = self._samples.stop()
        if self._plan.whole:
            self._profile.stop()
            self._export(self._profile)
        else:
            self._profile.step()
            self._profile.stop()

    def abandon(self) -> None:
        """Stop the profiler, if it runs."""
        self._garbage.stop()
        self._samples.stop()
        if self._profile is not None:
            self._profile.on_trace_ready = None
            self._profile.stop()

    def _export(self, done: Any) -> None:
        partial = self._target.with_name(f".partial-{self._target.name}")
        plain = partial.with_suffix("")
        done.export_chrome_trace(str(plain))
        if self._plan.stacks:
            add_call_lines(done, plain)
        if self._sampled:
            add_member(plain, samples.MEMBER, self._sampled)
        with plain.open("rb") as text, gzip.open(partial, "wb", compresslevel=6) as packed:
            shutil.copyfileobj(text, packed)
        plain.unlink()
        partial.replace(self._target)


def _synchronisations(torch: Any) -> Any:
    """Ask for synchronisation events, which tell waits from work, where this torch can record them."""
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError):
        return None


class RangeRecorder(Recorder):
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


MEMBER = "timesinkCallLines"
"""The top-level member of the file: `start_ns` of calls, each as what it is later than the one before, and `line`."""
_LIBRARIES = ("site-packages/", "dist-packages/", "lib/python", "torch/", "<", "timesink/")
_MOST = 2_000_000  # events; a longer recording goes without
_TAIL_BYTES = 4096


def add_call_lines(profile: Any, path: Path) -> bool:
    """Add to the JSON file the line of every call that was made outside of libraries. Whether any was.

    Without effect on a file that does not end as JSON does, and where torch keeps no tree or one that cannot be read.
    """
    try:
        roots = profile.profiler.kineto_results.experimental_event_tree()
        calls = sorted(_calls(roots))
    except (AttributeError, UnicodeDecodeError):  # torch may hand over a name that is no UTF-8
        return False
    if not calls:
        return False
    starts = [start for start, _ in calls]
    later = [start - before for start, before in zip(starts, [0, *starts], strict=False)]
    text = json.dumps({"start_ns": later, "line": [line for _, line in calls]}, separators=(",", ":"))
    return add_member(path, MEMBER, text)


def add_member(path: Path, name: str, text: str) -> bool:
    """Add a top-level member to a JSON file, and say whether it ended as such a file does."""
    with path.open("r+b") as file:
        file.seek(0, 2)
        begin = max(file.tell() - _TAIL_BYTES, 0)
        file.seek(begin)
        tail = file.read().rstrip()
        if not tail.endswith(b"}"):
            return False
        file.seek(begin + len(tail) - 1)
        file.write(f',\n  "{name}": {text}\n}}\n'.encode())
    return True


def _calls(roots: list[Any]) -> Iterator[tuple[int, int]]:
    """Start in ns and line of each call that a file of the program itself made."""
    left, seen = list(roots), 0
    while left and seen < _MOST:
        event = left.pop()
        seen += 1
        left += event.children
        caller = getattr(event.typed[1], "caller", None)
        if caller is not None and caller.line_number > 0 and not _is_library(caller.file_name):
            yield event.start_time_ns, caller.line_number


def _is_library(file: str) -> bool:
    return any(mark in file for mark in _LIBRARIES[:3]) or file.startswith(_LIBRARIES[3:])
