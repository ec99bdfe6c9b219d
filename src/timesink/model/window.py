"""Windows of a trace: what a person asks for, what that is on the trace's clock, and which rows belong to it.

The window is a stretch of the GPU's time. Work on a device belongs to it if it touches the window, and is kept whole.
The GPU runs late, so the host's rows begin earlier: where the first kernel that starts in the window was launched, the
rank's *lead*. With that, the launch of every kernel that starts in the window is kept, and what encloses it: operators,
Python frames, ranges and steps. Kernels already running when the window opens may have no launch, as in any recording
that begins while a program runs; launches whose kernels run after the window have no kernel. A collective belongs to
the window it starts in, for only then is the call known that says what it moves.
"""

from collections.abc import Mapping
from typing import Self

import polars as pl

from timesink.errors import UsageError
from timesink.model.schema import Table
from timesink.model.span import Span
from timesink.model.tables import (
    API_CALLS,
    COLLECTIVES,
    DEVICE_OPS,
    EVENT_WAITS,
    FRAMES,
    GPU_METRICS,
    GRAPH_NODES,
    HOST_OPS,
    OS_CALLS,
    RANGES,
    THREADS,
)
from timesink.records import Record
from timesink.units import time_text


class Window(Record):
    """The half-open stretch a trace was cut to, and the first and last moment of the trace before that, in ns.

    `start_ns` and `end_ns` are as asked, so they may be outside of what was recorded.
    """

    start_ns: int
    end_ns: int
    first_ns: int
    last_ns: int

    @classmethod
    def of(cls, span: Span, first_ns: int, last_ns: int) -> Self:
        """The span in a trace that lasts from `first_ns` to `last_ns`; `UsageError` if it begins after that."""
        if span.start_ns > last_ns - first_ns:
            length, start = time_text(last_ns - first_ns), time_text(span.start_ns)
            raise UsageError(
                f"the window begins {start} after the first event, and the trace is {length} long",
                remedy=f"choose a window that begins before {length}",
            )
        # The last moment belongs to the window that is open there.
        end_ns = last_ns + 1 if span.end_ns is None else first_ns + span.end_ns
        return cls(first_ns + span.start_ns, end_ns, first_ns, last_ns)

    def __str__(self) -> str:
        moments = (self.start_ns, min(self.end_ns, self.last_ns), self.last_ns)
        start, end, length = (time_text(moment - self.first_ns) for moment in moments)
        return f"window {start} to {end} of {length}"


Frames = Mapping[Table, pl.DataFrame]

# Ranges may be of the tool rather than of the program, so they count only where nothing else was recorded.
_FIRST_OF = ((DEVICE_OPS, API_CALLS, HOST_OPS, FRAMES, OS_CALLS), (RANGES,))
_ON_DEVICE = frozenset((DEVICE_OPS, GPU_METRICS))


def extent_ns(tables: Frames) -> tuple[int, int] | None:
    """First start and last end of operators, frames, calls and GPU work, or of ranges where none of these was recorded;
    None where nothing was recorded that has a time. What another recording joined (a process below 0) does not count.
    """
    for group in _FIRST_OF:
        frames = [tables[table] for table in group if table in tables and tables[table].height]
        if GRAPH_NODES in tables:
            frames = [own for frame in frames if (own := frame.filter(pl.col("process") >= 0)).height]
        if frames:
            bounds = [frame.select(pl.col("start_ns").min(), pl.col("end_ns").max()).row(0) for frame in frames]
            return min(start for start, _ in bounds), max(end for _, end in bounds)
    return None


def touching(start_ns: pl.Expr | int, end_ns: int, names: tuple[str, str] = ("start_ns", "end_ns")) -> pl.Expr:
    """Whether a row's half-open interval touches the window; one of no length does if it is in the window."""
    start, end = (pl.col(name) for name in names)
    return (start < end_ns) & ((end > start_ns) | (start >= start_ns))


def leads_ns(tables: Frames, start_ns: int, end_ns: int) -> dict[int, int]:
    """Per rank, when the first of the device ops that start in the window was launched, where that is before it."""
    if DEVICE_OPS not in tables or API_CALLS not in tables:
        return {}
    key = ["rank", "process", "correlation"]
    ops = tables[DEVICE_OPS].filter(pl.col("start_ns").is_between(start_ns, end_ns, closed="left"))
    launches = tables[API_CALLS].filter(pl.col("start_ns") < start_ns).join(ops.select(key), on=key, how="semi")
    return dict(launches.group_by("rank").agg(pl.col("start_ns").min()).iter_rows())


def cut(tables: Frames, start_ns: int, end_ns: int) -> dict[Table, pl.DataFrame]:
    """The rows of the window. Tables without times are kept whole, but for threads of processes that did nothing."""
    leads = leads_ns(tables, start_ns, end_ns)
    kept = {table: _of_window(table, frame, leads, (start_ns, end_ns)) for table, frame in tables.items()}
    if THREADS in kept:
        kept[THREADS] = _of_processes(kept)
    return kept


def _of_window(table: Table, frame: pl.DataFrame, leads: Mapping[int, int], window: tuple[int, int]) -> pl.DataFrame:
    start_ns, end_ns = window
    columns = table.columns
    first: pl.Expr = pl.lit(start_ns)
    if leads and table not in _ON_DEVICE and "rank" in columns:
        first = pl.col("rank").replace_strict(leads, default=start_ns, return_dtype=pl.Int64)
    if table is COLLECTIVES:  # one that runs on no device is the host's
        first = pl.when(pl.col("device").is_null()).then(first).otherwise(start_ns)
        return frame.filter((pl.col("start_ns") >= first) & (pl.col("start_ns") < end_ns))
    if "start_ns" in columns and "end_ns" in columns and not columns["start_ns"].nullable:
        return frame.filter(touching(first, end_ns))
    moment = "start_ns" if table is EVENT_WAITS else "time_ns"
    if moment in columns:
        return frame.filter((pl.col(moment) >= first) & (pl.col(moment) < end_ns))
    return frame


def _of_processes(tables: Frames) -> pl.DataFrame:
    """The threads of processes that have rows in another table."""
    key = ["rank", "process"]
    others = (frame for table, frame in tables.items() if table is not THREADS)
    active = [frame.select(key) for frame in others if "process" in frame.columns]
    seen = pl.concat(active).unique() if active else THREADS.empty().select(key)
    return tables[THREADS].join(seen, on=key, how="semi", maintain_order="left")
