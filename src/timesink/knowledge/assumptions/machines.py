"""What machines reach of what their data sheets say."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumption import Assumption

DRAM_SHARE: Final = Assumption(
    0.85, 0.93, 0.95, "of the data sheet's bandwidth", "what kernels that only move bytes reach",
    "the best of nine GPUs in public Nsight Compute reports",
)  # fmt: skip
DRAM_BUSY: Final = Assumption(
    0.90, 0.95, 1.0, "of the cycles that the counter counts", "device memory is full there: refreshes take the rest",
    "the highest of 87 kernels on nine GPUs was 94.9 %", "", "NCU108",
)  # fmt: skip
TENSOR_SHARE: Final = Assumption(
    0.65, 0.80, 0.85, "of the data sheet's rate", "what large products reach",
    "bf16, 8192 x 8192 x 8192 on an H200: 790 of 989 TFLOP/s (benchmarks)", "", "KRN109",
)  # fmt: skip
KERNEL_FLOOR_US: Final = Assumption(
    3.0, 2.0, 0.75, "us", "no kernel takes less, however little it does",
    "bounds in use are 2 to 3 us; the shortest kernels of 34 captures (H200) take 0.7 to 0.8 us",
)  # fmt: skip
