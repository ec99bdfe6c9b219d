"""``timesink.annotate("attention")``: a named range, as decorator and as context manager, that costs next to nothing
while nobody records.

It shows in torch.profiler (as a user annotation) and in Nsight Systems and Compute (as an NVTX range).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from timesink.capture.agent.nvtx import Nvtx, find_nvtx

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
        elif _is_watched is not False and _watched():
            assert _nvtx is not None
            _nvtx.push(self._name)
            self._close = _nvtx.pop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
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


def _watched() -> bool:
    """Whether a Nsight tool watches this process and NVTX can be reached; decided at the first call."""
    global _nvtx, _is_watched
    if _is_watched is None:
        _nvtx = find_nvtx() if any(name in os.environ for name in _WATCHED) else None
        _is_watched = _nvtx is not None
    return _is_watched
