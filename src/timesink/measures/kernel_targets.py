"""The kernels of a timeline that a kernel profiler should look at, and where their steady launches are."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import polars as pl

from timesink.measures.kernels import kernels
from timesink.measures.per_step import per_step_ns, step_windows
from timesink.model.intervals import Intervals
from timesink.model.kernel_spelling import function_name
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

_NOT_ONES_OWN = re.compile(r"nccl|rccl|^mem(cpy|set)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """One function worth the microscope.

    `step_ns` is its device time per steady step and `step_ratio` the share of the step; `skip` is the number of
    launches whose names match `pattern` before the first steady step, in launch order, so that the next one is steady;
    `per_step` is how many such launches a step has, `grids` how many different shapes, `mean_ns` its mean time.
    """

    function: str
    pattern: str
    rank: int
    device: int
    step_ns: float
    step_ratio: float
    mean_ns: float
    skip: int
    per_step: int
    grids: int


def kernel_targets(trace: Trace) -> tuple[KernelTarget, ...]:
    """Every function of the busiest device that runs in a steady step, the one with the most time per step first.

    Collectives are left out: what they wait for is on other ranks, and replaying one rank's launches would hang.
    """
    frame = kernels(trace).frame
    if not frame.height:
        return ()
    rank, device = (
        frame.group_by("rank", "device", maintain_order=True)
        .agg(pl.col("total_ns").sum())
        .sort("total_ns", descending=True, maintain_order=True)
        .select("rank", "device")
        .row(0)
    )
    functions: dict[str, list[str]] = {}
    for name in frame.filter((pl.col("rank") == rank) & (pl.col("device") == device))["name"].to_list():
        if not _NOT_ONES_OWN.search(name):
            functions.setdefault(function_name(name), []).append(name)
    found = [_target(trace, (rank, device), function, names) for function, names in functions.items()]
    return tuple(sorted((one for one in found if one.step_ns > 0), key=lambda one: (-one.step_ns, one.function)))


def _target(trace: Trace, device: tuple[int, int], function: str, names: list[str]) -> KernelTarget:
    ops = trace[DEVICE_OPS].filter(
        (pl.col("rank") == device[0]) & (pl.col("device") == device[1]) & pl.col("name").cast(pl.String).is_in(names)
    )
    starts, ends = step_windows(trace, device)
    begin = ops["start_ns"]
    step_ns = per_step_ns(trace, device, Intervals.of(ops))
    first = int(starts[0])
    inside = int(((begin >= first) & (begin < int(ends[0]))).sum())
    shapes = Counter(ops.select("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z").iter_rows())
    length = float((ends - starts).mean())
    return KernelTarget(
        function,
        f"regex:^{re.escape(function)}$",
        device[0],
        device[1],
        step_ns,
        step_ns / length if length else 0.0,
        float((ops["end_ns"] - begin).mean() or 0.0),  # type: ignore[arg-type]
        int((begin < first).sum()),
        inside,
        len(shapes),
    )
