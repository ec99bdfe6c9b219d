"""Times of the host by name: ranges with the GPU work launched in them, and calls into CUDA and the operating system.

The figures are those of `nsys stats` (nvtx_sum, nvtx_gpu_proj_sum, cuda_api_sum, osrt_sum), for every profiler.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.ranges import NUMBER, NUMBERED_STEP, PROFILER_STEP
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import range_nesting
from timesink.measures.timeline.ranges import backward_projection, range_projection, thread_projection
from timesink.model.arrays import median
from timesink.model.names import mapped
from timesink.model.schema import Table
from timesink.model.tables import RANGES
from timesink.model.trace import Trace

SEPARATOR: Final = " / "
_DURATIONS: Final = (
    pl.len().cast(pl.Int64).alias("count"),
    pl.col("ns").sum().alias("total_ns"),
    pl.col("ns").mean().alias("mean_ns"),
    pl.col("ns").median().alias("median_ns"),
    pl.col("ns").min().alias("min_ns"),
    pl.col("ns").max().alias("max_ns"),
)


def call_times(trace: Trace, table: Table, *, by_thread: bool = False) -> pl.DataFrame:
    """Per rank and name of `api_calls` or `os_calls`, the costliest first.

    Columns: rank, thread where asked for, name, count, total_ns, mean_ns, median_ns, min_ns, max_ns, time_ratio (share
    of all calls of the rank's table; calls that nest or run on several threads at once count in full).
    """
    keys = ["rank", "thread", "name"] if by_thread else ["rank", "name"]
    durations = trace.get(table).with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("ns"))
    times = durations.with_columns(pl.col("name").cast(pl.String)).group_by(keys).agg(*_DURATIONS)
    whole = pl.col("total_ns").sum().over("rank")
    return _sort_times(times.with_columns((pl.col("total_ns") / whole).alias("time_ratio")))


def range_times(
    trace: Trace, *, by_path: bool = False, by_thread: bool = False, steps_as_one: bool = False
) -> pl.DataFrame:
    """Per name of `ranges` and kind, or per path of nested names from the outermost one, the costliest first.

    The numbered steps of torch.profiler are one name, and those of the program (`step #`) where they are asked for
    `steps_as_one`; all other names stay as they are, a domain before a colon.

    Columns: rank, thread if `by_thread`, name (or path), kind, count, total_ns, mean_ns, median_ns, min_ns, max_ns of
    the host's time; time_ratio, the share of the time from the first start to the last end of the rank's ranges in
    which one of that name was open, on any thread (at most 1, where total_ns counts every thread); and of GPU work,
    summed over the ranges and devices:

    - op_count, device_ns (busy time), device_ratio (its share of the time of time_ratio), projected_ns (first start to
      last end), idle_ns (the difference): launched inside the range, or by autograd while the range waited for it;
    - thread_launch_count, thread_projected_ns: of that, what the range's own thread launched, as `nsys stats` projects
      ranges; a graph is one launch;
    - backward_op_count, backward_ns: launched by autograd, outside the range, for operators called in it.
    """
    ranges = trace.get(RANGES)
    names = _names(ranges, NUMBERED_STEP if steps_as_one else "")
    labels = _paths(trace, names) if by_path else names
    frame = ranges.select(
        "rank", "thread", "kind", "start_ns", "end_ns", (pl.col("end_ns") - pl.col("start_ns")).alias("ns")
    ).with_columns(labels.alias("name"), pl.int_range(ranges.height, dtype=pl.Int64).alias("range"))
    frame = frame.filter(ranges["process"] >= 0)
    gpu: list[pl.Expr] = []
    for projection, kept in (
        (range_projection(trace), {"op_count": "op_count", "device_ns": "device_ns", "projected_ns": "projected_ns"}),
        (thread_projection(trace), {"launch_count": "thread_launch_count", "projected_ns": "thread_projected_ns"}),
        (backward_projection(trace), {"op_count": "backward_op_count", "device_ns": "backward_ns"}),
    ):
        sums = projection.with_columns((pl.col("last_ns") - pl.col("first_ns")).alias("projected_ns"))
        sums = sums.group_by("range").agg(pl.col(column).sum().alias(name) for column, name in kept.items())
        frame = frame.join(sums, on="range", how="left")
        gpu += [pl.col(name).sum().cast(pl.Int64) for name in kept.values()]
    keys = ["rank", *(["thread"] if by_thread else []), "name", "kind"]
    times = frame.group_by(keys).agg(*_DURATIONS, *gpu).join(_union(frame, keys), on=keys)
    times = times.with_columns((pl.col("projected_ns") - pl.col("device_ns")).alias("idle_ns"))
    recorded = ranges.group_by("rank").agg(
        (pl.col("end_ns").max() - pl.col("start_ns").min()).clip(1).alias("recorded")
    )
    shared = times.join(recorded, on="rank").with_columns(
        (pl.col("open_ns") / pl.col("recorded")).alias("time_ratio"),
        (pl.col("device_ns") / pl.col("recorded")).alias("device_ratio"),
    )
    return _sort_times(shared.drop("recorded", "open_ns"))


def layer_times(trace: Trace) -> pl.DataFrame:
    """Ranges of several GPU operations that differ by their number alone and come back equally often: layers.

    Columns: rank, device, name (its numbers as #), layers, busy_ns and idle_ns: of the GPU in the median layer, from
    the last end of the work of the one before to its own; all_busy_ns, all_idle_ns: of as many.
    """
    keys, lines = ["rank", "device", "name"], device_timeline(trace)
    calls = range_projection(trace).with_columns(pl.col("name").cast(pl.String).alias("own"))
    calls = calls.filter(~calls["own"].str.contains(NUMBERED_STEP) & (pl.col("op_count") > 1))
    calls = calls.with_columns(pl.col("own").str.replace_all(NUMBER, "#").alias("name"))
    calls = calls.unique([*keys, "first_ns", "last_ns"], keep="first").sort(*keys, "first_ns")  # mirrored ones are two
    calls = calls.with_columns(pl.len().over(*keys, "own").alias("count"))
    calls = calls.filter((pl.col("count") > 1) & (pl.col("count").n_unique().over(keys) == 1))
    layers = []
    for (rank, device, name), part in calls.partition_by(keys, as_dict=True, maintain_order=True).items():
        if (many := part["own"].n_unique()) > 1:
            ends = part["last_ns"].to_numpy()
            idle = median(lines[rank, device].idle.covered_ns(np.minimum(ends[:-1], ends[1:]), ends[1:]))
            busy = median(part["device_ns"].to_numpy())
            layers.append((rank, device, name, many, busy, idle, many * busy, many * idle))
    columns = [*keys, "layers", "busy_ns", "idle_ns", "all_busy_ns", "all_idle_ns"]
    return pl.DataFrame(layers, columns, orient="row", infer_schema_length=None)


def _union(frame: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Per key, `open_ns`: how long at least one of its intervals was open."""
    covered_to = pl.col("end_ns").cum_max().shift(1).over(keys)
    gained = pl.col("end_ns") - pl.max_horizontal("start_ns", covered_to)
    return (
        frame.sort("start_ns").with_columns(gained.clip(0).alias("open_ns")).group_by(keys).agg(pl.col("open_ns").sum())
    )


def _names(ranges: pl.DataFrame, numbered: str) -> pl.Series:
    """The names as they are shown: those of a domain after it, as `nsys stats` writes them; of those that are
    `numbered`, "" for none, the number is not told."""

    def shown(some: pl.Series) -> pl.Series:
        named = some.str.replace(PROFILER_STEP, "ProfilerStep")
        if not numbered:
            return named
        return named.str.replace_all(NUMBER, "#").zip_with(named.str.contains(numbered), named)

    names = mapped(ranges["name"], shown, pl.String)
    if ranges["domain"].null_count() == ranges.height:
        return names
    prefix = ranges["domain"].cast(pl.String) + ":"
    return (prefix.fill_null("") + names).alias("name")


def _sort_times(times: pl.DataFrame) -> pl.DataFrame:
    """Ranks in order, the costliest first, ties by name."""
    return times.sort(["rank", "total_ns", "name"], descending=[False, True, False])


def _paths(trace: Trace, names: pl.Series) -> pl.Series:
    """For each range the names from the outermost range around it down to itself; start/end ranges stand alone.

    Paths are numbered level by level, a pair of the parent's number and the own name being one path::

        range     parent   level  path
        step      -        0      step
        forward   step     1      step / forward
        step      -        0      step
        forward   step     1      step / forward     (the same number as the one before)
    """
    ranges = trace.get(RANGES)
    nested = np.flatnonzero((ranges["kind"] == "push_pop").to_numpy())
    if not nested.size:
        return names
    nesting = range_nesting(trace)
    code = names.rank("dense").to_numpy().astype(np.int64)[nested]
    path = np.empty(nested.size, np.int64)
    texts: list[str] = []
    for level, rows in enumerate(nesting.levels()):
        above = path[nesting.parent[rows]] if level else np.zeros(rows.size, np.int64)
        _, first, number = np.unique(above * (len(names) + 1) + code[rows], return_index=True, return_inverse=True)
        path[rows] = number + len(texts)
        texts += [
            f"{texts[above[one]]}{SEPARATOR}{names[int(nested[rows[one]])]}" if level else names[int(nested[rows[one]])]
            for one in first.tolist()
        ]
    whole = names.to_numpy().copy()
    whole[nested] = np.array(texts, dtype=object)[path]
    return pl.Series("name", whole, dtype=pl.String)
