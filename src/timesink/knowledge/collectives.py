"""What kinds of collective there are, and what each says about time and bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

# Longer words first: "allreduce" holds "reduce", "sendrecv" holds "send".
_WORDS: Final = (
    "reducescatter", "allreduce", "allgather", "alltoall", "broadcast", "sendrecv", "barrier",
    "scatter", "gather", "reduce", "send", "recv",
)  # fmt: skip
_KERNEL: Final = re.compile(r"^.*?Kernel_?")
_CUSTOM_ALL_REDUCE: Final = ("crossdevicereduce", "lamport", "quickreduce", "multimem")

# Every rank needs every rank's data: nobody leaves before the last has come. Others are one-sided.
BARRIERS: Final = frozenset({"allreduce", "allgather", "reducescatter", "alltoall", "barrier"})
POINT_TO_POINT: Final = frozenset({"send", "recv"})
# An exchange that NCCL runs as sends and receives: every rank takes part, but the name does not prove it.
EXCHANGE: Final = "sendrecv"

# Bus bandwidth = algorithm bandwidth x this (nccl-tests, PERFORMANCE.md), n the number of ranks.
BUS_FACTORS: Final[Mapping[str, Callable[[int], float]]] = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "sendrecv": lambda n: 1.0,
    "send": lambda n: 1.0,
    "recv": lambda n: 1.0,
}


def kind_of_kernel(name: str) -> str:
    """The collective that a communication kernel's name stands for; `unknown` where it says none."""
    head = name.split("(", maxsplit=1)[0].removeprefix("void ")
    compact = re.sub(r"[^a-z]", "", _KERNEL.sub("", head).lower()) or re.sub(r"[^a-z]", "", head.lower())
    if any(word in compact for word in _CUSTOM_ALL_REDUCE):
        return "allreduce"
    return next((word for word in _WORDS if word in compact), "unknown")


def message_bytes(kind: str, in_bytes: int | None, out_bytes: int | None) -> int | None:
    """The S of nccl-tests: the whole array, which all-gather puts out and reduce-scatter takes in."""
    return out_bytes if kind in ("allgather", "recv") else in_bytes
