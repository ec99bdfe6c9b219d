"""What calls make the host do: of CUDA to wait, pay for memory, order streams, launch; of the operating system to read
and write, sleep, wait for another thread.
"""

from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import polars as pl

from timesink.knowledge import Pattern, Patterns
from timesink.model.arrays import Int8Array
from timesink.model.names import mapped

_FILE: Final = Patterns(__file__, globals())

if TYPE_CHECKING:

    def __getattr__(name: str) -> Pattern: ...


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


_PATTERNS: Final = (
    (CallKind.DEVICE_SYNC, _FILE.DEVICE_SYNC),
    (CallKind.STREAM_SYNC, _FILE.STREAM_SYNC),
    (CallKind.EVENT_SYNC, _FILE.EVENT_SYNC),
    (CallKind.COPY, _FILE.COPY),
    (CallKind.COPY_BLOCKING, _FILE.COPY_BLOCKING),
    (CallKind.ALLOCATE, _FILE.ALLOCATION),
    (CallKind.FREE, _FILE.FREE),
    (CallKind.STREAM_WAIT, _FILE.STREAM_WAIT),
    (CallKind.EVENT_RECORD, _FILE.EVENT_RECORD),
)
# What CUPTI calls each call that synchronises, by the call's own name.
SYNC_KINDS: Final = (
    (_FILE.STREAM_WAIT, "stream_wait_event"),
    (_FILE.STREAM_SYNC, "stream"),
    (_FILE.EVENT_SYNC, "event"),
    (_FILE.EVENT_QUERY, "event"),
    (_FILE.DEVICE_SYNC, "device"),
)


def call_kinds(names: pl.Series) -> Int8Array:
    """The `CallKind` of each name of `api_calls`."""
    kinds = mapped(names, lambda distinct: _kinds_of(tuple(distinct)), pl.Int8)
    return (kinds.fill_null(0) if kinds.null_count() else kinds).to_numpy()


@lru_cache(maxsize=16)  # several measures ask for the same calls, and all ranks of a job make them
def _kinds_of(names: tuple[str, ...]) -> pl.Series:
    name = pl.col("name")
    kind = pl.lit(int(CallKind.OTHER), pl.Int8)
    for wanted, pattern in reversed(_PATTERNS):
        kind = pl.when(name.str.contains(pattern)).then(pl.lit(int(wanted), pl.Int8)).otherwise(kind)
    kind = pl.when(name.str.contains(_FILE.STREAM_ORDERED)).then(pl.lit(int(CallKind.OTHER), pl.Int8)).otherwise(kind)
    return pl.DataFrame({"name": names}, schema={"name": pl.String}).select(kind.alias("kind")).to_series()
