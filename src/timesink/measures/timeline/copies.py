"""Copies by direction and memory kind: how much, how fast, how much of it the device shows nothing else for.

Copies grouped by direction and kind of host memory, as intervals: what each group keeps the device from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from timesink.measures.timeline.budget import time_budget
from timesink.measures.timeline.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

_KIND = ("rank", "device", "copy_kind", "src_memory", "dst_memory")


@dataclass(frozen=True, slots=True, eq=False)
class Copies:
    """`frame`: one row per (rank, device, copy_kind, src_memory, dst_memory), most time first.

    Columns besides those: pageable, count, bytes, total_ns (durations summed), union_ns (some copy of this row ran),
    exposed_ns (of that, no kernel ran), gigabytes_per_s. The rate is bytes over summed durations, 1 GB = 1e9 bytes:
    what one copy gets while it runs; copies whose bytes the profiler left out are not in it. Copies the profiler gave
    no direction are `unknown`.
    """

    frame: pl.DataFrame

    @property
    def pageable_bytes_ratio(self) -> float:
        """Share of host-device bytes that go through pageable memory; 0 where there are none."""
        host = self.frame.filter(pl.col("copy_kind").is_in(["h2d", "d2h"]))
        total = int(host["bytes"].sum())
        return int(host.filter("pageable")["bytes"].sum()) / total if total else 0.0


@remembered
def copies(trace: Trace) -> Copies:
    """Summarise copies. `exposed_ns` of different rows may overlap where copies of two directions run at once."""
    ops = trace.get(DEVICE_OPS)
    rows = ops.filter(ops["kind"] == "copy").select(*_KIND, "bytes", "start_ns", "end_ns")
    rows = rows.with_columns(pl.col(name).fill_null("unknown") for name in _KIND[2:])
    length = pl.col("end_ns") - pl.col("start_ns")
    sized = pl.col("bytes").is_not_null()
    summary = (
        rows.group_by(_KIND)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("bytes").sum(),
            length.sum().alias("total_ns"),
            length.filter(sized).sum().alias("sized_ns"),
        )
        .with_columns(
            (pl.any_horizontal(pl.col("src_memory", "dst_memory") == "pageable")).alias("pageable"),
            (pl.col("bytes") / pl.when(pl.col("sized_ns") > 0).then("sized_ns")).alias("gigabytes_per_s"),
        )
        .drop("sized_ns")
        .sort(_KIND)
    )
    unions = _unions(trace, rows)
    return Copies(
        summary.join(unions, on=_KIND, how="left").sort(
            ["rank", "device", "total_ns", *_KIND[2:]], descending=[False, False, True, False, False, False]
        )
    )


def _unions(trace: Trace, rows: pl.DataFrame) -> pl.DataFrame:
    budgets = time_budget(trace)
    found = []
    for key, part in rows.partition_by(_KIND, as_dict=True, maintain_order=True).items():
        union = Intervals.of(part)
        exposed = union & budgets[key[0], key[1]].exposed_copy
        found.append((*key, union.total_ns, exposed.total_ns))
    schema = {name: DEVICE_OPS.columns[name].dtype for name in _KIND} | {"union_ns": pl.Int64, "exposed_ns": pl.Int64}
    return pl.DataFrame(found, schema=schema, orient="row")


@dataclass(frozen=True, slots=True, eq=False)
class CopyGroup:
    """Copies of one device in one direction through one kind of host memory.

    `exposed` is the time in which such a copy ran and no kernel did; `bytes` leaves out copies without a recorded size;
    `gigabytes_per_s` is bytes over summed durations (1e9), None where no size is known; `rows` are rows of device_ops,
    the longest first.
    """

    device: Device
    direction: str
    pageable: bool
    count: int
    bytes: int
    gigabytes_per_s: float | None
    exposed: Intervals
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ExposedCopies:
    """Groups by (device, direction, pageable), in that order."""

    groups: Mapping[tuple[Device, str, bool], CopyGroup]

    def __iter__(self) -> Iterator[CopyGroup]:
        return iter(self.groups.values())


@remembered
def exposed_copies(trace: Trace) -> ExposedCopies:
    """Group every copy of the trace."""
    ops = trace.get(DEVICE_OPS).with_row_index("row")
    host_side = pl.any_horizontal(pl.col("src_memory", "dst_memory") == "pageable").fill_null(False)
    copies = ops.filter(pl.col("kind") == "copy").select(
        "row",
        "rank",
        "device",
        pl.col("copy_kind").fill_null("unknown").cast(pl.String).alias("direction"),
        host_side.alias("pageable"),
        "bytes",
        "start_ns",
        "end_ns",
    )
    keys = ["rank", "device", "direction", "pageable"]
    parts = copies.sort(keys, maintain_order=True).partition_by(keys, as_dict=True, maintain_order=True)
    groups = (_group(trace, key, part) for key, part in parts.items())
    return ExposedCopies({(group.device, group.direction, group.pageable): group for group in groups})


def _group(trace: Trace, key: tuple[object, ...], part: pl.DataFrame) -> CopyGroup:
    rank, device, direction, pageable = key
    assert isinstance(rank, int)
    assert isinstance(device, int)
    length = part["end_ns"] - part["start_ns"]
    sized_ns = int(length.filter(part["bytes"].is_not_null()).sum())
    total = int(part["bytes"].sum())
    longest = part.with_columns(length.alias("length")).sort("length", "row", descending=[True, False])["row"].head(5)
    return CopyGroup(
        device=(rank, device),
        direction=str(direction),
        pageable=bool(pageable),
        count=part.height,
        bytes=total,
        gigabytes_per_s=total / sized_ns if sized_ns and total else None,
        exposed=Intervals.of(part) & time_budget(trace)[rank, device].exposed_copy,
        rows=tuple(longest.to_list()),
    )
