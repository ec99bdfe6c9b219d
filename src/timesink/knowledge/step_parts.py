"""What limits a step, and what each part of a step is called. Every door uses these names, and no others."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

Bottleneck = StrEnum(
    "Bottleneck",
    "HOST_SYNC INPUT_PIPELINE HOST_TO_DEVICE_COPY DEVICE_TO_HOST_COPY LAUNCH_BOUND HOST_PYTHON "
    "UNRECORDED_CODE OPERATING_SYSTEM RUNTIME_CALLS HOST_OPERATORS GARBAGE_COLLECTION ALLOCATOR LATE_START SLOW_STEPS "
    "FRAGMENTATION ALLOCATOR_CHURN LOGITS_PEAK GRADIENTS_KEPT OPTIMIZER_STATE ACTIVATIONS MEMORY_LEAK "
    "DUPLICATED_GRADIENT_BUCKETS OPTIMIZER_UNFUSED POINTWISE_UNFUSED TINY_KERNELS "
    "ATTENTION_UNFUSED PRECISION LAYOUT_CONVERSION DTYPE_CONVERSION SHAPE_ALIGNMENT GRAPH_BREAKS EAGER_ISLANDS "
    "RECOMPILATION COMPILE_DOMINATES STREAM_SERIALIZATION ONE_STREAM COMMUNICATION_EXPOSED COMMUNICATION_SMALL "
    "UNITS_SMALL EXCHANGE_REPEATED COLLECTIVE_AWAITED KERNELS_CONTENDED SLOW_LINK STRAGGLER RANKS_IMBALANCED "
    "PIPELINE_BUBBLE MEMORY_BOUND_KERNEL COMPUTE_BOUND_KERNEL LATENCY_BOUND_KERNEL FAR_FROM_BOUND OCCUPANCY "
    "SMALL_GRIDS BUSY_NOT_WORKING UNUSED_LANES UNCOALESCED BANK_CONFLICTS REGISTER_SPILLS DIVERGENCE "
    "ATOMICS CLOCK_THROTTLED PROFILER_OVERHEAD ACTIVATIONS_RECOMPUTED FORWARD_REPEATED CONSTANTS_REBUILT "
    "PARAMETERS_ONE_BY_ONE ONE_AT_A_TIME LAUNCHES_BLOCKING DEBUGGING_LEFT_ON THREADS_OVERSUBSCRIBED DEVICE_SHARED "
    "PREFILL_BLOCKS BATCH_SMALL DEVICE_COPIES CACHE_COPIED REFERENCE_KERNELS WORK_UNUSED NONE UNDECIDED",
)
"""What limits the step, each cause by its one name. The list is closed: every finding names one, that of its rule or of
the rule whose cause it saw; the first finding's is the diagnosis's."""

OF_MEMORY: Final = frozenset(
    {
        Bottleneck.LOGITS_PEAK,
        Bottleneck.GRADIENTS_KEPT,
        Bottleneck.OPTIMIZER_STATE,
        Bottleneck.ACTIVATIONS,
        Bottleneck.MEMORY_LEAK,
        Bottleneck.FRAGMENTATION,
        Bottleneck.DUPLICATED_GRADIENT_BUCKETS,
    }
)
"""Causes that take memory, and no time."""
OF_KERNELS: Final = frozenset(
    {
        Bottleneck.MEMORY_BOUND_KERNEL,
        Bottleneck.COMPUTE_BOUND_KERNEL,
        Bottleneck.FAR_FROM_BOUND,
        Bottleneck.OCCUPANCY,
        Bottleneck.SMALL_GRIDS,
        Bottleneck.BUSY_NOT_WORKING,
        Bottleneck.UNUSED_LANES,
    }
)
"""Causes within a kernel, of which its counters say more."""

IDLE_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "loader": "input pipeline",
        "sync": "host sync",
        "copy_staging": "staging of copies",
        "allocator": "allocator",
        "compile": "compilation",
        "checkpoint": "checkpoint",
        "garbage_collection": "garbage collection",
        "optimizer": "optimizer on the CPU",
        "logging": "logging",
        "dispatch": "framework dispatch",
        "cuda_call": "runtime calls",
        "os_call": "operating system",
        "python": "host Python",
        "unrecorded_code": "unrecorded code",
        "profiler": "profiler overhead",
        "launch_latency": "launch latency",
        "dependency_communication": "waits for communication",
        "dependency_copy": "waits for a copy",
        "dependency_compute": "waits for another stream",
        "kernel_gap": "gaps between queued kernels",
        "graph_gap": "gaps inside CUDA graphs",
        "migration": "gaps before page migrations",
        "unexplained": "unexplained",
    }
)
"""Causes of idle time, by the names that JSON and SQL have them under. One that a rule names has that name."""

WORK_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute": "compute",
        "communication": "exposed communication",
        "copy": "exposed copies",
    }
)
"""Kinds of device work. Exposed: nothing was computed beside it."""


def part_words(kind: str) -> str:
    """`compute`, or `idle: host sync`."""
    if kind in WORK_WORDS:
        return WORK_WORDS[kind]
    return f"idle: {IDLE_WORDS[kind]}" if kind in IDLE_WORDS else kind.replace("_", " ")
