"""What kind of program a capture is of, by the names of its kernels, ranges and threads: whose idioms it knows."""

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from timesink.knowledge import Pattern, Patterns

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


class ProgramKind(StrEnum):
    """Texts of rules have variants by these names (`diagnosis.rule.rule_texts`). Nothing shows a `NATIVE` one to be
    any other: CUDA or HIP in C++, say."""

    PYTORCH = "pytorch"
    JAX = "jax"
    OFFLOAD = "offload"
    SYCL = "sycl"
    NATIVE = "native"


BY_PYTHON: Final = _FILE.BY_PYTHON

FRAMEWORKS: Final = (ProgramKind.PYTORCH, ProgramKind.JAX)
"""Programs that are fed with batches, and written in Python."""

SIGNS: Final = (
    (ProgramKind.PYTORCH, _FILE.OF_TORCH),
    (ProgramKind.OFFLOAD, _FILE.OFFLOADED),
    (ProgramKind.SYCL, _FILE.OF_SYCL),
    (ProgramKind.JAX, _FILE.XLA),
)
"""In the order in which they are asked: what stands on PyTorch may launch kernels of others."""
