"""What keeps a step out of a CUDA graph, as far as a capture shows it.

While a graph is captured no memory can be taken from the driver or given back, but in a stream's order, and the CPU
cannot wait. It holds the work of one process' own streams: `DataParallel` starts a thread per GPU in every step, and
copies the model there. A graph wins where it holds several launches; one that is there already wins nothing again.
"""

from collections import Counter
from typing import Literal

import numpy as np
import polars as pl

from timesink.knowledge.calls import (
    GRAPH_INSTANTIATION,
    GRAPH_LAUNCH,
    OF_MEMORY,
    POLLS,
    WAITS_FOR_DEVICE,
    call_kinds,
)
from timesink.knowledge.ranges import DATA_PARALLEL
from timesink.measures.steps.per_step import in_most_steps
from timesink.measures.timeline.launches import launch_units
from timesink.model.arrays import Int8Array
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record


class GraphObstacle(Record):
    """What most steps do that no CUDA graph can hold, or that one does already: `name` is such a call or operator."""

    kind: Literal["data_parallel", "allocates", "instantiates", "captured", "waits", "polls"]
    name: str


@remembered
def graph_obstacle(trace: Trace) -> GraphObstacle | None:
    """What keeps the steps out of a CUDA graph; None where the trace shows nothing, or no steps."""
    for table in (HOST_OPS, RANGES, FRAMES):
        rows = trace.get(table)
        found = rows.filter(matches(rows["name"], DATA_PARALLEL))
        if found.height and in_most_steps(trace, found):
            return GraphObstacle("data_parallel", str(found["name"][0]))
    calls = trace.get(API_CALLS)
    kinds = call_kinds(calls["name"])
    found = calls.filter(np.isin(kinds, OF_MEMORY))
    if found.height and in_most_steps(trace, found):
        return GraphObstacle("allocates", str(found["name"][int((found["end_ns"] - found["start_ns"]).arg_max() or 0)]))
    units = launch_units(trace)
    kernels = trace.get(DEVICE_OPS)["kind"].cast(pl.String)[units["op"]].to_numpy() == "kernel"
    units = units.filter(kernels)
    return _graph_that_is_there(calls, units) or _broken_up(calls, kinds, units)


def _graph_that_is_there(calls: pl.DataFrame, units: pl.DataFrame) -> GraphObstacle | None:
    """A graph that is made anew for most of its launches, or that most kernels come from already."""
    launched = matches(calls["name"], GRAPH_LAUNCH).to_numpy()
    made = calls.filter(matches(calls["name"], GRAPH_INSTANTIATION))
    if made.height > 1 and 2 * made.height > launched.sum() > 0:
        return GraphObstacle("instantiates", str(made["name"][0]))
    replays = units.filter(launched[units["call"].to_numpy()])
    if 2 * replays["op_count"].sum() > units["op_count"].sum():
        return GraphObstacle("captured", str(calls["name"][replays.item(0, "call")]))
    return None


def _broken_up(calls: pl.DataFrame, kinds: Int8Array, units: pl.DataFrame) -> GraphObstacle | None:
    """Calls of the launching thread that wait, or poll, and leave most launches alone between two of them. The events
    that an allocator asks for now and then are no obstacle: it does not while a graph is captured."""
    launch = np.unique(units["call"].to_numpy())
    polls = matches(calls["name"], POLLS).to_numpy()
    thread = calls.select(pl.struct("rank", "process", "thread").rle_id()).to_series().to_numpy()
    of_launch = np.isin(thread, np.unique(thread[launch]))
    if 2 * np.count_nonzero(polls & of_launch) <= np.count_nonzero(of_launch):
        polls = np.zeros_like(polls)
    breaks = (np.isin(kinds, WAITS_FOR_DEVICE) | polls) & of_launch
    if not breaks.any():
        return None  # threads of a launch each are not broken up by anything
    stretch = np.cumsum(breaks | (np.diff(thread, prepend=thread[:1]) != 0))
    _, count = np.unique(stretch[launch], return_counts=True)
    alone = int(count[count == 1].sum())
    if alone < 2 or 2 * alone <= launch.size:
        return None
    name, _ = Counter(calls["name"].filter(breaks).cast(pl.String).to_list()).most_common(1)[0]
    is_polled = bool(matches(pl.Series([name]), POLLS)[0])
    return GraphObstacle("polls" if is_polled else "waits", name)
