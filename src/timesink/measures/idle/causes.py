"""What an idle device may be waiting for, and which host activity speaks for which cause.

What each launching thread was doing inside some windows: its innermost activity at every instant, and its cause.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink._native import innermost
from timesink.knowledge.calls import CallKind, call_kinds
from timesink.measures.idle.input_pipeline import LOADING_NAME
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.nesting import thread_slices
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, PROFILER_OVERHEAD, RANGES
from timesink.model.trace import Trace
from timesink.whatif.graph import RankWork

# In order of priority: of two that enclose an instant, the first named speaks for it, down to `logging`. Below that,
# the innermost activity speaks for itself.
CAUSES: Final = (
    "profiler", "sync", "allocator", "copy_staging", "loader", "compile", "checkpoint", "garbage_collection",
    "optimizer", "logging", "dispatch", "cuda_call", "python", "untraced",
    "launch_latency", "dependency_communication", "dependency_copy", "dependency_compute", "kernel_gap", "graph_gap",
    "unexplained",
)  # fmt: skip
IdleCause: Final = pl.Enum(list(CAUSES))
HOST_CAUSES: Final = CAUSES[1:14]
CAUSE_CODE: Final = {name: code for code, name in enumerate(CAUSES)}
SPEAKS_FOR_ITSELF: Final = CAUSE_CODE["dispatch"]

_BY_NAME: Final = (
    ("garbage_collection", r"(?i)Python GC|garbage.?collect|^gc[._:]|(^|[.\s/])gc\.py|<built-in method collect of"),
    ("loader", LOADING_NAME),
    ("compile", r"(?i)dynamo_timed|\bautotun|compile_fx|_compile_inner|inductor_compile|triton.*compile"
     r"|async_compile|TorchDynamo Start|entire_frame_compile|backend_compile|cudagraph.*(record|warmup)"),
    ("checkpoint", r"(?i)torch/serialization\.py|save_checkpoint|checkpoint.*sav|state_dict.*sav|torch\.save"),
    ("optimizer", r"(?i)^Optimizer\.(step|zero_grad)#|torch/optim/|(^|[^a-z])optim(izer)?([^a-z]|$|_step)|zero_grad"),
    ("logging", r"(?i)tensorboard|SummaryWriter|wandb|(^|/)logging/__init__\.py|<built-in function print>"
     r"|(^|[^a-z])log(ging|ger)?[_ .:-]?(step|loss|metrics?)|tqdm"),
)  # fmt: skip
# A range that a program put around an operator of the framework (emit_nvtx) is that operator.
_OPERATOR_RANGE: Final = r"^(aten|autograd|torch|prims|c10d)::"


def call_causes(names: pl.Series, stages: BoolArray) -> Int64Array:
    """The cause each CUDA call speaks for; `stages` marks copies from or to pageable memory."""
    kinds = call_kinds(names)
    codes = np.full(kinds.size, CAUSE_CODE["cuda_call"], np.int64)
    codes[np.isin(kinds, [CallKind.DEVICE_SYNC, CallKind.STREAM_SYNC, CallKind.EVENT_SYNC])] = CAUSE_CODE["sync"]
    codes[np.isin(kinds, [CallKind.ALLOCATE, CallKind.FREE])] = CAUSE_CODE["allocator"]
    codes[stages | (kinds == CallKind.COPY_BLOCKING)] = CAUSE_CODE["copy_staging"]
    return codes


def name_causes(names: pl.Series, otherwise: str) -> Int64Array:
    """The cause that the name of an operator, a range or a frame speaks for, or `otherwise`."""

    def classify(distinct: pl.Series) -> pl.Series:
        name = pl.col("name")
        plain = (
            pl.when(name.str.contains(_OPERATOR_RANGE))
            .then(pl.lit(CAUSE_CODE["dispatch"]))
            .otherwise(pl.lit(CAUSE_CODE[otherwise]))
        )
        answer = plain
        for cause, pattern in reversed(_BY_NAME):
            answer = pl.when(name.str.contains(pattern)).then(pl.lit(CAUSE_CODE[cause])).otherwise(answer)
        return distinct.rename("name").to_frame().select(answer.cast(pl.Int64).alias("code")).to_series()

    return mapped(names, classify, pl.Int64).fill_null(CAUSE_CODE[otherwise]).to_numpy()


# Where two of these begin and end together, the later one in this list is the inner one.
ACTIVITY_TABLES: Final = (RANGES, FRAMES, HOST_OPS, API_CALLS, PROFILER_OVERHEAD)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Disjoint stretches in order of timeline and time, each with the row of its innermost activity and its cause."""

    timeline: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    row: Int64Array
    thread: Int64Array
    cause: Int64Array

    def at(self, timeline: Int64Array, time_ns: Int64Array) -> Int64Array:
        """The segment that holds each instant of a timeline, or -1."""
        if not self.row.size or not time_ns.size:
            return np.full(time_ns.size, -1, np.int64)
        origin = min(int(self.start_ns.min()), int(time_ns.min()))
        width = max(int(self.end_ns.max()), int(time_ns.max())) - origin + 1
        wanted = timeline * width + time_ns - origin
        place = np.searchsorted(self.timeline * width + self.start_ns - origin, wanted, side="right") - 1
        held = np.maximum(place, 0)
        inside = (place >= 0) & (self.timeline[held] == timeline) & (self.end_ns[held] > time_ns)
        return np.where(inside, place, -1)


@dataclass(frozen=True, slots=True, eq=False)
class HostActivity:
    """`all`: segments over every table together. `by_table`: segments of one table alone, for names.

    A worker thread and the thread that waits for it share one timeline, since only one of them works at a time;
    `timeline_of` maps a thread's number to it.
    """

    all: Segments
    by_table: dict[Table, Segments]
    timeline_of: Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    timeline: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    row: Int64Array
    thread: Int64Array
    cause: Int64Array


def host_activity(trace: Trace, work: RankWork, windows: Intervals) -> HostActivity:
    """Activity of a rank's launching threads, of the rows that touch the windows."""
    threads = work.calls.threads
    timeline_of = np.arange(len(threads))
    timeline_of[work.bursts.worker] = work.bursts.owner
    parts = {table: _part(trace, table, work, timeline_of, windows) for table in ACTIVITY_TABLES}
    joined = _Part(*(np.concatenate([getattr(p, f) for p in parts.values()]) for f in _Part.__slots__))
    return HostActivity(_segments(joined), {table: _segments(part) for table, part in parts.items()}, timeline_of)


def _part(trace: Trace, table: Table, work: RankWork, timeline_of: Int64Array, windows: Intervals) -> _Part:
    """Rows of a table that touch the windows on a launching thread."""
    frame = trace.get(table)
    number = {pair: n for n, pair in enumerate(work.calls.threads)}
    thread = np.full(frame.height, -1, np.int64)
    if table is PROFILER_OVERHEAD:
        pairs = frame.select("process", "thread").rows()
        thread[:] = [number.get(pair, -1) for pair in pairs]
        thread[(frame["rank"] != work.rank).to_numpy()] = -1
    else:
        for (rank, process, id_), first, last in thread_slices(frame):
            if rank == work.rank:
                thread[first:last] = number.get((process, id_), -1)
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    if table is RANGES:
        thread[(frame["kind"] != "push_pop").to_numpy()] = -1
    rows = np.flatnonzero(thread >= 0)
    rows = rows[windows.covered_ns(start[rows], end[rows]) > 0]
    cause = _causes(trace, table, frame, rows)
    return _Part(timeline_of[thread[rows]], start[rows], end[rows], rows, thread[rows], cause)


def _causes(trace: Trace, table: Table, frame: pl.DataFrame, rows: Int64Array) -> Int64Array:
    names = frame["name"].gather(rows)
    if table is PROFILER_OVERHEAD:
        return np.full(rows.size, CAUSE_CODE["profiler"], np.int64)
    if table is API_CALLS:
        return call_causes(names, _pageable(trace, frame)[rows])
    return name_causes(names, {RANGES: "untraced", FRAMES: "python", HOST_OPS: "dispatch"}[table])


def _pageable(trace: Trace, calls: pl.DataFrame) -> BoolArray:
    """Calls that copied from or to pageable memory."""
    ops = trace.get(DEVICE_OPS).filter((pl.col("src_memory") == "pageable") | (pl.col("dst_memory") == "pageable"))
    if not ops.height:
        return np.zeros(calls.height, bool)
    ids = ops["correlation"].drop_nulls().unique()
    copies = np.flatnonzero(np.isin(calls["correlation"].fill_null(-1).to_numpy(), ids.to_numpy()))
    keys = calls[copies].select("rank", "correlation").with_row_index("at")
    both = keys.join(ops.select("rank", "correlation").unique(), on=["rank", "correlation"], how="semi")
    answer = np.zeros(calls.height, bool)
    answer[copies[both["at"].to_numpy()]] = True
    return answer


def _segments(part: _Part) -> Segments:
    """Innermost activity at each instant; above `dispatch` the enclosing activity of highest priority speaks."""
    order = np.lexsort((-part.end_ns, part.start_ns, part.timeline))
    timeline, cause = part.timeline[order], part.cause[order]
    start, end, at, top = innermost(timeline, part.start_ns[order], part.end_ns[order], cause)
    spoken = np.where(top < SPEAKS_FOR_ITSELF, top, cause[at])
    return Segments(timeline[at], start, end, part.row[order][at], part.thread[order][at], spoken)
