"""What each part of a step is called: device work, and the causes of idle time. Every view uses these words."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

IDLE_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "loader": "input pipeline",
        "sync": "blocking waits",
        "copy_staging": "staging of copies",
        "allocator": "memory allocation",
        "compile": "compilation",
        "checkpoint": "checkpoint",
        "garbage_collection": "garbage collection",
        "optimizer": "optimizer on the CPU",
        "logging": "logging",
        "dispatch": "framework dispatch",
        "cuda_call": "runtime calls",
        "os_call": "the operating system",
        "python": "Python",
        "untraced": "untraced CPU time",
        "profiler": "the profiler itself",
        "launch_latency": "launch latency",
        "dependency_communication": "waits for communication",
        "dependency_copy": "waits for a copy",
        "dependency_compute": "waits for another stream",
        "kernel_gap": "gaps between queued kernels",
        "graph_gap": "gaps inside CUDA graphs",
        "migration": "gaps before unified memory migrates",
        "unexplained": "unexplained",
    }
)
"""Causes of idle time, by the names that JSON and SQL have them under."""

WORK_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute": "compute",
        "communication": "exposed communication",
        "copy": "exposed copies",
    }
)
"""Kinds of device work. Exposed: nothing was computed beside it."""


def part_words(kind: str) -> str:
    """`compute`, or `idle: blocking waits`."""
    if kind in WORK_WORDS:
        return WORK_WORDS[kind]
    return f"idle: {IDLE_WORDS[kind]}" if kind in IDLE_WORDS else kind.replace("_", " ")
