"""Compiled regions: how many a step runs, of how many graphs, and the idle time at their kernels.

PyTorch marks each execution with "Torch-Compiled Region: frame/compilation". A function that compiles as a whole is one
graph; each graph break goes on in another, of a frame or a compilation of its own. The graph that runs least often (of
equals, the one compiled first) leads the call; the others come after a break. What a break costs the host lies at their
entries: Python, guards and dispatch up to their first launch. Launches after it stay where breaks go. A graph that most
steps do not run was compiled anew, which is another matter. Nsight Systems sees no regions.

Kernels that run eagerly between compiled graphs of one step.

PyTorch marks each call of a compiled graph with "## Call CompiledFxGraph". What is launched outside of these marks,
between the first and the last of a step, ran eagerly although compiled code stands on both sides. Optimizers and
losses beyond the last graph are no islands.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernels import op_class
from timesink.measures.idle.blame import idle_blame
from timesink.measures.kernels.facts import in_ranges, kernel_facts
from timesink.measures.kernels.shortened import rows_of
from timesink.measures.steps.steps import KEPT, steps
from timesink.measures.timeline.host_places import host_nesting, host_places
from timesink.measures.timeline.launches import launches
from timesink.measures.timeline.links import launch_links
from timesink.measures.timeline.timeline import Device
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered

REGION: Final = r"^Torch-Compiled Region"
_FRAME: Final = pl.col("name").str.extract(r"(\d+)/", 1).cast(pl.Int64, strict=False)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRegions:
    """One device. `per_step` regions run in a step, of `graphs` different graphs that most steps run; `kernels` are
    the rows of `device_ops` launched in regions, `entries` those launched first in a region that follows a break;
    `idle` and `entry_idle` are idle time that one of these ended."""

    device: Device
    per_step: float
    graphs: int
    kernels: Int64Array
    entries: Int64Array
    idle: Intervals
    entry_idle: Intervals


@remembered
def compiled_regions(trace: Trace) -> tuple[CompiledRegions, ...]:
    """Per device with kernels, where the trace has regions at all."""
    regions = _regions(trace)
    if not regions.height:
        return ()
    kernels = pl.Series(np.flatnonzero(_inside(trace)))
    found = []
    for device in kernel_facts(trace).devices:
        mine = regions.filter(pl.col("rank") == device[0])
        if not mine.height:
            continue
        launched = rows_of(kernel_facts(trace).on(device).filter(pl.col("row").is_in(kernels.implode())))
        graphs = _recurring(trace, mine)
        entries = _entries(trace, mine, graphs, launched)
        idle, entry_idle = (Intervals.of(idle_blame(trace).ended_by(rows)) for rows in (launched, entries))
        per_step = _per_step(trace, mine)
        found.append(CompiledRegions(device, per_step, graphs.len(), launched, entries, idle, entry_idle))
    return tuple(found)


def _per_step(trace: Trace, regions: pl.DataFrame) -> float:
    """Regions that begin in a kept step, the median; all of them over all steps where none is kept."""
    mine = steps(trace).frame.filter(pl.col("rank") == regions["rank"][0])
    kept = mine.filter(pl.col("status") == KEPT)
    if not kept.height:
        return regions.height / max(mine.height, 1)
    begins = np.sort(regions["start_ns"].to_numpy())
    first, last = (np.searchsorted(begins, kept[side].to_numpy()) for side in ("host_start_ns", "host_end_ns"))
    return float(np.median(last - first))


def _recurring(trace: Trace, regions: pl.DataFrame) -> pl.Series:
    """Names of the regions that run in at least half of the steps of their rank (all of them without steps), the one
    that leads a call first."""
    begins = np.sort(steps(trace).frame.filter(pl.col("rank") == regions["rank"][0])["host_start_ns"].to_numpy())
    step = np.searchsorted(begins, regions["start_ns"].to_numpy(), side="right")
    runs = regions.with_columns(pl.Series("step", step)).group_by("name").agg(pl.col("step").n_unique(), pl.len())
    often = runs.filter(pl.col("step") * 2 >= begins.size)
    return often.sort("len", _FRAME, "name")["name"]


def _entries(trace: Trace, regions: pl.DataFrame, graphs: pl.Series, kernels: Int64Array) -> Int64Array:
    """Of `kernels`, the first launched in each execution of a graph other than the leading one."""
    call = launch_links(trace).call[kernels]
    linked = call >= 0
    launched = trace.get(API_CALLS)[call[linked]].select("thread", pl.col("start_ns").alias("launch_ns"))
    launched = launched.with_columns(pl.Series("row", kernels[linked])).sort("launch_ns", "row")
    every = regions.with_row_index("region").sort("start_ns")
    held = launched.join_asof(every, left_on="launch_ns", right_on="start_ns", by="thread", check_sortedness=False)
    held = held.filter((pl.col("launch_ns") < pl.col("end_ns")) & pl.col("name").is_in(graphs[1:].implode()))
    return np.sort(held.unique("region", keep="first", maintain_order=True)["row"].to_numpy())


def _regions(trace: Trace) -> pl.DataFrame:
    """Every execution of a region, as operators or as ranges recorded it."""
    parts = []
    for table in (HOST_OPS, RANGES):
        frame = trace.get(table)
        parts.append(
            frame.filter(matches(frame["name"], REGION)).select(
                "rank", "thread", pl.col("name").cast(pl.String), "start_ns", "end_ns"
            )
        )
    return max(parts, key=lambda part: part.height)


def _inside(trace: Trace) -> BoolArray:
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


GRAPH_CALL: Final = r"^## Call CompiledFxGraph"
_NAMED: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class EagerIslands:
    """One device. `rows` of `device_ops`; `per_step` of them in a steady step; `share` of the step's kernels;
    `operators` that launched most of them; `idle`: idle time that one of them ended. Their run time is no part of it:
    in a graph, the same products take as long."""

    device: Device
    rows: Int64Array
    per_step: float
    share: float
    operators: tuple[str, ...]
    idle: Intervals


@remembered
def eager_islands(trace: Trace) -> tuple[EagerIslands, ...]:
    """Per device with compiled graphs in steady steps."""
    marks = trace.get(RANGES)
    marks = marks.filter(matches(marks["name"], GRAPH_CALL))
    if not marks.height or not trace.get(API_CALLS).height or not list(launches(trace)):
        return ()
    ops = trace[DEVICE_OPS]
    links, calls = launch_links(trace), trace[API_CALLS]
    launched = np.where(links.linked, calls["start_ns"].to_numpy()[np.maximum(links.call, 0)], -1)
    eager = ~in_ranges(trace, GRAPH_CALL) & links.linked
    compute = (op_class(ops) == "compute").to_numpy() & (ops["kind"] == "kernel").to_numpy()
    found = []
    for device in kernel_facts(trace).devices:
        kept = steps(trace).kept.filter(pl.col("rank") == device[0])
        here = compute & ((ops["rank"] == device[0]) & (ops["device"] == device[1])).to_numpy()
        windows = _between(kept, marks.filter(pl.col("rank") == device[0]))
        inside = windows.covered_ns(launched, launched + 1) > 0
        rows = np.flatnonzero(here & eager & inside)
        steady = Intervals.union_of(kept["host_start_ns"].to_numpy(), kept["host_end_ns"].to_numpy())
        all_kernels = int((here & (steady.covered_ns(launched, launched + 1) > 0)).sum())
        if len(windows) and all_kernels:
            found.append(_island(trace, device, rows, (kept.height, all_kernels)))
    return tuple(found)


def _between(kept: pl.DataFrame, marks: pl.DataFrame) -> Intervals:
    """Per step, from the first call of a compiled graph to the last."""
    begin = np.sort(marks["start_ns"].to_numpy())
    start, end = kept["host_start_ns"].to_numpy(), kept["host_end_ns"].to_numpy()
    first, beyond = np.searchsorted(begin, start), np.searchsorted(begin, end)
    several = beyond - first > 1
    return Intervals.union_of(begin[first[several]], begin[beyond[several] - 1])


def _island(trace: Trace, device: Device, rows: Int64Array, counts: tuple[int, int]) -> EagerIslands:
    frame = kernel_facts(trace).on(device).filter(pl.col("row").is_in(pl.Series(rows).implode()))
    names = Counter(frame["op"].cast(pl.String).drop_nulls().to_list())
    ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    return EagerIslands(
        device,
        rows,
        rows.size / counts[0],
        rows.size / counts[1],
        tuple(name for name, _ in ordered[:_NAMED]),
        Intervals.of(idle_blame(trace).ended_by(rows)),
    )
