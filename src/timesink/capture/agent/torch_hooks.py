"""The public places of PyTorch where steps and phases begin and end, wrapped once the program has imported torch.

Two kinds of wrapper: those that tell the agent that a step has ended, and (`--auto-ranges`) those that put ranges
around data loading, forward, backward, optimizer and checkpoint. Nothing here runs inside a compiled graph.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from timesink.capture.agent.nvtx import Mirror, find_nvtx
from timesink.capture.agent.recording import Agent, StepMark
from timesink.capture.schedule import Mode

_MUTED = ("start", "stop", "export_chrome_trace", "export_stacks", "export_memory_timeline")


def install(agent: Agent) -> None:
    """The program has imported torch: mark phases if so planned, watch for steps, or record from here on.

    Steps are watched for in optimizers, profilers and root modules.
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
    agent.record_whole()


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
        agent.has_optimizer = True  # an optimizer is being made

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
    """Count calls of the outermost module without gradients, until a better mark of steps has been seen."""
    import torch

    module = torch.nn.Module
    original = module.__call__
    inside = threading.local()

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or getattr(inside, "depth", 0):
            return original(self, *args, **kwargs)
        inside.depth = 1
        try:
            result = original(self, *args, **kwargs)
        finally:
            inside.depth = 0
        if not torch.is_grad_enabled():
            agent.step_ended(StepMark.FORWARD)
        elif agent.source is not None and agent.source > StepMark.FORWARD and module.__call__ is called:
            module.__call__ = original
        return result

    module.__call__ = called


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
        mark = getattr(self, "timesink_mark", None)
        if mark is not None:
            agent.step_ended(mark)
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
