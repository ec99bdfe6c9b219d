"""The collectives of each rank as matching and waiting need them: by the profiler's labels, else by kernel name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.batches import unbatched
from timesink.measures.budget import time_budget
from timesink.measures.timeline import device_timeline
from timesink.model.collective_kinds import kind_of_kernel, message_bytes
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.op_class import op_class
from timesink.model.tables import COLLECTIVES, DEVICE_OPS
from timesink.model.trace import Trace

# `holds`: no computation ran at its last instant, and computation went on before the next collective was over: it is
# what the rank had waited for. Collectives that run on while a rank has nothing left to compute hold it only at the
# last. `peer`: the rank that is sent to or received from. `work_before_ns`: computation since the collective before it
# on this GPU ended.
CALLS = {
    "rank": pl.Int32, "device": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "stream": pl.Int64,
    "kind": pl.String, "group": pl.String, "group_size": pl.Int32, "sequence": pl.Int64, "peer": pl.Int32,
    "bytes": pl.Int64, "labelled": pl.Boolean, "exposed_ns": pl.Int64, "holds": pl.Boolean, "work_before_ns": pl.Int64,
}  # fmt: skip
Numbers = npt.NDArray[np.int64]

_KEY = ["rank", "device", "start_ns", "end_ns"]
_SAID = ["stream", "kind", "group", "group_size", "sequence", "peer", "bytes", "labelled"]


def job_calls(trace: Trace) -> pl.DataFrame:
    """One row per collective with device work, by rank, device and start."""
    told = _labelled(trace)
    ops = trace.get(DEVICE_OPS)
    kernels = ops.filter(op_class(ops) == "communication").select(*_KEY, "stream", "name")
    bare = kernels.join(told.select(*_KEY, "stream"), on=[*_KEY, "stream"], how="anti")
    bare = bare.select(*_KEY, "stream").with_columns(
        mapped(bare["name"], _kinds, pl.String).alias("kind"),
        pl.lit(None, pl.String).alias("group"),
        pl.lit(None, pl.Int32).alias("group_size"),
        pl.lit(None, pl.Int64).alias("sequence"),
        pl.lit(None, pl.Int32).alias("peer"),
        pl.lit(None, pl.Int64).alias("bytes"),
        pl.lit(False).alias("labelled"),
    )
    calls = _grouped(unbatched(trace, pl.concat([told, bare]))).sort(*_KEY, "stream", "kind", nulls_last=True)
    return _with_surroundings(trace, calls).select(pl.col(name).cast(dtype) for name, dtype in CALLS.items())


def _labelled(trace: Trace) -> pl.DataFrame:
    """What `collectives` says of those whose device work was found. A group is its name and its members."""
    said = trace.get(COLLECTIVES).filter(pl.col("device").is_not_null()).unique([*_KEY, "stream"], keep="first")
    kinds = said["kind"].cast(pl.String).to_list()
    sizes = [
        message_bytes(kind, into, out)
        for kind, into, out in zip(kinds, said["in_bytes"].to_list(), said["out_bytes"].to_list(), strict=True)
    ]
    named = pl.concat_str("group", "group_ranks", separator=" ", ignore_nulls=True)
    return said.with_columns(pl.col("group", "group_ranks").cast(pl.String)).select(
        *_KEY,
        "stream",
        pl.col("kind").cast(pl.String),
        pl.when(pl.col("group").is_not_null()).then(named).alias("group"),
        "group_size",
        "sequence",
        "peer",
        pl.Series("bytes", sizes, pl.Int64),
        pl.col("group").is_not_null().alias("labelled"),
    )


def _grouped(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls without a label get the group of the others on their stream, where these have one: a group has a stream."""
    stream = ["rank", "device", "stream"]
    known = pl.col("group").drop_nulls()
    alone = known.n_unique().over(stream) == 1
    return calls.with_columns(
        pl.when(alone).then(pl.coalesce("group", known.first().over(stream))).otherwise("group").alias("group"),
        pl.when(alone)
        .then(pl.coalesce("group_size", pl.col("group_size").drop_nulls().first().over(stream)))
        .otherwise("group_size")
        .alias("group_size"),
    )


def _holds(end: Numbers, exposed: Intervals, compute: Intervals) -> npt.NDArray[np.bool_]:
    latest = np.iinfo(np.int64).max
    at = np.searchsorted(compute.start_ns, end)
    resumed = np.append(compute.start_ns, latest)[at]
    next_over = np.append(np.maximum.accumulate(end)[1:], latest - 1)
    return (exposed.covered_ns(end - 1, end) > 0) & (resumed <= next_over)


def _kinds(names: pl.Series) -> pl.Series:
    return pl.Series([kind_of_kernel(name) for name in names.to_list()], dtype=pl.String)


def _with_surroundings(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """How much of each is exposed, and how much the GPU computed since the one before."""
    lines, budgets = device_timeline(trace), time_budget(trace)
    nothing = pl.lit(0, pl.Int64)
    parts = [calls.clear().with_columns(exposed_ns=nothing, holds=pl.lit(False), work_before_ns=nothing)]
    for (rank, device), mine in calls.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
        start, end = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        exposed, compute = budgets[rank, device].exposed_communication, lines[rank, device].compute
        before = np.concatenate(([lines[rank, device].span_start_ns], np.maximum.accumulate(end)[:-1]))
        parts.append(
            mine.with_columns(
                pl.Series("exposed_ns", exposed.covered_ns(start, end)),
                pl.Series("holds", _holds(end, exposed, compute)),
                pl.Series("work_before_ns", compute.covered_ns(np.minimum(before, start), start)),
            )
        )
    return pl.concat(parts)
