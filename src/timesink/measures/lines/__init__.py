"""Where in the program's text time goes: the Python line behind each kernel, each wait and each host call.

GPU time, idle time and host time by line of the program, and GPU time by call path.

GPU time is the sum of the durations of kernels, copies and memsets; what runs at once counts in full. Idle time is that
of the idle blame, at the line where the thread was that kept the device waiting. Host time is that of a line's own
function and of the libraries that it calls, less what its own callees take.
"""

from typing import Literal

import numpy as np
import polars as pl

from timesink.measures.idle.blame import idle_blame
from timesink.measures.lines.common import heaviest_line
from timesink.measures.lines.stacks import (
    NEAR_NS,
    Line,
    Stack,
    frame_nesting,
    of_frames,
    of_ranges,
    of_texts,
    op_stacks,
    sampled_stacks,
    stack_book,
)
from timesink.measures.timeline.attribution import range_nesting
from timesink.model.arrays import Int64Array
from timesink.model.nesting import THREAD
from timesink.model.tables import DEVICE_OPS, FRAMES, HOST_STACKS
from timesink.model.trace import Trace, remembered
from timesink.records import Record


class LineTime(Record):
    """One line of the program on one rank. `line` is None for what nothing recorded leads back to a line or range.

    `host_ns` is None where neither frames nor samples were recorded.
    """

    rank: int
    line: Line | None
    gpu_ns: int
    operations: int
    idle_ns: int
    host_ns: int | None


class PathTime(Record):
    """One call path, outermost first, empty where unknown, and the GPU time of what was launched there."""

    rank: int
    stack: Stack
    gpu_ns: int
    operations: int
    idle_ns: int


@remembered
def path_times(trace: Trace) -> tuple[PathTime, ...]:
    """By rank and path, the most GPU and idle time first. Sums over paths are the trace's GPU and idle time."""
    ops, book = trace.get(DEVICE_OPS), stack_book(trace)
    gpu = ops.select(
        "rank", pl.Series("stack", op_stacks(trace)), (pl.col("end_ns") - pl.col("start_ns")).alias("gpu_ns")
    )
    gpu = gpu.group_by("rank", "stack").agg(pl.col("gpu_ns").sum(), pl.len().cast(pl.Int64).alias("operations"))
    idle = idle_stacks(trace).group_by("rank", "stack").agg(pl.col("idle_ns").sum())
    both = gpu.join(idle, on=["rank", "stack"], how="full", coalesce=True).with_columns(
        pl.exclude("rank", "stack").fill_null(0)
    )
    rows = both.select("rank", "stack", "gpu_ns", "operations", "idle_ns").rows()
    times = [PathTime(rank, book.stacks[at] if at >= 0 else (), *figures) for rank, at, *figures in rows]
    return tuple(sorted(times, key=lambda time: (-time.gpu_ns - time.idle_ns, time.rank, _words(time.stack))))


@remembered
def line_times(trace: Trace) -> tuple[LineTime, ...]:
    """By rank and innermost line, the most GPU and idle time first. Sums as those of `path_times`."""
    host = host_times(trace)
    totals: dict[tuple[int, Line | None], list[int]] = {}
    for time in path_times(trace):
        figures = totals.setdefault((time.rank, time.stack[-1] if time.stack else None), [0, 0, 0])
        for place, figure in enumerate((time.gpu_ns, time.operations, time.idle_ns)):
            figures[place] += figure
    for key in host or {}:
        totals.setdefault(key, [0, 0, 0])
    times = [
        LineTime(rank, line, gpu_ns, operations, idle_ns, None if host is None else host.get((rank, line), 0))
        for (rank, line), (gpu_ns, operations, idle_ns) in totals.items()
    ]
    return tuple(sorted(times, key=_rank_of_line))


def _rank_of_line(time: LineTime) -> tuple[int, int, int, str]:
    return -time.gpu_ns - time.idle_ns, -(time.host_ns or 0), time.rank, _words((time.line,) if time.line else ())


def _words(stack: Stack) -> str:
    return ";".join(f"{line.file}({line.line}): {line.function}" for line in stack)


def idle_stacks(trace: Trace) -> pl.DataFrame:
    """Idle time by rank and stack: columns rank, stack (-1 for none), idle_ns.

    Of a stretch in which the thread was sampled, each sample stands for an equal part.
    """
    frame = idle_blame(trace).frame
    length = (frame["end_ns"] - frame["start_ns"]).alias("idle_ns")
    number = of_frames(trace, frame["frame_row"].fill_null(-1).cast(pl.Int64).to_numpy())
    stretches = frame.select("rank", "process", "thread", "start_ns", "end_ns", "range_row").with_columns(
        length, pl.Series("stack", number)
    )
    sampled = _samples_within(trace, stretches)
    rest = stretches.filter(~pl.int_range(pl.len()).is_in(sampled["stretch"].unique().implode()))
    ranges = _range_rows(trace, rest)
    fallback = of_ranges(trace, ranges)
    stack = np.where(rest["stack"].to_numpy() >= 0, rest["stack"].to_numpy(), fallback)
    parts = (rest.with_columns(pl.Series("stack", stack)), sampled)
    return pl.concat([part.select("rank", "stack", "idle_ns") for part in parts])


def sampled_line(trace: Trace, stretches: pl.DataFrame) -> Line | None:
    """The line behind most of these stretches of idle time: of each by the samples in it, else by the first one soon
    after it or the last one soon before (a look waits for the interpreter, and comes when Python calls something), else
    by the line of the operation that ended it."""
    stretches = stretches.with_columns(idle_ns=pl.col("end_ns") - pl.col("start_ns"))
    within = _samples_within(trace, stretches)
    rest = stretches.filter(~pl.int_range(pl.len()).is_in(within["stretch"].unique().implode()))
    known = sampled_stacks(trace)
    number = np.full(rest.height, -1, np.int64)
    if known.height:
        wanted = rest.select(*THREAD, "start_ns", "end_ns").with_row_index("row").drop_nulls("thread")
        sides: tuple[tuple[str, Literal["backward", "forward"]], ...]
        sides = ("start_ns", "backward"), ("end_ns", "forward")
        for end, side in sides:
            near = wanted.sort(end).join_asof(
                known, left_on=end, right_on="time_ns", by=THREAD, strategy=side, tolerance=NEAR_NS,
                check_sortedness=False,
            ).drop_nulls("stack")  # fmt: skip
            number[near["row"].to_numpy()] = near["stack"].to_numpy()
    ended = op_stacks(trace)[rest["op_row"].to_numpy()]
    number = np.where(number >= 0, number, ended)
    told = [*within.select("stack", "idle_ns").iter_rows(), *zip(number.tolist(), rest["idle_ns"], strict=True)]
    return heaviest_line(trace, told)


def _range_rows(trace: Trace, stretches: pl.DataFrame) -> Int64Array:
    """The innermost push/pop range of the thread at the start of each stretch, or -1."""
    on_host = stretches.with_row_index("row").drop_nulls("thread").sort("rank", "process", "thread", "start_ns")
    answer = np.full(stretches.height, -1, np.int64)
    answer[on_host["row"].to_numpy()] = range_nesting(trace).innermost_of(on_host)
    return answer


_STRETCH = ("rank", "process", "thread", "start_ns", "end_ns", "idle_ns")


def _samples_within(trace: Trace, stretches: pl.DataFrame) -> pl.DataFrame:
    """One row per sample inside a stretch of its thread: stretch (its row), rank, stack, idle_ns in whole ns."""
    known = sampled_stacks(trace)
    empty = pl.DataFrame(schema={"stretch": pl.UInt32, "rank": pl.Int32, "stack": pl.Int64, "idle_ns": pl.Int64})
    if not known.height:
        return empty
    numbered = stretches.select(*_STRETCH).with_row_index("stretch").drop_nulls("thread").sort("start_ns")
    held = known.join_asof(
        numbered, left_on="time_ns", right_on="start_ns", by=["rank", "process", "thread"], strategy="backward",
        check_sortedness=False,
    )  # fmt: skip
    held = held.filter(pl.col("time_ns") < pl.col("end_ns")).sort("stretch", "time_ns")
    place, count = pl.int_range(pl.len()).over("stretch"), pl.len().over("stretch")
    share = (place + 1) * pl.col("idle_ns") // count - place * pl.col("idle_ns") // count
    return held.select("stretch", "rank", "stack", share.cast(pl.Int64).alias("idle_ns")) if held.height else empty


@remembered
def host_times(trace: Trace) -> dict[tuple[int, Line | None], int] | None:
    """Host time by rank and line; None where nothing tells."""
    stacks = host_stack_times(trace)
    if stacks is None:
        return None
    totals: dict[tuple[int, Line | None], int] = {}
    for (rank, stack), time_ns in stacks.items():
        totals[rank, stack[-1]] = totals.get((rank, stack[-1]), 0) + time_ns
    return totals


@remembered
def host_stack_times(trace: Trace) -> dict[tuple[int, Stack], int] | None:
    """Host time by rank and call path, most first; None where nothing tells."""
    frames, samples = trace.get(FRAMES), trace.get(HOST_STACKS)
    if frames.height:
        own_ns, number = frame_nesting(trace).self_ns, of_frames(trace, np.arange(frames.height))
        rank = frames["rank"]
    elif samples.height:
        periodic = samples.filter(pl.col("kind") == "sample")
        number, rank = of_texts(trace, periodic["stack"]), periodic["rank"]
        own_ns = _periods(periodic)
    else:
        return None
    stacks = stack_book(trace).stacks
    sums = pl.DataFrame({"rank": rank, "stack": number, "ns": own_ns}).filter(pl.col("stack") >= 0)
    totals = sums.group_by("rank", "stack").agg(pl.col("ns").sum())
    rows = totals.sort("ns", "rank", "stack", descending=[True, False, False]).iter_rows()
    return {(at_rank, stacks[stack]): time_ns for at_rank, stack, time_ns in rows}


def _periods(samples: pl.DataFrame) -> Int64Array:
    """What each sample stands for: the median distance of the samples of its thread."""
    gaps = samples.sort("time_ns").select(
        pl.col("time_ns").diff().over("rank", "process", "thread", mapping_strategy="group_to_rows").alias("gap")
    )
    period = gaps["gap"].median()
    return np.full(samples.height, int(period) if isinstance(period, (int, float)) else 0, np.int64)
