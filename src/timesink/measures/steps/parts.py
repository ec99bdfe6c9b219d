"""What a step of one GPU is made of, every nanosecond once: kernels, exposed communication, copies, idle by cause.

Where compute kernels overlap, the time belongs to the one that started first, so that kernels sum to the union of
compute; the time that a kernel runs next to it is then not charged to it a second time.

Ranges are called alike in every step: "batch 17" occurs once and the next step has "batch 18", so both are "batch #".
"stage0" and "stage1" occur in each step and stay what they are.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink._native import summed
from timesink.knowledge.op_class import class_of_ops
from timesink.knowledge.ranges import NUMBER, NUMBERED_STEP
from timesink.measures.idle.blame import by_cause
from timesink.measures.steps import steps
from timesink.measures.steps.marks import step_marks
from timesink.measures.timeline import Device, device_timeline, of_device
from timesink.measures.timeline.attribution import host_places, launch_links, push_pop_ranges
from timesink.model.arrays import Int64Array, found_at, slices
from timesink.model.intervals import Intervals
from timesink.model.nesting import numbered_rows, slice_of
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_IN_STEPS: Final = 0.5  # a name that occurs in fewer of the steps is numbered


@remembered
def range_labels(trace: Trace) -> pl.Series:
    """A name for each row of `push_pop_ranges`; empty for marks of single steps and for ranges without a name."""
    names = push_pop_ranges(trace).select("rank", pl.col("name").cast(pl.String).fill_null(""))
    marks = step_marks(trace).frame.group_by("rank").agg(pl.len().alias("steps"))
    counts = names.group_by("rank", "name").agg(pl.len().alias("count")).join(marks, on="rank", how="left")
    steps = pl.col("steps").fill_null(0)
    recurs = pl.when(steps == 1).then(True).otherwise(pl.col("count") >= pl.max_horizontal(2, _IN_STEPS * steps))
    distinct = counts.group_by("name").agg(recurs.any().alias("recurs"))
    label = (
        pl.when(pl.col("name").str.contains(NUMBERED_STEP))
        .then(pl.lit(""))
        .when("recurs")
        .then("name")
        .otherwise(pl.col("name").str.replace_all(NUMBER, "#"))
    )
    labelled = distinct.select("name", label.alias("label"))
    return names.join(labelled, on="name", how="left", maintain_order="left")["label"]


COMPUTE, COMMUNICATION, COPY, IDLE = "compute", "exposed communication", "exposed copy", "idle"
_GRID: Final = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
_KEY: Final = ("name", "grid", "block", "range")
_SCHEMA: Final = dict.fromkeys(("kind", *_KEY), pl.String()) | dict.fromkeys(("total_ns", "count", "order"), pl.Int64())


class StepParts(Record, eq=False):
    """Parts of the kept steps; `total_ns` of all rows sums to `span_ns`, the length of the `step_count` steps together.

    Each step is taken on the GPU where it lasts longest, since the others of a synchronous job wait for it: `paced_by`
    counts steps per (rank, device), in that order. Without steps the longest span of a GPU is one step.

    `frame`: kind (compute, exposed communication, exposed copy, idle), name (a kernel's, or an idle cause), grid,
    block, range (innermost range around the launch, as `labels` names it), total_ns, count (launches or stretches),
    order (by first occurrence).
    """

    step_count: int
    span_ns: int
    paced_by: Mapping[Device, int]
    frame: pl.DataFrame


@remembered
def step_parts(trace: Trace) -> StepParts:
    """Take the steps of a trace apart."""
    windows = pacing_windows(trace)
    counts = windows.group_by("rank", "device").len().sort("rank", "device")
    paced_by = {(int(rank), int(device)): int(count) for rank, device, count in counts.iter_rows()}
    parts = [_device(trace, key, windows) for key in paced_by]
    frame = pl.concat([pl.DataFrame(schema=_SCHEMA), *parts])
    identity = ["kind", *_KEY]
    totals = frame.group_by(identity, maintain_order=True).agg(pl.col("total_ns", "count").sum(), pl.col("order").min())
    span_ns = int((windows["end_ns"] - windows["start_ns"]).sum())
    return StepParts(windows.height, span_ns, paced_by, totals.filter(pl.col("total_ns") > 0))


@remembered
def pacing_windows(trace: Trace) -> pl.DataFrame:
    """Per kept step the window of the GPU where it lasts longest, first of equals: rank, device, start_ns, end_ns."""
    columns = ["rank", "device", "start_ns", "end_ns"]
    windows = steps(trace).windows
    if windows.height:
        longest_first = windows.sort(["period_ns", "rank", "device"], descending=[True, False, False])
        return longest_first.unique("step", keep="first", maintain_order=True).sort("step").select(columns)
    lines = [(line.rank, line.device, line.span_start_ns, line.span_end_ns) for line in device_timeline(trace)]
    longest = sorted(lines, key=lambda line: (line[2] - line[3], *line))[:1]
    return pl.DataFrame(longest, schema={name: windows.schema[name] for name in columns}, orient="row")


def step_series(trace: Trace) -> Int64Array:
    """Step times in order, ns; empty where the trace has no steps."""
    if not steps(trace).windows.height:
        return np.empty(0, np.int64)
    windows = pacing_windows(trace)
    return (windows["end_ns"] - windows["start_ns"]).to_numpy()


def _device(trace: Trace, device: Device, windows: pl.DataFrame) -> pl.DataFrame:
    """The parts of the windows of one device."""
    own = windows.filter(of_device(device))
    start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    line = device_timeline(trace)[device]
    exposed = [
        [kind, "", "", "", "", int(part.covered_ns(start, end).sum()), 0, 0]
        for kind, part in ((COMMUNICATION, line.exposed_communication), (COPY, line.exposed_copy))
    ]
    steady, shown = Intervals(start, end), pl.DataFrame(exposed, schema=_SCHEMA, orient="row")
    return pl.concat([_compute(trace, device, steady), shown, _idle(trace, device, steady)])


def _compute(trace: Trace, device: Device, windows: Intervals) -> pl.DataFrame:
    """Kernels with the time in which each was the first to run; so many ops at a time, and kept as sums."""
    low, high = slice_of(trace.get(DEVICE_OPS), ("rank", "device"), device)
    labels = pl.concat([range_labels(trace), pl.Series([""], dtype=pl.String)]).cast(pl.Categorical())
    parts, reach_ns, before = [_summed(_compute_ops(trace, labels, 0, 0), windows, 0, 0)], np.iinfo(np.int64).min, 0
    for rows in slices(low, high):
        ops = _compute_ops(trace, labels, rows.start, rows.stop)
        parts.append(_summed(ops, windows, reach_ns, before))
        reach_ns = max(reach_ns, int(ops["end_ns"].to_numpy().max(initial=reach_ns)))
        before += ops.height
    named = pl.concat(parts).with_columns(
        pl.col("name", "range").cast(pl.String), _text_of(_GRID[:3]).alias("grid"), _text_of(_GRID[3:]).alias("block")
    )
    totals = named.group_by(_KEY).agg(pl.col("total_ns", "count").sum(), pl.col("order").min()).sort("order")
    return totals.select(pl.lit(COMPUTE).alias("kind"), *_KEY, "total_ns", "count", "order")


def _text_of(columns: tuple[str, ...]) -> pl.Expr:
    return pl.concat_str([pl.col(column).cast(pl.String) for column in columns], separator=",").fill_null("")


def _compute_ops(trace: Trace, labels: pl.Series, first: int, last: int) -> pl.DataFrame:
    """The compute ops among these rows of `device_ops`: name, shape, range, times. `labels` are those of the ranges,
    the last one of none."""
    ops = trace.get(DEVICE_OPS)[first:last]
    frame = ops.select("name", *_GRID, "start_ns", "end_ns").with_columns(_ranges(trace, labels, first, last))
    return frame.filter(class_of_ops(trace)[first:last] == "compute")


def _ranges(trace: Trace, labels: pl.Series, first: int, last: int) -> pl.Series:
    """The innermost range around the launch of each of these rows, empty where there is none."""
    call = launch_links(trace).call[first:last]
    if not trace.get(API_CALLS).height:
        return pl.Series("range", [""], pl.Categorical()).new_from_index(0, call.size)
    enclosing = found_at(host_places(trace).range_, call)
    return labels[np.where(enclosing >= 0, enclosing, len(labels) - 1)].alias("range")


def _summed(ops: pl.DataFrame, windows: Intervals, reach_ns: int, before: int) -> pl.DataFrame:
    """Totals by key of neighbouring ops, where earlier ones ran until `reach_ns` and were `before` in number.

    The part of an op after the end of all ops before it counts. With `reach_ns` 0 and one window around all of these::

        start  finish  earlier ops end  counted
        0      30      0                [0, 30)
        20     50      30               [30, 50)
        25     45      50               nothing
        60     90      50               [60, 90)
    """
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    earlier_end = np.maximum.accumulate(np.concatenate(([reach_ns], end)))[:-1]
    own_start = np.maximum(start, earlier_end)
    own_ns = windows.covered_ns(own_start, np.maximum(end, own_start))
    in_step = windows.covered_ns(start, np.maximum(end, start + 1)) > 0
    keys = ops.select("name", *_GRID, "range")
    number, first = numbered_rows(keys)
    total_ns = summed(number, own_ns, first.size)
    count = np.bincount(number[in_step], minlength=first.size)
    return keys[first].with_columns(
        pl.Series("total_ns", total_ns), pl.Series("count", count, pl.Int64), pl.Series("order", before + first)
    )


def _idle(trace: Trace, device: Device, windows: Intervals) -> pl.DataFrame:
    """Idle time by cause, as `idle_shares` splits it; the parts sum to what nothing ran in."""
    rows = [[IDLE, cause, "", "", "", *totals, 0] for cause, *totals in sorted(by_cause(trace, device, windows))]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
