"""Batches of sends and receives: several calls on the host, then one kernel that carries none of their labels.

PyTorch's `batch_isend_irecv` records each send and receive of a batch on the host; one SendRecv kernel, launched where
the batch closes, does them all. A recorded call without device work belongs to the next such kernel its rank launches.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.measures.links import launch_links
from timesink.model.collective_kinds import EXCHANGE, POINT_TO_POINT, message_bytes
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS
from timesink.model.trace import Trace

_KEY: Final = ["rank", "device", "stream", "start_ns", "end_ns"]
_SAID: Final = ["kind", "group", "group_size", "peer", "bytes", "labelled"]


def unbatched(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The same calls, kernels of known batches once per message; each then has the times of its kernel."""
    said = _on_the_host(trace)
    kernels = calls.filter(pl.col("kind") == EXCHANGE)
    if not said.height or not kernels.height:
        return calls
    launched = kernels.join(_launches(trace), on=_KEY, how="inner").sort("launch_ns")
    found = said.sort("call_ns").join_asof(
        launched.select(*_KEY, "launch_ns"), left_on="call_ns", right_on="launch_ns", by="rank", strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    found = found.drop_nulls("start_ns").select(*_KEY, *(pl.col(name).alias(f"said_{name}") for name in _SAID))
    whole = calls.join(found, on=_KEY, how="left", maintain_order="left")
    known = pl.col("said_kind").is_not_null()
    return whole.with_columns(pl.when(known).then(f"said_{name}").otherwise(name).alias(name) for name in _SAID).select(
        calls.columns
    )


def _on_the_host(trace: Trace) -> pl.DataFrame:
    """Sends and receives that are recorded without device work of their own."""
    rows = trace.get(COLLECTIVES).filter(
        pl.col("device").is_null() & pl.col("peer").is_not_null() & pl.col("kind").cast(pl.String).is_in(POINT_TO_POINT)
    )
    kinds = rows["kind"].cast(pl.String).to_list()
    sizes = [
        message_bytes(kind, into, out)
        for kind, into, out in zip(kinds, rows["in_bytes"].to_list(), rows["out_bytes"].to_list(), strict=True)
    ]
    group, ranks = pl.col("group").cast(pl.String), pl.col("group_ranks").cast(pl.String)
    return rows.select(
        "rank",
        pl.col("start_ns").alias("call_ns"),
        pl.col("kind").cast(pl.String),
        pl.when(group.is_not_null()).then(pl.concat_str(group, ranks, separator=" ", ignore_nulls=True)).alias("group"),
        "group_size",
        "peer",
        pl.Series("bytes", sizes, pl.Int64),
        pl.lit(True).alias("labelled"),
    )


def _launches(trace: Trace) -> pl.DataFrame:
    """When the call began that launched each device op."""
    ops, link = trace.get(DEVICE_OPS), launch_links(trace).call
    begun = np.append(trace.get(API_CALLS)["start_ns"].to_numpy(), 0)[link]
    launches = ops.select(_KEY).with_columns(pl.Series("launch_ns", begun)).filter(pl.Series(link >= 0))
    return launches.unique(_KEY, keep="first")
