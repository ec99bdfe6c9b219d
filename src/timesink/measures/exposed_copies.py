"""Copies grouped by direction and kind of host memory, as intervals: what each group keeps the device from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from timesink.measures.budget import time_budget
from timesink.measures.memo import remembered
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


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
