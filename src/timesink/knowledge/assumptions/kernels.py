"""Which kernels belong together, and which are too short to say anything."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumption import Assumption

SOFTMAX_REACH: Final = Assumption(
    4, 8, 12, "kernels", "between a softmax and its product: scale, mask, dropout, copies",
    "768 products in attention of 246 tune captures of benchmarks/faults: 4 at most between; casts and a mask of other "
    "programs double them", "tune", "KRN103",
)  # fmt: skip
MEAN_REACH: Final = Assumption(
    3, 3, 9, "kernels", "a copy and the output projection come before the mean that is no attention",
    "tune captures of benchmarks/faults: the mean of weights is the third kernel after 41 of 41 products, others "
    "come tenth and later: any figure between decides the same", "tune", "KRN103",
)  # fmt: skip
CHAIN_LEAST: Final = Assumption(
    2, 3, 4, "kernels", "a run of two is an operation and its activation, which one library call does as one kernel",
    "cuBLASLt: an epilogue adds the bias and the activation", "", "KRN104",
)  # fmt: skip
CHAIN_SIZES: Final = Assumption(
    4, 8, 16, "times", "members move within this factor of the longest: scalars at the end of a loss are no chain",
    "benchmarks/faults: with it no healthy program of the tune splits has a chain",
    "tune", "KRN104",
)  # fmt: skip
TINY_US: Final = Assumption(
    5.0, 10.0, 20.0, "us", "starting and ending a kernel is a large part of a shorter one, whatever its grid",
    "an H100 ran 300 elementwise kernels of a graph in 410 us, 1.4 us each: a seventh of it", "", "KRN107 KRN111",
)  # fmt: skip
LATENCY_BOUND_US: Final = Assumption(
    4.0, 6.0, 10.0, "us", "bound by latency: a fused kernel takes no longer than one of them",
    "copies on a device of up to 4 MB take 0.8 to 1.6 us whatever their size, of 8 MB 3.7 us (H200, 334 copies): a GPU "
    "of half the bandwidth takes 7", "tune", "CMP101",
)  # fmt: skip
UNKNOWN_KEPT: Final = Assumption(
    0.25, 0.5, 0.75, "of the time beside the longest",
    "what kernels keep of which nobody knows the traffic, when a compiler fuses them",
    "nothing is known between no fusion and a full one: mean and quartiles of a uniform distribution", "", "CMP101",
)  # fmt: skip
GENERATED_BYTES: Final = Assumption(
    16.0, 32.0, 64.0, "bytes a thread",
    "a generated pointwise kernel moves so much where shapes are not recorded: 8 elements of 2 bytes each way",
    "compiled programs of benchmarks/faults with shapes: 32 and 48 bytes in kernels that are not bound by latency",
    "tune", "CMP101",
)  # fmt: skip
CACHES_ALIKE: Final = Assumption(
    3, 4, 8, "blocks of one size", "keys and values of requests come as one block per layer",
    "one block per layer: GPT-2 small has 12; 2 or 3 blocks of one size come by chance", "", "MEM106",
)  # fmt: skip
