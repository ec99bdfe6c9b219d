"""Kernels that run eagerly between compiled graphs of one step.

PyTorch marks each call of a compiled graph with "## Call CompiledFxGraph". What is launched outside of these marks,
between the first and the last of a step, ran eagerly although compiled code stands on both sides. Optimizers and
losses beyond the last graph are no islands.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.idle_blame import idle_blame
from timesink.measures.kernel_facts import in_ranges, kernel_facts
from timesink.measures.launches import launches
from timesink.measures.links import launch_links
from timesink.measures.memo import remembered
from timesink.measures.steps import steps
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.op_class import op_class
from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import Trace

Rows = npt.NDArray[np.int64]
GRAPH_CALL: Final = r"^## Call CompiledFxGraph"
_NAMED: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class EagerIslands:
    """One device. `rows` of `device_ops`; `per_step` of them in a steady step; `share` of the step's kernels;
    `operators` that launched most of them; `idle`: idle time that one of them ended. Their run time is no part of it:
    in a graph, the same products take as long."""

    device: Device
    rows: Rows
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


def _island(trace: Trace, device: Device, rows: Rows, counts: tuple[int, int]) -> EagerIslands:
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
