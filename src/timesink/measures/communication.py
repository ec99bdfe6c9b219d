"""Communication kernels of each GPU: how long, how much of it computation hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from timesink.measures.budget import time_budget
from timesink.measures.memo import remembered
from timesink.measures.timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.op_class import op_class
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class DeviceCommunication:
    """One GPU: `total_ns` is the union of its communication kernels, `exposed` the part with no computation beside it.

    A collective's duration holds waiting for its peers as well as moving data: nothing here says which.
    """

    rank: int
    device: int
    kernel_count: int
    total_ns: int
    exposed: Intervals

    @property
    def exposed_ns(self) -> int:
        """Communication that no computation hides."""
        return self.exposed.total_ns

    @property
    def overlapped_ns(self) -> int:
        """Communication that computation hides."""
        return self.total_ns - self.exposed_ns

    @property
    def overlap_ratio(self) -> float | None:
        """|communication and computation| / |communication|; None where there is no communication."""
        return self.overlapped_ns / self.total_ns if self.total_ns else None


@dataclass(frozen=True, slots=True, eq=False)
class Communication:
    """Per (rank, device), in that order; `by_name`: rank, device, name, count, total_ns (durations summed)."""

    by_device: Mapping[Device, DeviceCommunication]
    by_name: pl.DataFrame

    def __getitem__(self, device: Device) -> DeviceCommunication:
        return self.by_device[device]

    def __iter__(self) -> Iterator[DeviceCommunication]:
        return iter(self.by_device.values())


@remembered
def communication(trace: Trace) -> Communication:
    """Measure communication on every device that did any work."""
    ops = trace.get(DEVICE_OPS)
    talking = ops.filter(op_class(ops) == "communication").select("rank", "device", "name", "start_ns", "end_ns")
    by_name = (
        talking.group_by("rank", "device", "name")
        .agg(pl.len().cast(pl.Int64).alias("count"), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total_ns"))
        .with_columns(pl.col("name").cast(pl.String))
        .sort(["rank", "device", "total_ns", "name"], descending=[False, False, True, False])
    )
    counts = {(r, d): n for r, d, n in talking.group_by("rank", "device").len().iter_rows()}
    budgets = time_budget(trace)
    return Communication(
        by_device={
            key: DeviceCommunication(
                rank=line.rank,
                device=line.device,
                kernel_count=counts.get(key, 0),
                total_ns=line.communication.total_ns,
                exposed=budgets[key].exposed_communication,
            )
            for key, line in device_timeline(trace).by_device.items()
        },
        by_name=by_name,
    )
