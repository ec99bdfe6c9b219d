"""NVTX ranges through whatever the process has: torch, the `nvtx` package, or the C library. Nothing is installed.

For torch.profiler the other way round: ranges that the program opens through them become ranges of the profiler.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

_LIBRARIES = ("libnvToolsExt.so.1", "libnvToolsExt.so", "libnvtx3interop.so.1", "libnvtx3interop.so")


@dataclass(frozen=True, slots=True)
class Nvtx:
    """Nested ranges of a thread (push, pop) and ranges that may overlap (start gives what end takes)."""

    push: Callable[[str], object]
    pop: Callable[[], object]
    start: Callable[[str], object]
    end: Callable[[object], object]

    def range(self, name: str) -> Callable[[], object]:
        """Open a nested range; the result closes it."""
        self.push(name)
        return self.pop


def find_nvtx() -> Nvtx | None:
    """The first way that works; None where NVTX cannot be reached."""
    return _from_torch() or _from_package() or _from_library()


def _from_torch() -> Nvtx | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    marks = torch.cuda.nvtx
    return Nvtx(marks.range_push, marks.range_pop, marks.range_start, marks.range_end)


def _from_package() -> Nvtx | None:
    try:
        import nvtx
    except ImportError:
        return None
    return Nvtx(nvtx.push_range, nvtx.pop_range, nvtx.start_range, nvtx.end_range)


def _from_library() -> Nvtx | None:
    for name in _LIBRARIES:
        try:
            return _bound(ctypes.CDLL(name))
        except (OSError, AttributeError):
            continue
    return None


def _bound(library: ctypes.CDLL) -> Nvtx:
    begin, finish, push, pop = (getattr(library, f"nvtxRange{what}") for what in ("StartA", "End", "PushA", "Pop"))
    begin.restype, finish.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
    return Nvtx(lambda text: push(text.encode()), pop, lambda text: begin(text.encode()), finish)


class Mirror:
    """Opens a range of torch.profiler for each NVTX range of the program: torch.profiler records none of NVTX.

    `open` opens such a range and returns what closes it. Ranges of a thread nest, as those of NVTX do. Functions are
    called first, so that what they raise opens no range.
    """

    def __init__(self, open: Callable[[str], Callable[[], object]]) -> None:
        self._open = open
        self._nested = threading.local()

    def torch(self, nvtx: Any) -> None:
        """The functions of `torch.cuda.nvtx`; its `range` calls them."""
        nvtx.range_push, nvtx.range_pop = self._pushing(nvtx.range_push), self._popping(nvtx.range_pop)

    def package(self, nvtx: Any) -> None:
        """The functions of the package `nvtx` and its `annotate`, as a context and as a decorator."""
        nvtx.push_range, nvtx.pop_range = self._pushing(nvtx.push_range), self._popping(nvtx.pop_range)
        annotate = nvtx.annotate
        begin, enter, leave, decorate = annotate.__init__, annotate.__enter__, annotate.__exit__, annotate.__call__

        @wraps(begin)
        def made(itself: Any, message: str | None = None, *args: Any, **kwargs: Any) -> None:
            begin(itself, message, *args, **kwargs)
            itself.timesink_name = message

        @wraps(decorate)
        def decorated(itself: Any, function: Callable[..., Any]) -> Any:
            inner, name = decorate(itself, function), itself.timesink_name or function.__name__

            @wraps(inner)
            def called(*args: Any, **kwargs: Any) -> Any:
                close = self._open(str(name))
                try:
                    return inner(*args, **kwargs)
                finally:
                    close()

            return called

        annotate.__init__, annotate.__call__ = made, decorated
        annotate.__enter__ = self._pushing(enter, lambda itself: itself.timesink_name)
        annotate.__exit__ = self._popping(leave)

    def _pushing(
        self, push: Callable[..., Any], name_of: Callable[[Any], object] = lambda message: message
    ) -> Callable[..., Any]:
        @wraps(push)
        def pushed(*args: Any, **kwargs: Any) -> Any:
            result = push(*args, **kwargs)
            if not _is_compiling():
                named = args[0] if args else next(iter(kwargs.values()), "")
                self._opened().append(self._open(str(name_of(named))))
            return result

        return pushed

    def _popping(self, pop: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(pop)
        def popped(*args: Any, **kwargs: Any) -> Any:
            if not _is_compiling() and (opened := self._opened()):
                opened.pop()()
            return pop(*args, **kwargs)

        return popped

    def _opened(self) -> list[Callable[[], object]]:
        """What closes the ranges that are open on this thread, the innermost last."""
        if not hasattr(self._nested, "opened"):
            self._nested.opened = []
        opened: list[Callable[[], object]] = self._nested.opened
        return opened


def _is_compiling() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())
