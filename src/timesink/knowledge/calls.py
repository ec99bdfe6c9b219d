"""What CUDA calls make the host do (wait, pay for memory, order streams), and the kinds of collective calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

import polars as pl

from timesink.model.arrays import Int8Array
from timesink.model.names import mapped


class CallKind(IntEnum):
    """OTHER costs the host its own duration and nothing else; so does a launch. cudaEventQuery is OTHER: it polls."""

    OTHER = 0
    DEVICE_SYNC = 1
    STREAM_SYNC = 2
    EVENT_SYNC = 3
    COPY = 4
    COPY_BLOCKING = 5
    FREE = 6
    ALLOCATE = 7
    STREAM_WAIT = 8
    EVENT_RECORD = 9


# nsys appends a version (`_v3020`) or a stream mode (`_ptsz`) to names, so patterns are anchored at the front only.
_PATTERNS: Final = (
    (CallKind.DEVICE_SYNC, r"^(?:(?:cuda|hip)DeviceSynchronize|(?:cu|hip)CtxSynchronize|cudaThreadSynchronize)"),
    (CallKind.STREAM_SYNC, r"^(?:cuda|cu|hip)StreamSynchronize"),
    (CallKind.EVENT_SYNC, r"^(?:cuda|cu|hip)EventSynchronize"),
    (CallKind.COPY, r"^(?:(?:cuda|hip)Memcpy\w*Async|cuMemcpy\w*Async|hipMemcpyWithStream)"),
    (CallKind.COPY_BLOCKING, r"^(?:(?:cuda|hip)Memcpy|cuMemcpy)"),
    (CallKind.ALLOCATE, r"^(?:(?:cuda|hip)(?:Malloc|HostAlloc|HostRegister)"
     r"|cuMem(?:Alloc|HostAlloc|HostRegister|Create|Map)|cuModuleLoad|cuLibraryLoad|hipModuleLoad)"),
    (CallKind.FREE, r"^(?:(?:cuda|hip)(?:Free|HostUnregister|HostFree)"
     r"|cuMem(?:Free|HostUnregister|Unmap|Release)|cuModuleUnload)"),
    (CallKind.STREAM_WAIT, r"^(?:cuda|cu|hip)StreamWaitEvent"),
    (CallKind.EVENT_RECORD, r"^(?:cuda|cu|hip)EventRecord"),
)  # fmt: skip
_STREAM_ORDERED: Final = r"^(?:cuda|cu|hip)(?:Malloc|MemAlloc|Free|MemFree)(?:FromPool)?Async"


def call_kinds(names: pl.Series) -> Int8Array:
    """The `CallKind` of each name of `api_calls`."""

    def classify(distinct: pl.Series) -> pl.Series:
        kind = pl.lit(int(CallKind.OTHER), pl.Int8)
        for wanted, pattern in reversed(_PATTERNS):
            kind = pl.when(pl.col("name").str.contains(pattern)).then(pl.lit(int(wanted), pl.Int8)).otherwise(kind)
        ordered = pl.col("name").str.contains(_STREAM_ORDERED)
        kind = pl.when(ordered).then(pl.lit(int(CallKind.OTHER), pl.Int8)).otherwise(kind)
        return distinct.rename("name").to_frame().select(kind.alias("kind")).to_series()

    return mapped(names, classify, pl.Int8).fill_null(0).to_numpy()


# Longer words first: "allreduce" holds "reduce", "sendrecv" holds "send".
COLLECTIVE_WORDS: Final = (
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
    """The collective that a communication kernel runs, by its name; `unknown` where the name does not say."""
    head = name.split("(", maxsplit=1)[0].removeprefix("void ")
    compact = re.sub(r"[^a-z]", "", _KERNEL.sub("", head).lower()) or re.sub(r"[^a-z]", "", head.lower())
    if any(word in compact for word in _CUSTOM_ALL_REDUCE):
        return "allreduce"
    return next((word for word in COLLECTIVE_WORDS if word in compact), "unknown")


def message_bytes(kind: str, in_bytes: int | None, out_bytes: int | None) -> int | None:
    """The S of nccl-tests: the whole array, which all-gather puts out and reduce-scatter takes in."""
    return out_bytes if kind in ("allgather", "recv") else in_bytes
