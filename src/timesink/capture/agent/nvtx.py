"""NVTX ranges through whatever the process has: torch, the `nvtx` package, or the C library. Nothing is installed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass

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
