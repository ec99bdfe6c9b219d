"""Loading data on threads that launch GPU work: how long it takes, and how long a GPU idles meanwhile.

Loading is what says so by name: PyTorch's DataLoader ranges and frames, and ranges or operators called like it. Where
no name of a rank does, the host work before the copy that brings each step's batch stands for it (`staging.py`).

Input preparation that carries no name: host work at the head of a step, up to the copy that brings the batch.

A step whose first device work is a copy from host memory began by making what it copies. That stretch, from the step's
mark to the last such copy call before any other launch, less CUDA calls inside it, is taken for input preparation. It
is an inference: a program that logs or polls there has that counted too. Steps known by their kernels only have no mark
on the host, and a copy later in a step (a scalar, a mask) is no batch: neither yields anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.steps.marks import StepMarker, step_marks
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered

_STAGING_THREAD: Final = ("rank", "process", "thread")
_PROCESS: Final = ("rank", "process")


@remembered
def staged_input(trace: Trace) -> Mapping[tuple[int, int, int], Intervals]:
    """Inferred input preparation by (rank, process, thread), the thread being the one that copies."""
    found = step_marks(trace)
    if found.marker in (None, StepMarker.KERNEL_PATTERN):
        return {}
    heads = _heads(found.frame, _launching_calls(trace))
    calls = trace.get(API_CALLS)
    stretches: dict[tuple[int, int, int], Intervals] = {}
    for key, part in sorted(heads.partition_by(_STAGING_THREAD, as_dict=True, maintain_order=True).items()):
        whole = Intervals.union_of(part["host_start_ns"].to_numpy(), part["copy_start_ns"].to_numpy())
        mine = calls.filter(
            pl.all_horizontal(pl.col(name) == value for name, value in zip(_STAGING_THREAD, key, strict=True))
        )
        stretches[int(key[0]), int(key[1]), int(key[2])] = whole - Intervals.of(mine)
    return stretches


def _launching_calls(trace: Trace) -> pl.DataFrame:
    """Calls that launched device work, by start; `brings` says that all of it was copied from host memory."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    from_host = ((ops["kind"] == "copy") & (ops["copy_kind"] == "h2d")).fill_null(False).to_numpy()
    brings = np.ones(calls.height, np.bool_)
    brings[links.call[links.linked & ~from_host]] = False
    launching = calls.select(*_STAGING_THREAD, "start_ns").with_columns(pl.Series("brings", brings))
    return launching.filter(pl.Series(links.launching(calls.height))).sort("start_ns", maintain_order=True)


def _heads(steps: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """rank, process, thread, host_start_ns, copy_start_ns of each step that begins with copies from host memory."""
    placed = calls.join_asof(
        steps.select(*_PROCESS, "step", "host_start_ns", "host_end_ns").sort("host_start_ns"),
        left_on="start_ns",
        right_on="host_start_ns",
        by=_PROCESS,
        check_sortedness=False,
    ).filter(pl.col("start_ns") < pl.col("host_end_ns"))
    in_head = pl.col("brings").cast(pl.Int8).cum_min().over(*_PROCESS, "step") == 1
    return (
        placed.filter(in_head)
        .group_by(*_PROCESS, "step")
        .agg(
            pl.col("thread").last(),
            pl.col("host_start_ns").first(),
            pl.col("start_ns").last().alias("copy_start_ns"),
        )
        .sort(*_PROCESS, "step")
    )


LOADING_NAME: Final = (
    r"(?i)enumerate\(DataLoader\)|DataLoaderIter|data_?loader"
    r"|(^|[^a-z])(data|input|batch|sample)s?[ _.-]?(load|fetch|prep|prefetch|wait|decode|collate|augment|ingest)"
    r"|(^|[^a-z])(load|fetch|next|get|read|prepare|prep|wait_?for)[ _.:-]?(next[ _.:-]?)?(a[ _])?"
    r"(data|input|batch|sample)([^a-z]|s|$|loading)"
    r"|dataset[ _.:-]?(next|get)|input[ _-]?pipeline|(^|[^a-z])dataload|^(data|dataloading|data_time|input)$"
)
LOADING_FRAME: Final = r"torch/utils/data/dataloader\.py\(\d+\): (__next__|_next_data|_get_data|_try_get_data)$"
OPERATOR_NAME: Final = r"^[A-Za-z_]\w*::"  # aten::, c10d:: and their like: no operator of a framework loads data

_THREAD = ("rank", "process", "thread")
_SCHEMA = {
    "rank": pl.Int32,
    "process": pl.Int64,
    "thread": pl.Int64,
    "name": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}


@dataclass(frozen=True, slots=True, eq=False)
class RankInput:
    """One rank: `loading` is the union of its data loading on launching threads.

    `count` ranges or stretches make it up. `name` is the range with the most time, None where loading carries no name
    and is inferred from the copy that ends it; `thread` is the thread with the most. `per_step_ns` is loading
    time inside the host intervals of kept steps, per step; None without steps. `idle` is, per device, the idle time
    inside loading: a bound on what faster loading could win back, since the GPU may have had another reason to wait.
    """

    rank: int
    name: str | None
    thread: int
    count: int
    loading: Intervals
    per_step_ns: float | None
    idle: Mapping[Device, Intervals]

    @property
    def inferred(self) -> bool:
        """Whether no name says that this is loading."""
        return self.name is None

    @property
    def loading_ns(self) -> int:
        """Time some launching thread of the rank was loading."""
        return self.loading.total_ns

    @property
    def idle_ns(self) -> int:
        """Idle time inside loading, summed over devices."""
        return sum(part.total_ns for part in self.idle.values())


@dataclass(frozen=True, slots=True, eq=False)
class InputPipeline:
    """Per rank with any data loading on a launching thread; `frame` lists its ranges and stretches.

    Columns: rank, process, thread, name (null where inferred), start_ns, end_ns. `elsewhere_count` counts named ranges
    on threads that launch nothing (workers): they cost the GPU nothing directly and are left out. Where the trace
    records no launches, every thread may be the launching one and `threads_known` is false.
    """

    by_rank: Mapping[int, RankInput]
    frame: pl.DataFrame
    elsewhere_count: int
    threads_known: bool

    def __getitem__(self, rank: int) -> RankInput:
        return self.by_rank[rank]

    def __iter__(self) -> Iterator[RankInput]:
        return iter(self.by_rank.values())


@remembered
def input_pipeline(trace: Trace) -> InputPipeline:
    """Find data loading, and the idle time it coincides with."""
    found = _named_rows(trace)
    launching = _launching_threads(trace)
    named = found.join(launching, on=_THREAD, how="semi", maintain_order="left") if launching.height else found
    rows = pl.concat([named, _inferred_rows(trace).join(named, on="rank", how="anti")]).sort(
        *_THREAD, "start_ns", "end_ns", "name"
    )
    ranks = rows["rank"].unique().sort()
    return InputPipeline(
        by_rank={rank: _rank(trace, rank, rows.filter(pl.col("rank") == rank)) for rank in ranks},
        frame=rows,
        elsewhere_count=found.height - named.height,
        threads_known=bool(launching.height),
    )


def _named_rows(trace: Trace) -> pl.DataFrame:
    tables = ((RANGES, LOADING_NAME), (HOST_OPS, LOADING_NAME), (FRAMES, LOADING_FRAME))
    frames = [(trace.get(table), pattern) for table, pattern in tables]
    parts = [
        frame.filter(matches(frame["name"], pattern) & ~matches(frame["name"], OPERATOR_NAME)).select(
            *_THREAD, pl.col("name").cast(pl.String), "start_ns", "end_ns"
        )
        for frame, pattern in frames
    ]
    return pl.concat([pl.DataFrame(schema=_SCHEMA), *parts])


def _inferred_rows(trace: Trace) -> pl.DataFrame:
    parts = [
        pl.DataFrame({"start_ns": stretches.start_ns, "end_ns": stretches.end_ns}).select(
            *(pl.lit(value, _SCHEMA[name]).alias(name) for name, value in zip(_THREAD, thread, strict=True)),
            pl.lit(None, pl.String).alias("name"),
            "start_ns",
            "end_ns",
        )
        for thread, stretches in staged_input(trace).items()
    ]
    return pl.concat([pl.DataFrame(schema=_SCHEMA), *parts])


def _launching_threads(trace: Trace) -> pl.DataFrame:
    calls = trace.get(API_CALLS)
    launching = launch_links(trace).launching(calls.height)
    threads = [key for key, first, last in thread_slices(calls) if launching[first:last].any()]
    return pl.DataFrame(threads, schema={name: _SCHEMA[name] for name in _THREAD}, orient="row")


def _rank(trace: Trace, rank: int, rows: pl.DataFrame) -> RankInput:
    loading = Intervals.of(rows)
    longest = (
        rows.group_by("thread", "name")
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("time"))
        .sort(["time", "thread", "name"], descending=[True, False, False])
    )
    kept = steps(trace).kept.filter(pl.col("rank") == rank)
    covered = loading.covered_ns(kept["host_start_ns"].to_numpy(), kept["host_end_ns"].to_numpy())
    return RankInput(
        rank=rank,
        name=longest["name"][0],
        thread=int(longest["thread"][0]),
        count=rows.height,
        loading=loading,
        per_step_ns=float(covered.mean()) if covered.size else None,
        idle={key: line.idle & loading for key, line in device_timeline(trace).by_device.items() if key[0] == rank},
    )


def loading_windows(trace: Trace, rank: int) -> dict[tuple[int, int], Intervals]:
    """Per (process, thread) of a rank, when it was loading: the host time that a fed input pipeline would not spend."""
    rows = input_pipeline(trace).frame.filter(pl.col("rank") == rank)
    parts = rows.sort("process", "thread").partition_by("process", "thread", as_dict=True, maintain_order=True)
    return {(int(process), int(thread)): Intervals.of(part) for (process, thread), part in parts.items()}
