"""Copies by direction and kind of host memory: how much, how fast, and how much of it no kernel hides."""

from __future__ import annotations

import polars as pl

from timesink.knowledge.kernel_traits import MIGRATION
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass

_KIND = ("rank", "device", "copy_kind", "src_memory", "dst_memory")
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


@dataclass(frozen=True, slots=True, eq=False)
class CopyGroup:
    """Copies of one device in one direction through one kind of host memory; `migrated` are those that the driver makes
    of unified memory, where it is touched or told to.

    `exposed` is the time in which such a copy ran and no kernel did; `bytes` leaves out copies without a recorded size;
    `gigabytes_per_s` is bytes over summed durations (1e9), None where no size is known; `rows` are rows of device_ops,
    the longest first.
    """

    device: Device
    direction: str
    pageable: bool
    migrated: bool
    count: int
    bytes: int
    gigabytes_per_s: float | None
    exposed: Intervals
    rows: tuple[int, ...]


@remembered
def exposed_copies(trace: Trace) -> tuple[CopyGroup, ...]:
    """Every copy of the trace, grouped by device, direction, whether pageable memory is involved and whether unified
    memory migrates, in that order."""
    ops = _copy_ops(trace)
    read = ("row", "rank", "device", "bytes", "start_ns", "end_ns", _PAGEABLE, _LENGTH.alias("length_ns"))
    direction = pl.col("copy_kind").fill_null("unknown").cast(pl.String)
    rows = ops.select(*read, direction=direction, migrated=matches(ops["name"], MIGRATION))
    keys = ["rank", "device", "direction", "pageable", "migrated"]
    parts = rows.sort(keys, maintain_order=True).partition_by(keys, as_dict=True, maintain_order=True)
    return tuple(
        _build_group(part, ((rank, device), *kind), device_timeline(trace)[rank, device].exposed_copy)
        for (rank, device, *kind), part in parts.items()
    )


def _copy_ops(trace: Trace) -> pl.DataFrame:
    return trace.get(DEVICE_OPS).with_row_index("row").filter(pl.col("kind") == "copy")


def _build_group(part: pl.DataFrame, kind: tuple[Device, str, bool, bool], exposed: Intervals) -> CopyGroup:
    moved, sized_ns = int(part["bytes"].sum()), int(part.drop_nulls("bytes")["length_ns"].sum())
    return CopyGroup(
        *kind,
        count=part.height,
        bytes=moved,
        gigabytes_per_s=moved / sized_ns if sized_ns and moved else None,
        exposed=Intervals.of(part) & exposed,
        rows=tuple(part.sort("length_ns", "row", descending=[True, False])["row"].head(SHOWN_ROWS).to_list()),
    )
