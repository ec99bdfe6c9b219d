"""Copies by direction and kind of host memory: how much, how fast, and how much of it no kernel hides."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes, idle, replay
from timesink.knowledge.kernel_traits import TOUCHED
from timesink.measures.timeline import Device, device_timeline, of_device
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import BoolArray
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_US

_KIND = ("rank", "device", "copy_kind", "src_memory", "dst_memory")
_UNKNOWN = 1 << 62  # ns, later than any clock's time
_LENGTH = pl.col("end_ns") - pl.col("start_ns")
_PAGEABLE = pl.any_horizontal(pl.col("src_memory", "dst_memory") == "pageable").fill_null(False).alias("pageable")


@remembered
def copies(trace: Trace) -> pl.DataFrame:
    """One row per (rank, device, copy_kind, src_memory, dst_memory), most time first.

    Columns besides those: count, bytes, pageable, gigabytes_per_s, total_ns (durations summed), union_ns (some copy of
    this row ran), exposed_ns (of that, no kernel ran). The rate is bytes over summed durations, 1 GB = 1e9 bytes: what
    one copy gets while it runs; copies whose bytes the profiler left out do not count in it. Copies the profiler gave
    no direction are `unknown`. `exposed_ns` of two rows may overlap where copies of two directions run at once.
    """
    rows = _copy_ops(trace).select(*_KIND, "bytes", "start_ns", "end_ns")
    rows = rows.with_columns(pl.col(name).fill_null("unknown") for name in _KIND[2:])
    sized_ns = _LENGTH.filter(pl.col("bytes").is_not_null()).sum()
    summary = (
        rows.group_by(_KIND)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("bytes").sum(),
            _LENGTH.sum().alias("total_ns"),
            (pl.col("bytes").sum() / pl.when(sized_ns > 0).then(sized_ns)).alias("gigabytes_per_s"),
        )
        .with_columns(_PAGEABLE)
    )
    times = []
    for key, part in rows.partition_by(_KIND, as_dict=True, maintain_order=True).items():
        union = Intervals.of(part)
        exposed = union & device_timeline(trace)[key[0], key[1]].exposed_copy
        times.append((*key, union.total_ns, exposed.total_ns))
    schema = {name: DEVICE_OPS.columns[name].dtype for name in _KIND} | {"union_ns": pl.Int64, "exposed_ns": pl.Int64}
    joined = summary.join(pl.DataFrame(times, schema=schema, orient="row"), on=_KIND, how="left")
    return joined.sort(["rank", "device", "total_ns", *_KIND[2:]], descending=[False, False, True, False, False, False])


class CopyGroup(Record, eq=False):
    """Copies of one device in one direction through one kind of host memory.

    Of the `kind` migrations are those that the driver makes of unified memory where a page of it is touched; of trips,
    those of data that leaves the device and comes back (`on_trips`); of copies, all others. `exposed` is the time in
    which such a copy ran and no kernel did; a kernel beside a migration to the device waits for its page. `bytes`
    leaves out copies without a recorded size; `gigabytes_per_s` is bytes over summed durations (1e9), None where no
    size is known; `rows` are rows of device_ops, the longest first.
    """

    device: Device
    direction: str
    pageable: bool
    kind: str
    count: int
    bytes: int
    gigabytes_per_s: float | None
    exposed: Intervals
    rows: tuple[int, ...]


@remembered
def exposed_copies(trace: Trace) -> tuple[CopyGroup, ...]:
    """Every copy of the trace, grouped by device, direction, whether pageable memory is involved and kind, in that
    order."""
    ops = _copy_ops(trace)
    read = ("row", "rank", "device", "bytes", "start_ns", "end_ns", _PAGEABLE, _LENGTH.alias("length_ns"))
    direction = pl.col("copy_kind").fill_null("unknown").cast(pl.String)
    on_trip = pl.Series(on_trips(trace)[ops["row"]])
    kind = pl.when(matches(ops["name"], TOUCHED)).then(pl.lit("migrations")).when(on_trip)
    rows = ops.select(*read, direction=direction, kind=kind.then(pl.lit("trips")).otherwise(pl.lit("copies")))
    keys = ["rank", "device", "direction", "pageable", "kind"]
    parts = rows.sort(keys, maintain_order=True).partition_by(keys, as_dict=True, maintain_order=True)
    return tuple(
        _build_group(part, ((rank, device), *kind), device_timeline(trace)[rank, device].exposed_copy)
        for (rank, device, *kind), part in parts.items()
    )


@remembered
def on_trips(trace: Trace) -> BoolArray:
    """Whether each row of `device_ops` copies data that leaves the device and comes back, time and again: at least
    `fixes.trips_least` copies to the host of more than a value are each followed by one of as many bytes to the device,
    none by two.

    Of copies h2d, d2h, d2h, h2d, d2h of one size the third leaves for the fourth; the first and the last are alone.
    The host has what left once its copy has ended: what it asked to copy before that is something else.
    """
    ops, found = _copy_ops(trace), np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    leaves, comes = (ops["copy_kind"] == way for way in ("d2h", "h2d"))
    moves = (leaves | comes) & (ops["bytes"] > fixes.STAGED_BYTES.whole)
    if (moves.sum() or 0) < 2 * fixes.TRIPS_LEAST.whole:
        return found
    rows = ops.filter(moves)
    called_ns = np.append(trace.get(API_CALLS)["start_ns"].to_numpy(), _UNKNOWN)[launch_links(trace).call[rows["row"]]]
    asked_ns = np.minimum(rows["start_ns"].to_numpy(), called_ns + replay.CLOCK_SLACK_US.ns)
    on_host_ns = np.where((rows["copy_kind"] == "d2h").to_numpy(), rows["end_ns"].to_numpy(), asked_ns)
    rows = rows.hstack([pl.Series("on_host_ns", on_host_ns)]).sort("rank", "device", "bytes", "on_host_ns", "row")
    ways = rows.group_by("rank", "device", "bytes", maintain_order=True).agg("row", pl.col("copy_kind") == "d2h")
    for row, out in zip(ways["row"], ways["copy_kind"], strict=True):
        paired = _paired(out.to_numpy())
        if np.count_nonzero(paired) >= 2 * fixes.TRIPS_LEAST.whole:
            found[row.to_numpy()[paired]] = True
    return found


def _paired(opens: BoolArray) -> BoolArray:
    """Which of opening and closing brackets have a partner: of ``)(()(`` the third and fourth."""
    depth = np.cumsum(np.where(opens, 1, -1))
    least = np.minimum.accumulate(np.minimum(depth, 0))
    closed = ~opens & (np.diff(least, prepend=0) == 0)
    inside = depth - least
    later = np.append(np.minimum.accumulate(inside[::-1])[::-1][1:], inside[-1:])
    paired: BoolArray = closed | (opens & (later < inside))
    return paired


@remembered
def pages_of_kernels(trace: Trace) -> Mapping[Device, tuple[Intervals, BoolArray]]:
    """Per device when pages of unified memory move to a kernel that touches them, and which is its kernel's first."""
    rows = _copy_ops(trace).filter(pl.col("copy_kind") == "h2d")
    rows, found = rows.filter(matches(rows["name"], TOUCHED)), {}
    for device in rows.select("rank", "device").unique().iter_rows():
        kernels = device_timeline(trace)[device].compute
        moving = Intervals.of(rows.filter(of_device(device))) & kernels
        kernel = np.searchsorted(kernels.start_ns, moving.start_ns, side="right")
        found[device] = moving, np.diff(kernel, prepend=-1) > 0
    return found


def awaited_pages(trace: Trace, device: Device, *, only_first: bool = False) -> Intervals:
    """The time in which kernels may wait for pages before these move: as long as a fault takes at most, for the first
    as long as one that wakes the driver, but not before the kernel began. Behind the last it may wait as long as a
    fault takes at least, for a page that nothing moves to: it is the first to touch it.

    Of a kernel in [0, 900) us with pages in [150, 160), [180, 190) and [800, 810), where a fault takes 50 to 200 us and
    the first 450: [0, 150), [160, 180), [600, 800) and [810, 860).
    """
    moving, is_first = pages_of_kernels(trace).get(device, (Intervals.none(), np.zeros(0, np.bool_)))
    kernels, asked = device_timeline(trace)[device].compute, moving.start_ns
    within = np.searchsorted(kernels.start_ns, asked, side="right") - 1
    began = kernels.start_ns[within]
    before = np.where(is_first, began, np.concatenate(([0], moving.end_ns[:-1])) if len(moving) else began)
    longest_us = np.where(is_first, idle.PAGE_FAULT_US.high, idle.PAGE_FAULT_US.value)
    begins = np.maximum(before, asked - (longest_us * NS_PER_US).astype(np.int64))
    if only_first:
        return Intervals.union_of(begins[is_first], asked[is_first])
    moved = moving.end_ns[np.diff(within, append=-1) != 0]
    ends = np.minimum(moved + int(idle.PAGE_FAULT_US.low * NS_PER_US), kernels.end_ns[np.unique(within)])
    return Intervals.union_of(begins, asked) | Intervals.union_of(moved, ends)


@remembered
def _copy_ops(trace: Trace) -> pl.DataFrame:
    return trace.get(DEVICE_OPS).with_row_index("row").filter(pl.col("kind") == "copy")


def _build_group(part: pl.DataFrame, kind: tuple[Device, str, bool, str], exposed: Intervals) -> CopyGroup:
    moved, sized_ns = int(part["bytes"].sum()), int(part.drop_nulls("bytes")["length_ns"].sum())
    own = Intervals.of(part)
    return CopyGroup(
        *kind,
        count=part.height,
        bytes=moved,
        gigabytes_per_s=moved / sized_ns if sized_ns and moved else None,
        exposed=own if kind[1:] == ("h2d", False, "migrations") else own & exposed,
        rows=tuple(part.sort("length_ns", "row", descending=[True, False])["row"].head(SHOWN_ROWS).to_list()),
    )
