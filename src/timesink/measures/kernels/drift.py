"""The same kernels at the same shape that take longer from step to step: clocks that fall, heat, or a neighbour.

Work that grows by itself, as attention over a longer and longer cache does, is none of that: kernels count whose family
does as much for as large a grid and, where shapes were recorded, for the same shapes.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernels import KernelFamily
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import step_windows
from timesink.model.arrays import Int64Array
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_STEADY: Final = (
    KernelFamily.GEMM, KernelFamily.CONVOLUTION, KernelFamily.POINTWISE, KernelFamily.NORM, KernelFamily.SOFTMAX,
    KernelFamily.REDUCTION, KernelFamily.FOREACH,
)  # fmt: skip
_PARTS: Final = 3  # the first steps are held against the last
_STEPS: Final = 6  # fewer show no trend that a slow one among them does not
_SHARE: Final = 0.1  # of the time of all kernels, that a kernel is looked at
_LEAST: Final = 0.1  # of its time: clocks of a warm GPU move by less
_TREND: Final = 0.8  # correlation of length and step: a trend, and no step that stands out
_GRID: Final = ("grid_x", "grid_y", "grid_z")


class Drift(Record):
    """A kernel that takes longer, or less, in the last third of the steps than in the first: `ratio` is by how much,
    0.5 for half as long again; `first_ns` and `last_ns` are its median lengths there."""

    device: tuple[int, int]
    name: str
    ratio: float
    first_ns: float
    last_ns: float


@remembered
def kernel_drift(trace: Trace) -> Drift | None:
    """The kernel with most time of those whose length moves with the steps; None where none does."""
    if not steps(trace).windows.height:
        return None
    frame, ops = kernel_facts(trace).frame, trace.get(DEVICE_OPS)
    frame = frame.with_columns(ops.select(*_GRID)[frame["row"]], names=ops["name"][frame["row"]].cast(pl.String))
    host = trace.get(HOST_OPS)["input_shapes"].cast(pl.String)
    at = frame["host_op"].fill_null(-1).to_numpy()
    shapes = pl.Series("shapes", np.append(host.fill_null("").to_numpy(), "")[at] if frame.height else [], pl.String)
    frame = frame.with_columns(shapes)
    total_ns, found = max(int(frame["length"].sum()), 1), list[tuple[int, Drift]]()
    for (rank, device, *_), own in frame.group_by("rank", "device", "names", *_GRID, "shapes", maintain_order=True):
        whole_ns = int(own["length"].sum())
        if whole_ns < _SHARE * total_ns or own["family"][0] not in {family.value for family in _STEADY}:
            continue
        key = int(str(rank)), int(str(device))
        drift = _moves(own, *step_windows(trace, key))
        if drift is not None:
            found.append((whole_ns, Drift(key, str(own["names"][0]), drift[1] / drift[0] - 1, *drift)))
    return max(found, key=lambda one: (one[0], one[1].name))[1] if found else None


def _moves(own: pl.DataFrame, start_ns: Int64Array, end_ns: Int64Array) -> tuple[float, float] | None:
    """The median length in the first and in the last third of the steps, where lengths move with the steps."""
    begun = own["start_ns"].to_numpy()
    step = np.searchsorted(start_ns, begun, side="right") - 1
    inside = (step >= 0) & (begun < end_ns[np.maximum(step, 0)])
    lengths = pl.DataFrame({"step": step[inside], "ns": own["length"].to_numpy()[inside]})
    by_step = lengths.group_by("step").agg(pl.col("ns").median()).sort("step")
    if by_step.height < _STEPS:
        return None
    length, at = by_step["ns"].to_numpy(), by_step["step"].to_numpy()
    third = by_step.height // _PARTS
    first, last = float(np.median(length[:third])), float(np.median(length[-third:]))
    if not first or abs(last / first - 1) < _LEAST:
        return None
    trend = float(np.corrcoef(at.argsort().argsort(), length.argsort().argsort())[0, 1])
    return (first, last) if abs(trend) >= _TREND else None
