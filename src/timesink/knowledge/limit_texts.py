"""How a limit on a number of a table is written: ``mean(kernels.mean_ns[name~gemm, device=0]) <= 1.05x``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from timesink.knowledge.pattern import Pattern, Patterns

_FILE: Final = Patterns(Path(__file__).with_suffix(".md"))
globals().update(vars(_FILE))

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...
