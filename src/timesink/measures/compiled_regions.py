"""Compiled regions: how many a step runs, of how many graphs, and the idle time at their kernels.

PyTorch marks each execution with "Torch-Compiled Region: frame/compilation". A function that compiles as a whole is one
graph; each graph break goes on in another, of a frame or a compilation of its own. A graph that most steps do not run
was compiled anew, which is another matter. Nsight Systems sees no regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.host_places import host_nesting, host_places
from timesink.measures.idle_blame import idle_blame
from timesink.measures.kernel_facts import in_ranges, kernel_facts
from timesink.measures.links import launch_links
from timesink.measures.memo import remembered
from timesink.measures.shortened import Rows, rows_of
from timesink.measures.steps import steps
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS, RANGES
from timesink.model.trace import Trace

REGION: Final = r"^Torch-Compiled Region"


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRegions:
    """One device. `per_step` regions run in a step, of `graphs` different graphs that most steps run; `kernels` are
    the rows of `device_ops` launched in regions, `idle` is idle time that one of these ended."""

    device: Device
    per_step: float
    graphs: int
    kernels: Rows
    idle: Intervals


@remembered
def compiled_regions(trace: Trace) -> tuple[CompiledRegions, ...]:
    """Per device with kernels, where the trace has regions at all."""
    regions = _regions(trace)
    if not regions.height:
        return ()
    inside = _inside(trace)
    kernels = np.flatnonzero(inside)
    stretches = idle_blame(trace).frame
    found = []
    for device in kernel_facts(trace).devices:
        mine = regions.filter(pl.col("rank") == device[0])
        if not mine.height:
            continue
        count = max(steps(trace).frame.filter(pl.col("rank") == device[0]).height, 1)
        here = stretches.filter((pl.col("rank") == device[0]) & (pl.col("device") == device[1]))
        ended = here["op_row"].to_numpy()
        late = here.filter(pl.Series(inside[np.maximum(ended, 0)] & (ended >= 0)))
        launched = rows_of(kernel_facts(trace).on(device).filter(pl.col("row").is_in(pl.Series(kernels).implode())))
        graphs = _recurring(trace, mine)
        found.append(CompiledRegions(device, mine.height / count, graphs, launched, Intervals.of(late)))
    return tuple(found)


def _recurring(trace: Trace, regions: pl.DataFrame) -> int:
    """How many different regions run in at least half of the steps of their rank; all of them without steps."""
    begins = np.sort(steps(trace).frame.filter(pl.col("rank") == regions["rank"][0])["host_start_ns"].to_numpy())
    step = np.searchsorted(begins, regions["start_ns"].to_numpy(), side="right")
    runs = regions.with_columns(pl.Series("step", step)).group_by("name").agg(pl.col("step").n_unique())
    return int((runs["step"] * 2 >= begins.size).sum())


def _regions(trace: Trace) -> pl.DataFrame:
    """rank, name and start of every execution of a region, as operators or as ranges recorded it."""
    parts = []
    for table in (HOST_OPS, RANGES):
        frame = trace.get(table)
        parts.append(
            frame.filter(matches(frame["name"], REGION)).select("rank", pl.col("name").cast(pl.String), "start_ns")
        )
    return max(parts, key=lambda part: part.height)


def _inside(trace: Trace) -> npt.NDArray[np.bool_]:
    """For each device op: whether it was launched inside a compiled region."""
    links, nesting = launch_links(trace), host_nesting(trace)
    marked = matches(trace.get(HOST_OPS)["name"], REGION).to_numpy().copy()
    for depth in range(1, int(nesting.depth.max(initial=0)) + 1):
        rows = np.flatnonzero(nesting.depth == depth)
        marked[rows] |= marked[nesting.parent[rows]]
    by_range = in_ranges(trace, REGION)
    place = host_places(trace).host_op
    if not place.size or not marked.size:
        return by_range
    holder = np.where(links.linked, place[links.call], -1)
    return np.asarray(by_range | ((holder >= 0) & marked[np.maximum(holder, 0)]), np.bool_)
