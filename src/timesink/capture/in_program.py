"""What a program itself calls: `step()`, `annotate()` and `profile()`. They cost next to nothing while nobody records.

``timesink.step()``, called once at the end of every step, marks it. Where the environment variable ``TIMESINK_STEPS``
names a file, it writes one JSON object per line to it: ``{"step": 1, "seconds": 0.0101}``, optionally with
``"check": "2.3107"``. Ranks other than 0 (environment variable RANK) write to the same path with ``.rank<N>`` added.

``timesink.annotate("attention")`` is a named range, as decorator and as context manager. It shows in torch.profiler (as
a user annotation) and in Nsight Systems and Compute (as an NVTX range).

``with timesink.profile(steps=6) as run:`` records steps of a loop in this very process, for notebooks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from time import perf_counter_ns, strftime  # a program may set those of `time`; these are from before
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from timesink.capture.agent.nvtx import Nvtx, find_nvtx
from timesink.capture.errors import refused
from timesink.capture.schedule import StepSchedule

if TYPE_CHECKING:
    from timesink.capture.manifest import Capture


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


def step(*, check: object = None, wait: Callable[[], object] | None = None) -> None:
    """Mark the end of a step; the time since the previous call is its duration. The first call only starts the clock.

    Parameters
    ----------
    check
        What the step computed (a loss, a checksum), as text or number: runs that disagree are not compared.
    wait
        Called before the clock is read, such as ``torch.cuda.synchronize``. Without it the time is the host's, which
        equals the device's in the mean once the launch queue is full, but not step by step.
    """
    path = os.environ.get(VARIABLE)
    if path:
        _write(path, check, wait)
    for listener in listeners:
        listener()


def _write(path: str, check: object, wait: Callable[[], object] | None) -> None:
    if wait is not None:
        wait()
    now_ns = perf_counter_ns()
    if _clock.process != os.getpid():  # first call, or a forked child, which must not write into its parent's file
        if _clock.file is not None:
            return
        _clock.start(path)
    elif _clock.file is not None:
        _clock.count += 1
        line: dict[str, object] = {"step": _clock.count, "seconds": (now_ns - _clock.last_ns) / 1e9}
        if check is not None:
            line["check"] = str(check)
        _clock.file.write(json.dumps(line) + "\n")
    _clock.last_ns = perf_counter_ns()


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


Function = TypeVar("Function", bound=Callable[..., Any])

# Nsight Systems and Nsight Compute set one of these in every process they watch.
_WATCHED = ("NSYS_PROFILING_SESSION_ID", "NVTX_INJECTION64_PATH", "NV_NSIGHT_INJECTION_TRANSPORT_TYPE")
_nvtx: Nvtx | None = None
_is_watched: bool | None = None


class annotate:  # noqa: N801 - used like a function
    """A range around a block or a function. Enter one object at a time: give each nested block its own."""

    __slots__ = ("_close", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._close: Callable[[], object] | None = None

    def __enter__(self) -> annotate:
        torch = sys.modules.get("torch")
        if torch is not None and _records(torch):
            span = torch.autograd.profiler.record_function(self._name)
            span.__enter__()
            self._close = lambda: span.__exit__(None, None, None)
        elif _is_watched is not False and _is_watched_by_nsight():
            assert _nvtx is not None
            self._close = _nvtx.range(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        if self._close is not None:
            close, self._close = self._close, None
            close()

    def __call__(self, function: Function) -> Function:
        """The function, each call of it in a range of its own."""
        name = self._name

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with annotate(name):
                return function(*args, **kwargs)

        return called  # type: ignore[return-value]


def _records(torch: Any) -> bool:
    """Whether torch.profiler runs; False while torch is being imported."""
    try:
        return bool(torch.autograd.profiler._is_profiler_enabled)
    except AttributeError:
        return False


def _is_watched_by_nsight() -> bool:
    """Whether a Nsight tool watches this process and NVTX can be reached; decided at the first call."""
    global _nvtx, _is_watched
    if _is_watched is None:
        _nvtx = find_nvtx() if any(name in os.environ for name in _WATCHED) else None
        _is_watched = _nvtx is not None
    return _is_watched


@dataclass(slots=True)
class ProfiledBlock:
    """Filled when the block ends: `capture` holds files, manifest and step times."""

    folder: Path
    capture: Capture | None = None

    def read(self) -> Any:
        """The trace of the block."""
        if self.capture is None:
            raise refused("there is no capture", "read the run after the with block, on rank 0")
        return self.capture.read()


@contextmanager
def profile(
    steps: int | StepSchedule = 6,
    *,
    out: Path | None = None,
    shapes: bool = True,
    stacks: bool = False,
    memory: bool = False,
) -> Iterator[ProfiledBlock]:
    """Record `steps` steps of the loop in the block with torch.profiler; the block runs on to its end.

    A step ends where ``timesink.step()`` is called, else where the first optimizer steps. Before them a few steps
    settle and a few are timed without the profiler (`StepSchedule` says how many). Of a job of several ranks each
    records into the same folder, by default ``captures/profile``; rank 0 waits for the others and has the capture.

    Raises
    ------
    CaptureError
        The block ended before the steps were recorded.
    """
    from timesink.capture.agent.recording import Agent, free_folder, rank_and_world
    from timesink.capture.agent.torch_hooks import watch_for_now
    from timesink.capture.profilers import Recording, TorchOptions
    from timesink.capture.running import CaptureSettings, ready_folder

    rank, world = rank_and_world()
    if world > 1:
        folder = free_folder(out if out is not None else Path("captures/profile"), rank)
    else:
        folder = ready_folder(out if out is not None else Path("captures") / strftime("%Y%m%d-%H%M%S-profile"))
    wanted = steps if isinstance(steps, StepSchedule) else StepSchedule(settle=2, timed=4, warm_up=1, active=steps)
    settings = CaptureSettings(folder.absolute(), wanted, keep_running=True)
    options = TorchOptions(shapes, stacks, memory)
    agent = Agent(options.plan((), settings))
    run = ProfiledBlock(folder)
    listeners.append(agent.explicit_step)
    stop_watching = watch_for_now(agent)
    try:
        yield run
    finally:
        listeners.remove(agent.explicit_step)
        stop_watching()
        agent.leave()
    if rank == 0:
        run.capture = Recording(sys.argv, options, settings).finish_in_process()
