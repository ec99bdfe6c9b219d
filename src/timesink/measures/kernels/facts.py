"""Every kernel of a trace with what its name, its grid and the operator around its launch say of it.

Names alone decide the family and the arithmetic; a profile without operators (Nsight Systems) therefore has every
column but `host_op` and `op`. Kernels of a graph replay have an operator only where `graph_replays` joins them; kernels
inside a graph that was traced as a whole are not here, since nothing is known of them.

Most measures of wasted kernel time find a `Selection` of them: what a fix saves is said in `whatif.changes.kernels`.
"""

from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Final, TypeVar

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge import kernel_traits
from timesink.knowledge.gpus import GpuPeaks, peaks
from timesink.knowledge.kernels import PRODUCTS, KernelFamily, decode
from timesink.knowledge.operators import operand_type
from timesink.knowledge.ranges import OPTIMIZER_STEP
from timesink.measures.steps.per_step import per_step_ns
from timesink.measures.timeline import Device, device_names
from timesink.measures.timeline.attribution import (
    asked_at,
    attribution,
    host_places,
    launch_links,
    names_at,
    range_nesting,
)
from timesink.measures.timeline.graph_replays import graph_replays
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.names import matches, of_each
from timesink.model.nesting import Nesting, key_slices, slice_of
from timesink.model.schema import BLOCKS, lean
from timesink.model.tables import DEVICE_OPS, DEVICES, HOST_OPS
from timesink.model.trace import Trace, release_after, remembered
from timesink.records import Record
from timesink.whatif import Case, Selection
from timesink.whatif.changes.kernels import ShortenKernels

NO_FAULT: Final = ("communication", "delay")  # families that are to leave multiprocessors idle
_UPDATES: Final = 8  # tensors that an optimizer updates one after another, of a recording, at least
Family = pl.Enum([family.value for family in KernelFamily])


class KernelFacts(Record, eq=False):
    """`frame`: one row per kernel, in the order of `device_ops` (rank, device, start).

    Columns: row (of `device_ops`), rank, device, stream, start_ns, length (ns), name (category code of the table),
    family, math, fused (tool that generated it), casts (a copy between types, by its name), blocks (of the grid, null
    where not recorded), host_op (row of `host_ops`, null), turn (the graph launch that replays what the operator
    recorded; null), op (its name), optimizer (launched inside a range of an optimizer's step; in a trace without such
    ranges, of a row of kernels over lists, or passes over one tensor after another, that update by Adam's rule).
    """

    frame: pl.DataFrame

    def on(self, device: Device) -> pl.DataFrame:
        """The kernels of one device."""
        first, last = slice_of(self.frame, ("rank", "device"), device)
        return self.frame[first:last]

    def at(self, rows: pl.Series, *columns: str) -> pl.DataFrame:
        """Columns of the kernels at these rows of `device_ops`, each of them a kernel."""
        return self.frame.select(columns)[places(self.frame["row"].to_numpy(), rows.to_numpy(), False)]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every (rank, device) with kernels, in order."""
        return tuple((rank, device) for (rank, device), _, _ in key_slices(self.frame, ("rank", "device")))


Part = TypeVar("Part")


def of_each_device(
    facts: Callable[[Trace], KernelFacts],
) -> Callable[[Callable[[Trace, Device, pl.DataFrame], Part | None]], Callable[[Trace], tuple[Part, ...]]]:
    """Makes a `remembered` measure of all devices with kernels of one that measures a device by its kernels, with the
    columns of these `facts`, or finds nothing there."""

    def every(measure: Callable[[Trace, Device, pl.DataFrame], Part | None]) -> Callable[[Trace], tuple[Part, ...]]:
        @remembered
        @wraps(measure)
        def of_devices(trace: Trace) -> tuple[Part, ...]:
            known = facts(trace)
            parts = (measure(trace, device, known.on(device)) for device in known.devices)
            return tuple(part for part in parts if part is not None)

        return of_devices

    return every


def by_stream(kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels of one device, which are in order of start, stream after stream."""
    several = kernels["stream"].min() != kernels["stream"].max()
    return kernels.sort("stream", maintain_order=True) if several else kernels


def run_numbers() -> pl.Expr:
    """The `run` of each kernel of a device, stream after stream: every one that is no `member`, and every change of
    stream, begins another."""
    return (~pl.col("member") | (pl.col("stream") != pl.col("stream").shift(1)).fill_null(True)).cum_sum().alias("run")


def times_of(kernels: pl.DataFrame) -> Intervals:
    """When any of these kernels ran."""
    return Intervals.union_of(kernels["start_ns"], kernels["start_ns"] + kernels["length"])


@release_after("KRN")
@remembered
def kernel_facts(trace: Trace) -> KernelFacts:
    """Gather the facts."""
    row = (trace.get(DEVICE_OPS)["kind"] == "kernel").to_numpy().nonzero()[0]
    read = ("rank", "device", "stream", "start_ns", "end_ns", "name", "grid_x", "grid_y", "grid_z")
    ops = trace.get(DEVICE_OPS).select(read)[row]
    host_op, none = attribution(trace).host_op[row], np.int32(-1)
    turn = np.where(graph_replays(trace).node[row] >= 0, launch_links(trace).call[row], none)
    blocks = pl.col("grid_x").cast(pl.Int64) * pl.col("grid_y") * pl.col("grid_z")
    kernels = ops.select(
        pl.Series("row", row),
        *read[:2],
        ops["stream"].shrink_dtype(),
        "start_ns",
        (pl.col("end_ns") - pl.col("start_ns")).alias("length"),
        pl.col("name").to_physical(),
        family := of_each(ops["name"], lambda name: decode(name).family.value, Family).alias("family"),
        _math(trace, ops["name"], family, host_op),
        of_each(ops["name"], lambda name: decode(name).fused, pl.Categorical()).alias("fused"),
        of_each(ops["name"], casts, pl.Boolean).alias("casts"),
        pl.when(blocks > 0).then(blocks.clip(0, BLOCKS[1]).cast(pl.UInt32)).alias("blocks"),  # none: not recorded
        pl.Series("host_op", host_op).set(pl.Series(host_op < 0), None),
        pl.Series("turn", turn).set(pl.Series(turn < 0), None),
        names_at(trace.get(HOST_OPS)["name"], host_op, "op"),
        pl.Series("optimizer", in_ranges(trace, OPTIMIZER_STEP)[row], pl.Boolean),
    )
    if not kernels["optimizer"].any():
        kernels = kernels.with_columns(_updating(kernels, ops["name"]).alias("optimizer"))
    return KernelFacts(pl.DataFrame([lean(column) for column in kernels]))


def _math(trace: Trace, names: pl.Series, families: pl.Series, host_op: Int32Array) -> pl.Series:
    """The arithmetic of each kernel: that of its operator's operands where they were recorded and have one floating
    type, else what its name says. Of fp32 operands only the name tells whether they are multiplied as TF32."""
    named = of_each(names, lambda name: decode(name).math, pl.String)
    host = trace.get(HOST_OPS)
    if host["input_dtypes"].null_count() == host.height:
        return named.cast(pl.Categorical()).alias("math")
    types = host.select(pl.when(pl.col("name").cast(pl.String).str.starts_with("aten::")).then("input_dtypes"))
    recorded = of_each(names_at(types.to_series(), host_op, "types"), operand_type, pl.String)
    product = families.is_in(PRODUCTS)
    wide = pl.when(named.is_in(["fp32", "tf32"])).then(named).when(~product).then(pl.lit("fp32"))
    math = pl.when(recorded.is_null()).then(named).when(recorded == "fp32").then(wide).otherwise(recorded)
    return pl.select(math.cast(pl.Categorical()).alias("math")).to_series()


def _updating(kernels: pl.DataFrame, names: pl.Series) -> pl.Series:
    """Which kernels stand in a row of those over lists of tensors that holds an optimizer's update, or are passes over
    one tensor after another, as many for each, that end with one."""
    updates = matches(names, f"{kernel_traits.UPDATES}|{kernel_traits.FUSED_OPTIMIZER}")
    if not updates.any():
        return _updating_one(kernels, matches(names, kernel_traits.UPDATES_ONE))
    run = kernels.select(pl.struct("rank", "device", "stream", pl.col("family") == "foreach").rle_id()).to_series()
    return (kernels["family"] == "foreach") & run.is_in(run.filter(updates).unique().implode())


def _updating_one(kernels: pl.DataFrame, updates: pl.Series) -> pl.Series:
    """Plain passes of a stream between two updates, and before the first as many as are usual between two."""
    found = np.zeros(kernels.height, np.bool_)
    if updates.sum() >= _UPDATES:
        order = np.lexsort([kernels[key].to_numpy() for key in ("start_ns", "stream", "device", "rank")])
        stream = kernels[order].select(pl.struct("rank", "device", "stream").rle_id()).to_series().to_numpy()
        other = np.concatenate(([0], np.cumsum((kernels["family"] != "pointwise").to_numpy()[order])))
        last = np.flatnonzero(updates.to_numpy()[order])
        passes = int(median(np.diff(last)))
        first = np.maximum(last - passes + 1, 0)
        own = (stream[first] == stream[last]) & (other[first] == other[last + 1])
        for begin, end in zip(first[own].tolist(), last[own].tolist(), strict=True):
            found[order[begin : end + 1]] = True
    return pl.Series(found)


@cache
def casts(name: str) -> bool:
    """Whether a kernel's name says that it copies from one type to another."""
    return (
        decode(name).family is KernelFamily.COPY
        and bool(kernel_traits.CAST.search(name))
        and not kernel_traits.NO_CAST.search(name)
    )


def in_ranges(trace: Trace, pattern: str) -> BoolArray:
    """For each row of `device_ops`: whether the program asked for it inside a range whose name matches."""
    names, nesting = host_places(trace).range_names, range_nesting(trace)
    if not len(names):
        return np.zeros(trace.get(DEVICE_OPS).height, bool)
    return np.append(within(matches(names, pattern).to_numpy(), nesting), False)[asked_at(trace, nesting)]


def within(marked: BoolArray, nesting: Nesting) -> BoolArray:
    """For each row of a nested host table: whether it or any interval around it is marked.

    row      0  1  2  3
    parent  -1  0  1 -1
    marked   0  1  0  0
    result   0  1  1  0
    """
    return np.asarray(nesting.outermost(np.where(marked, 0, -1)) >= 0, np.bool_)


@remembered
def multiprocessors(trace: Trace) -> dict[Device, int]:
    """Multiprocessors of each device, as the trace says or as its product has; without an entry where unknown."""
    gpus = device_peaks(trace)
    counts = {}
    for rank, device, recorded in trace.get(DEVICES).select("rank", "device", "sm_count").iter_rows():
        gpu = gpus.get((rank, device))
        if count := recorded or (gpu.sm_count if gpu else None):
            counts[rank, device] = int(count)
    return counts


@remembered
def device_peaks(trace: Trace) -> dict[Device, GpuPeaks]:
    """The datasheet peaks of each device whose product is known."""
    return {device: gpu for device, name in device_names(trace).items() if (gpu := peaks(name)) is not None}


def rows_of(frame: pl.DataFrame) -> Int64Array:
    """The rows of `device_ops` that a frame of kernel facts speaks of."""
    return frame["row"].to_numpy()


def saved_per_step_ns(trace: Trace, change: ShortenKernels, case: Case) -> float:
    """Device time that goes with a change, per steady step, in ns."""
    return per_step_ns(trace, change.device, change.gone(trace, case))


def rows_on(device: Device, parts: Iterable[Selection]) -> Int64Array:
    """Rows of the parts of one device together, ascending."""
    return all_rows(part for part in parts if part.device == device)


def all_rows(parts: Iterable[Selection]) -> Int64Array:
    """Rows of every part together, ascending."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]))
