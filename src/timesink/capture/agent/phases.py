"""Phases without edits: ranges around data loading, forward, backward, optimizer and checkpoint (`--auto-ranges`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from timesink.capture.agent.nvtx import find_nvtx
from timesink.capture.schedule import Mode

Open = Callable[[str], Callable[[], object]]


def install(mode: Mode) -> None:
    """Wrap the public places once torch is there."""
    import torch
    from torch.utils.data import dataloader

    marked = Marker(mode)
    iterators = dataloader._BaseDataLoaderIter
    iterators.__next__ = marked(iterators.__next__, "data")
    iterators.next = iterators.__next__
    torch.nn.Module.__call__ = marked(torch.nn.Module.__call__, "forward")
    torch.autograd.backward = marked(torch.autograd.backward, "backward")
    torch.save = marked(torch.save, "checkpoint")
    _mark_optimizers(marked)


class Marker:
    """Puts one range around the outermost call of each kind; calls inside it, and compiled ones, have none."""

    def __init__(self, mode: Mode) -> None:
        self._mode = mode
        self._inside = threading.local()
        self._opener: Open | None = None

    def __call__(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function, with a range called `name` around it."""
        import torch

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or getattr(self._inside, name, False):
                return function(*args, **kwargs)
            setattr(self._inside, name, True)
            close = self.open(name)
            try:
                return function(*args, **kwargs)
            finally:
                close()
                setattr(self._inside, name, False)

        return called

    def open(self, name: str) -> Callable[[], object]:
        """Open a range in the profiler's own way; the result closes it."""
        if self._opener is None:
            self._opener = opener(self._mode)
        return self._opener(name)


def opener(mode: Mode) -> Open:
    """How ranges are opened: as NVTX for nsys and ncu, as `record_function` for torch.profiler."""
    if mode is Mode.TORCH:
        return _record_function
    nvtx = find_nvtx()
    if nvtx is None:
        return lambda name: _nothing

    def push(name: str) -> Callable[[], object]:
        nvtx.push(name)
        return nvtx.pop

    return push


def _record_function(name: str) -> Callable[[], object]:
    from torch.autograd.profiler import record_function

    span = record_function(name)
    span.__enter__()
    return lambda: span.__exit__(None, None, None)


def _nothing() -> None:
    pass


def _mark_optimizers(marked: Marker) -> None:
    from torch.optim.optimizer import Optimizer

    original = Optimizer.profile_hook_step

    def hooked(step: Callable[..., Any]) -> Callable[..., Any]:
        return marked(original(step), "optimizer")

    Optimizer.profile_hook_step = staticmethod(hooked)
