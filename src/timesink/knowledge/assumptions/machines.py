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
    2.0, 1.0, 0.65, "us", "no kernel takes less, however little it does",
    "the shortest of a capture: 0.61 to 0.77 us on an H200 (tenth percentile and median of 242), 0.9 to 1.6 on H100, "
    "1.25 on V100 and T4, 1.9 on MI210 and MI300X",
)  # fmt: skip
