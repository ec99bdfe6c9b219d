"""Ranges around Python's garbage collections: neither profiler records them by itself, and one can stop a step."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from timesink.capture.agent.nvtx import Nvtx

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
    if nvtx is None:
        return GarbageMarks()

    def open() -> Close:
        nvtx.push(NAME)
        return nvtx.pop

    return GarbageMarks(open)
