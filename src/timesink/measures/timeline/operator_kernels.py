"""Which kernels each operator launched."""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.measures.timeline.attribution import attribution, host_nesting
from timesink.model.arrays import found_at
from timesink.model.names import matches
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace


def operator_kernels(trace: Trace, pattern: str | None = None) -> pl.DataFrame:
    """Per rank, operator and name of GPU work (kernels, copies, memsets): the operators with most of it first.

    An operator has what it launched itself; with a `pattern`, what the operators whose names match it launched, and
    those inside them (the innermost match has it, so nothing counts twice). Columns: rank, operator, name, kind, count,
    total_ns, mean_ns, operator_ratio (share of the operator's total). Durations of work that ran at once count in full.
    """
    ops, host = trace.get(DEVICE_OPS), trace.get(HOST_OPS)
    operator = attribution(trace).host_op.astype(np.int64)
    if pattern is not None and host.height:
        wanted = matches(host["name"], pattern).to_numpy()
        owner = host_nesting(trace).innermost_value(np.where(wanted, np.arange(host.height), -1))
        operator = found_at(owner, operator)
    rows = np.flatnonzero(operator >= 0)
    named = ops[rows].select(
        "rank",
        host["name"][operator[rows]].cast(pl.String).alias("operator"),
        pl.col("name", "kind").cast(pl.String),
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
    )
    total = pl.col("total_ns").sum().over("rank", "operator")
    return (
        named.group_by("rank", "operator", "name", "kind")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("ns").sum().alias("total_ns"),
            pl.col("ns").mean().alias("mean_ns"),
        )
        .with_columns((pl.col("total_ns") / total).fill_nan(None).alias("operator_ratio"), total.alias("of_operator"))
        .sort(["rank", "of_operator", "operator", "total_ns", "name"], descending=[False, True, False, True, False])
        .drop("of_operator")
    )
