"""Products of matrices over a grid of sizes, by type: what this GPU takes, whatever program runs."""

from functools import partial
from itertools import product
from typing import Any, Final

import torch

from timesink.trials.bench.timing import on_gpu, tf32, timed_us

_SIDES: Final = (64, 256, 1024, 4096)
_SIDES_OF_CPU: Final = (8, 32)
_TYPES: Final = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def products() -> dict[str, Any]:
    """The `sides`; and for each type microseconds of products with every choice of rows, columns and inner size of
    them, the inner size running fastest."""
    sides = _SIDES if on_gpu() else _SIDES_OF_CPU
    found: dict[str, Any] = {"sides": list(sides)}
    for name, kind in _TYPES.items():
        with tf32(name == "tf32"), torch.no_grad():
            found[name] = [_us(kind, *sizes) for sizes in product(sides, repeat=3)]
    return found


def _us(kind: torch.dtype, rows: int, columns: int, inner: int) -> float:
    where = "cuda" if on_gpu() else "cpu"
    left, right = (torch.randn(size, device=where).to(kind) for size in ((rows, inner), (inner, columns)))
    return timed_us([partial(torch.matmul, left, right)], 1)
