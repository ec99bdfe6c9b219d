"""The public places of PyTorch where steps and phases begin and end, wrapped once the program has imported torch.

Two kinds of wrapper: those that tell the agent that a step has ended, and (`--auto-ranges`) those that put ranges
around data loading, forward, backward, optimizer and checkpoint. Nothing here runs inside a compiled graph.
"""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from timesink.capture.agent.loops import LoopWatch
from timesink.capture.agent.marks import StepMark
from timesink.capture.agent.nvtx import Mirror, find_nvtx
from timesink.capture.agent.recording import Agent
from timesink.capture.schedule import Mode

_MUTED = ("start", "stop", "export_chrome_trace", "export_stacks", "export_memory_timeline")


def install(agent: Agent) -> None:
    """The program has imported torch: mark phases if so planned, watch for steps, or record from here on.

    Steps are watched for in optimizers, profilers, backward passes, graphs, root modules and loops.
    """
    if agent.plan.auto_ranges and agent.plan.mode in (Mode.TORCH, Mode.RANGE):
        _mark_phases(agent.plan.mode)
    if agent.plan.mode is Mode.TORCH:
        import torch

        _MIRROR.torch(torch.cuda.nvtx)
    _watch_optimizers(agent)
    _watch_profilers(agent)
    _watch_forward(agent)
    _watch_loaders(agent)
    _watch_graphs(agent)
    _watch_backward(agent)
    agent.record_whole()
    processes = sys.modules.get("multiprocessing.process")
    if not agent.plan.whole and (processes is None or processes.parent_process() is None):
        LoopWatch(agent).start()
        atexit.register(agent.tell_seen)


def _mirrored(name: str) -> Callable[[], object]:
    """A range of torch.profiler, in processes that use torch."""
    return _record_function(name) if "torch" in sys.modules else lambda: None


_MIRROR = Mirror(_mirrored)


def mirror_package() -> None:
    """The program has imported the package `nvtx`: its ranges are ranges of torch.profiler too."""
    with suppress(AttributeError):  # another module of that name
        _MIRROR.package(sys.modules["nvtx"])


def _watch_optimizers(agent: Agent) -> None:
    """Around what torch itself puts around every `step`, so that a step ends after all of the optimizer's ranges."""
    import torch
    from torch.optim.optimizer import Optimizer

    inner = Optimizer.profile_hook_step

    def hooked(step: Callable[..., Any]) -> Callable[..., Any]:
        marked = inner(step)
        agent.evidence.optimizer_made()

        @wraps(marked)
        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = marked(self, *args, **kwargs)
            if not torch.compiler.is_compiling():
                agent.optimizer_stepped(self)
            return result

        return called

    Optimizer.profile_hook_step = staticmethod(hooked)


def _watch_profilers(agent: Agent) -> None:
    """The program's own profiler marks steps. Two cannot run at once: where steps are captured, it records nothing."""
    from torch.autograd.profiler_util import EventList
    from torch.profiler import profile

    def is_ours(it: Any) -> bool:
        return getattr(it, "timesink_owns_it", False)

    captures, own_step = agent.plan.mode is not Mode.STEPS, profile.step

    def step(self: Any) -> None:
        if is_ours(self) or not captures:
            own_step(self)
        if not is_ours(self):
            agent.step_ended(StepMark.PROFILER)

    profile.step = step
    if not captures:
        return
    for name in _MUTED:
        if hasattr(profile, name):
            setattr(profile, name, _unless_muted(getattr(profile, name), is_ours))
    profile.key_averages = _unless_muted(profile.key_averages, is_ours, EventList)


def _unless_muted(
    method: Callable[..., Any], is_ours: Callable[[Any], bool], otherwise: Callable[[list[Any]], Any] | None = None
) -> Callable[..., Any]:
    @wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_ours(self):
            return method(self, *args, **kwargs)
        return None if otherwise is None else otherwise([])

    return called


def _watch_forward(agent: Agent) -> None:
    """Count calls of the outermost module, until a better mark of steps has been seen."""
    import torch

    module = torch.nn.Module
    original = module.__call__
    inside = agent.evidence.inside

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or getattr(inside, "depth", 0):
            return original(self, *args, **kwargs)
        inside.depth = 1
        try:
            result = original(self, *args, **kwargs)
        finally:
            inside.depth = 0
        if agent.evidence.module_called(trains=torch.is_grad_enabled()):
            agent.step_ended(StepMark.FORWARD)
        elif agent.source is not None and agent.source > StepMark.FORWARD and module.__call__ is called:
            module.__call__ = original
        return result

    module.__call__ = called


def _watch_backward(agent: Agent) -> None:
    """Outermost backward passes, also those that only ask for gradients."""
    import torch

    def watched(original: Callable[..., Any], *, by_grad: bool) -> Callable[..., Any]:
        @wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            is_inner = torch.compiler.is_compiling() or torch._C._current_graph_task_id() != -1
            result = original(*args, **kwargs)
            if not is_inner and agent.evidence.went_back(by_grad=by_grad):
                agent.step_ended(StepMark.BACKWARD)
            return result

        return called

    torch.autograd.backward = watched(torch.autograd.backward, by_grad=False)
    torch.autograd.grad = watched(torch.autograd.grad, by_grad=True)


def watch_for_now(agent: Agent) -> Callable[[], None]:
    """Count steps of optimizers that are there already; the result stops it. For a block of a running program."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        agent.optimizer_stepped(optimizer)

    stop: Callable[[], None] = register_optimizer_step_post_hook(after).remove
    return stop


def _watch_loaders(agent: Agent) -> None:
    """How many batches DataLoader workers may have ready: so many steps after a pause are faster than the others.

    Where steps are only timed, a batch of the first data set is the mark that counts where there is no other. A capture
    cannot wait and see whether there is.
    """
    from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

    original = _MultiProcessingDataLoaderIter.__init__

    def created(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        original(self, loader, *args, **kwargs)
        agent.prefetched = max(agent.prefetched, loader.num_workers * (loader.prefetch_factor or 0))

    _MultiProcessingDataLoaderIter.__init__ = created
    if agent.plan.mode is not Mode.STEPS:
        return
    following = _BaseDataLoaderIter.__next__

    def handed_out(self: Any) -> Any:
        batch = following(self)
        agent.batch_handed_out(self._dataset)
        return batch

    _BaseDataLoaderIter.__next__ = handed_out
    _BaseDataLoaderIter.next = handed_out


def _watch_graphs(agent: Agent) -> None:
    """A step that is captured in a CUDA graph ends wherever that graph is replayed."""
    import torch

    graph = torch.cuda.CUDAGraph
    begin, end, replay = graph.capture_begin, graph.capture_end, graph.replay

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        agent.captured = None
        return begin(self, *args, **kwargs)

    def capture_end(self: Any) -> Any:
        self.timesink_mark = agent.captured
        return end(self)

    def replayed(self: Any) -> Any:
        result = replay(self)
        agent.evidence.seen.replays += 1
        mark = getattr(self, "timesink_mark", None)
        if mark is not None or not getattr(agent.evidence.inside, "depth", 0):  # a module's call has graphs of its own
            agent.step_ended(StepMark.REPLAY if mark is None else mark)
        return result

    graph.capture_begin, graph.capture_end, graph.replay = capture_begin, capture_end, replayed


def _mark_phases(mode: Mode) -> None:
    """Put ranges around the public places where phases begin and end."""
    import torch
    from torch.utils.data import dataloader

    marked = PhaseMarker(mode)
    iterators = dataloader._BaseDataLoaderIter
    iterators.__next__ = marked(iterators.__next__, "data")
    iterators.next = iterators.__next__
    torch.nn.Module.__call__ = _of_modules(marked(torch.nn.Module.__call__, "forward"))
    torch.autograd.backward = marked(torch.autograd.backward, "backward")
    torch.save = marked(torch.save, "checkpoint")
    _mark_optimizers(marked)


def _of_modules(called: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a code object of its own, whose variable `self` is the module.

    torch.profiler, where it records stacks, takes every frame that runs the code of `Module.__call__` for a call of a
    module, and looks for the module in that variable.
    """

    @wraps(called)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return called(self, *args, **kwargs)

    return call


class PhaseMarker:
    """Puts one range around the outermost call of each kind; calls inside it, and compiled ones, have none."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._inside = threading.local()
        self._open: Callable[[str], Callable[[], object]] | None = None

    def __call__(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, with a range called `name` around it."""
        import torch

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or getattr(self._inside, name, False):
                return function(*args, **kwargs)
            setattr(self._inside, name, True)
            if self._open is None:
                self._open = _range_opener(self._mode)
            close = self._open(name)
            try:
                return function(*args, **kwargs)
            finally:
                close()
                setattr(self._inside, name, False)

        return called


def _range_opener(mode: Mode) -> Callable[[str], Callable[[], object]]:
    """Opens a range and returns what closes it: as NVTX for nsys and ncu, as `record_function` for torch.profiler."""
    if mode is Mode.TORCH:
        return _record_function
    nvtx = find_nvtx()
    return (lambda name: lambda: None) if nvtx is None else nvtx.range


def _record_function(name: str) -> Callable[[], object]:
    from torch.autograd.profiler import record_function

    span = record_function(name)
    span.__enter__()
    return lambda: span.__exit__(None, None, None)


def _mark_optimizers(marked: PhaseMarker) -> None:
    from torch.optim.optimizer import Optimizer

    original = Optimizer.profile_hook_step

    def hooked(step: Callable[..., Any]) -> Callable[..., Any]:
        return marked(original(step), "optimizer")

    Optimizer.profile_hook_step = staticmethod(hooked)
