"""Copies by direction and memory kind: how much, how fast, how much of it the device shows nothing else for."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from timesink.measures.budget import time_budget
from timesink.measures.memo import remembered
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

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
