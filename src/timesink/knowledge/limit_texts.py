"""How a limit on a number of a table is written: ``mean(kernels.mean_ns[name~gemm, device=0]) <= 1.05x``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...
