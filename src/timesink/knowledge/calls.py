"""What a CUDA or HIP call can make the host do: wait for the device, pay for memory, or order two streams."""

from __future__ import annotations

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
