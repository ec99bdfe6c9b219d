"""The canonical tables (DESIGN section 4). `ALL` is every one of them, in the order of the reference pages."""

from __future__ import annotations

from timesink.model.tables.device import (
    COLLECTIVES,
    DEVICE_OPS,
    DEVICES,
    EVENT_WAITS,
    GPU_METRICS,
    SOURCES,
    SYNCS,
    CopyKind,
    MemoryKind,
    OpKind,
    SyncKind,
)
from timesink.model.tables.host import (
    API_CALLS,
    FRAMES,
    HOST_OPS,
    OS_CALLS,
    PROFILER_OVERHEAD,
    RANGES,
    THREAD_STATES,
    THREADS,
    RangeKind,
)
from timesink.model.tables.kernels import KERNEL_METRICS, KERNEL_PROFILES, KERNEL_RULES, ClockControl
from timesink.model.tables.memory import MEMORY_EVENTS

ALL = (
    SOURCES,
    DEVICES,
    DEVICE_OPS,
    API_CALLS,
    HOST_OPS,
    RANGES,
    FRAMES,
    OS_CALLS,
    THREAD_STATES,
    THREADS,
    SYNCS,
    EVENT_WAITS,
    COLLECTIVES,
    GPU_METRICS,
    MEMORY_EVENTS,
    PROFILER_OVERHEAD,
    KERNEL_PROFILES,
    KERNEL_METRICS,
    KERNEL_RULES,
)

__all__ = [
    "ALL",
    "API_CALLS",
    "COLLECTIVES",
    "DEVICES",
    "DEVICE_OPS",
    "EVENT_WAITS",
    "FRAMES",
    "GPU_METRICS",
    "HOST_OPS",
    "KERNEL_METRICS",
    "KERNEL_PROFILES",
    "KERNEL_RULES",
    "MEMORY_EVENTS",
    "OS_CALLS",
    "PROFILER_OVERHEAD",
    "RANGES",
    "SOURCES",
    "SYNCS",
    "THREADS",
    "THREAD_STATES",
    "ClockControl",
    "CopyKind",
    "MemoryKind",
    "OpKind",
    "RangeKind",
    "SyncKind",
]
