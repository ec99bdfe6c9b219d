"""Steps that exchange the same gradients several times: once per forward pass instead of once per step."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.job import job
from timesink.measures.links import launch_links
from timesink.measures.steps import steps
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace

Numbers = npt.NDArray[np.int64]

_FORWARD: Final = r"^DistributedDataParallel\.forward$"


@dataclass(frozen=True, slots=True, eq=False)
class RepeatedExchange:
    """One GPU whose steady steps all exchange `times` times the same list of sizes, `step_bytes` in all.

    `exposed`: where exchanges before the last of their step run with no computation beside them.
    """

    device: Device
    times: int
    step_bytes: float
    exposed: Intervals


def repeated_exchanges(trace: Trace) -> tuple[RepeatedExchange, ...]:
    """GPUs with that pattern in every steady step, by rank and device."""
    forwards = _forwards(trace)
    if not forwards.height:
        return ()
    launched = _launched_reductions(trace)
    found = []
    for (rank, device), mine in launched.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
        starts = np.sort(forwards.filter(pl.col("rank") == rank)["start_ns"].to_numpy())
        parts = [
            _early_blocks(mine, starts, begin, end)
            for begin, end in steps(trace)
            .kept.filter(pl.col("rank") == rank)
            .select("host_start_ns", "host_end_ns")
            .rows()
        ]
        blocks = [part for part in parts if part is not None]
        if not blocks or len(blocks) < len(parts) or len({times for times, _ in blocks}) > 1:
            continue
        times, early = blocks[0][0], pl.concat([calls for _, calls in blocks])
        exposed = job(trace).exposed.filter((pl.col("rank") == rank) & (pl.col("device") == device))
        step_bytes = float(early["bytes"].sum()) * times / (times - 1) / len(blocks)
        found.append(
            RepeatedExchange((int(rank), int(device)), times, step_bytes, Intervals.of(exposed) & Intervals.of(early))
        )
    return tuple(sorted(found, key=lambda part: part.device))


def _forwards(trace: Trace) -> pl.DataFrame:
    parts = [
        trace[table].filter(matches(trace[table]["name"], _FORWARD)).select("rank", "start_ns", "end_ns")
        for table in (HOST_OPS, RANGES)
        if table in trace
    ]
    return pl.concat(parts).unique() if parts else pl.DataFrame(schema=["rank", "start_ns", "end_ns"])


def _launched_reductions(trace: Trace) -> pl.DataFrame:
    """All-reduces of known size with the start of the call that launched them: rank, device, start_ns, end_ns, bytes,
    launch_ns, in order of launch."""
    ops, calls = trace.get(DEVICE_OPS), trace.get(API_CALLS)
    link = launch_links(trace).call
    launch = np.append(calls["start_ns"].to_numpy(), 0)[link]
    key = ["rank", "device", "stream", "start_ns", "end_ns"]
    launches = ops.select(key).with_columns(pl.Series("launch_ns", launch)).filter(pl.Series(link >= 0))
    reductions = job(trace).calls.filter((pl.col("kind") == "allreduce") & pl.col("bytes").is_not_null())
    joined = reductions.join(launches.unique(key, keep="first"), on=key, how="inner")
    return joined.sort("rank", "device", "launch_ns", "start_ns")


def _early_blocks(
    calls: pl.DataFrame, forwards: Numbers, begin_ns: int, end_ns: int
) -> tuple[int, pl.DataFrame] | None:
    """How many forward passes the step has, and its exchanges before the last one; None where they are not alike."""
    inside = forwards[(forwards >= begin_ns) & (forwards < end_ns)]
    if inside.size < 2:
        return None
    edges = [*inside.tolist(), end_ns]
    blocks = [calls.filter(pl.col("launch_ns").is_between(*edge, closed="left")) for edge in pairwise(edges)]
    sizes = [block["bytes"].to_list() for block in blocks]
    return (len(blocks), pl.concat(blocks[:-1])) if sizes[0] and all(size == sizes[0] for size in sizes) else None
