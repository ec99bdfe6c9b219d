"""The kept steps, each on the GPU where it lasts longest, and what kinds of time they are made of.

Ranges are called alike in every step: "batch 17" occurs once and the next step has "batch 18", so both are "batch #".
"stage0" and "stage1" occur in each step and stay what they are.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.ranges import NUMBER, NUMBERED_STEP
from timesink.measures.steps import steps
from timesink.measures.steps.marks import step_marks
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import push_pop_ranges
from timesink.model.arrays import Int64Array
from timesink.model.trace import Trace, remembered

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


@remembered
def pacing_windows(trace: Trace) -> pl.DataFrame:
    """Per kept step the window of the GPU where it lasts longest, first of equals: the others of a synchronous job wait
    for it. rank, device, start_ns, end_ns; without steps the longest span of a GPU is one step."""
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


@remembered
def step_kinds(trace: Trace) -> dict[str, int]:
    """Nanoseconds of the kept steps by kind of time, each on the GPU that paces it: they sum to the steps."""
    windows = pacing_windows(trace)
    found = dict.fromkeys(("compute", "exposed communication", "exposed copy", "idle"), 0)
    for (rank, device), own in windows.group_by("rank", "device", maintain_order=True):
        start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        line = device_timeline(trace)[int(rank), int(device)]
        kinds = line.compute, line.exposed_communication, line.exposed_copy
        spent = [int(kind.covered_ns(start, end).sum()) for kind in kinds]
        for name, time_ns in zip(found, (*spent, int((end - start).sum()) - sum(spent)), strict=True):
            found[name] += time_ns
    return found
