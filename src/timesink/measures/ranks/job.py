"""What the questions across ranks need of each rank: rows per collective and step, none per kernel; any order merges.

A `Job` is read from a trace of one rank or of many. Merging puts rows together and sorts them by a total order, so it
is associative and commutative: one rank at a time, a tree of hosts, or all at once give the same tables.

The pace of a job: one step of all its ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.ranks.calls import CALLS, host_steps, job_calls
from timesink.measures.ranks.parity import PARITY, parity_facts
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.budget import time_budget
from timesink.measures.timeline.timeline import device_timeline
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, DEVICES, HOST_OPS, RANGES, SETTINGS, SOURCES
from timesink.model.trace import Trace, remembered

# What a job is read from where it was recorded, beside device ops.
JOB_READS: Final = (API_CALLS, COLLECTIVES, DEVICES, HOST_OPS, RANGES, SETTINGS, SOURCES)

MEMBERS = {
    "rank": pl.Int32, "device": pl.Int32, "source": pl.String, "host": pl.String, "clock": pl.String,
    "world_size": pl.Int32, "device_name": pl.String, "visible_devices": pl.Int32, "start_ns": pl.Int64,
    "end_ns": pl.Int64, "busy_ns": pl.Int64, "compute_ns": pl.Int64, "communication_ns": pl.Int64,
    "exposed_communication_ns": pl.Int64, "exposed_copy_ns": pl.Int64, "idle_ns": pl.Int64,
    "peer_copy_ns": pl.Int64, "peer_copy_bytes": pl.Int64,
}  # fmt: skip
SPANS = {"rank": pl.Int32, "device": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}
STEPS = {"rank": pl.Int32, "device": pl.Int32, "step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64,
         "compute_ns": pl.Int64, "host_ns": pl.Int64, "host_busy_ns": pl.Int64}  # fmt: skip
SCHEMAS: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "members": MEMBERS,
    "calls": CALLS,
    "exposed": SPANS,
    "steps": STEPS,
    "parity": PARITY,
}


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Tables of the ranks that were read; times are each rank's own clock.

    `members`: one row per rank and GPU, its time budget (compute + exposed communication + exposed copy + idle =
    span) and what it copied straight to or from other GPUs. `calls`: its collectives. `exposed`: intervals of
    communication with no computation beside it. `steps`: device windows of its steady steps, with how long the host
    took for them and how much of it it did not wait.
    `parity`: what ought to be equal.
    """

    members: pl.DataFrame
    calls: pl.DataFrame
    exposed: pl.DataFrame
    steps: pl.DataFrame
    parity: pl.DataFrame

    @classmethod
    def empty(cls) -> Job:
        """No rank: the neutral element of `merged`."""
        return cls(**{name: pl.DataFrame(schema=schema) for name, schema in SCHEMAS.items()})

    @classmethod
    def merged(cls, parts: Iterable[Job]) -> Job:
        """All ranks of the parts, in an order that does not depend on theirs."""
        every = [cls.empty(), *parts]
        return cls(**{name: _ordered([getattr(part, name) for part in every]) for name in SCHEMAS})

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that were read, ascending."""
        return tuple(self.members["rank"].unique().sort().to_list())


@remembered
def job(trace: Trace) -> Job:
    """The tables of every rank in a trace."""
    lines, budgets = device_timeline(trace), time_budget(trace)
    windows = steps(trace).windows.select("rank", "device", "step", "start_ns", "end_ns")
    computed = np.zeros(windows.height, np.int64)
    start, end = windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    for (rank, device), line in lines.by_device.items():
        here = ((windows["rank"] == rank) & (windows["device"] == device)).to_numpy()
        computed[here] = line.compute.covered_ns(start[here], end[here])
    exposed = [
        pl.DataFrame(
            {"rank": part.rank, "device": part.device, "start_ns": part.exposed_communication.start_ns,
             "end_ns": part.exposed_communication.end_ns}, schema=SPANS,
        )
        for part in budgets
        if len(part.exposed_communication)
    ]  # fmt: skip
    return Job.merged(
        [
            Job(
                members=_members(trace),
                calls=job_calls(trace),
                exposed=pl.concat([pl.DataFrame(schema=SPANS), *exposed]),
                steps=windows.with_columns(pl.Series("compute_ns", computed, pl.Int64)).join(
                    host_steps(trace), on=["rank", "step"], how="left", maintain_order="left"
                ),
                parity=parity_facts(trace),
            )
        ]
    )


def _members(trace: Trace) -> pl.DataFrame:
    """One row per GPU that did any work, and per source without one, so that a rank that did nothing is not lost."""
    sources = trace.get(SOURCES).sort("rank", "path").unique("rank", keep="first", maintain_order=True)
    said = {row["rank"]: row for row in sources.iter_rows(named=True)}
    names = {(rank, device): name for rank, device, name in trace.get(DEVICES).select("rank", "device", "name").rows()}
    visible = dict(trace.get(DEVICES).group_by("rank").agg(pl.len()).rows())
    lines = device_timeline(trace)
    peer = _peer_copies(trace)
    rows = [
        {
            **_said(said.get(part.rank)),
            "rank": part.rank,
            "device": part.device,
            "device_name": names.get((part.rank, part.device)),
            "visible_devices": visible.get(part.rank),
            "start_ns": lines[part.rank, part.device].span_start_ns,
            "end_ns": lines[part.rank, part.device].span_end_ns,
            "busy_ns": part.busy_ns,
            "compute_ns": part.compute_ns,
            "communication_ns": part.communication_ns,
            "exposed_communication_ns": part.exposed_communication_ns,
            "exposed_copy_ns": part.exposed_copy_ns,
            "idle_ns": part.idle_ns,
            **dict(zip(("peer_copy_ns", "peer_copy_bytes"), peer.get((part.rank, part.device), (0, 0)), strict=True)),
        }
        for part in time_budget(trace)
    ]
    seen = {row["rank"] for row in rows}
    rows += [{**_said(row), "rank": rank, "device": None} for rank, row in said.items() if rank not in seen]
    return pl.DataFrame(rows, schema=MEMBERS)


def _peer_copies(trace: Trace) -> dict[tuple[int, int], tuple[int, int]]:
    """Per GPU, time and bytes of its copies from GPU to GPU. The copy engine moves them: no other rank takes part."""
    copies = trace.get(DEVICE_OPS).filter(pl.col("copy_kind") == "p2p")
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    each = copies.group_by("rank", "device").agg(length.alias("length_ns"), pl.col("bytes").fill_null(0).sum())
    return {(rank, device): (length_ns, size) for rank, device, length_ns, size in each.rows()}


def _said(source: Mapping[str, object] | None) -> dict[str, object]:
    """Ranks share a clock where their host is known to be one, or where one file holds them."""
    if source is None:
        return {}
    path, digest, host = source["path"], source["sha256"], source["host"]
    clock = f"host {host}" if host else f"file {digest or path}"  # a file of several ranks has one clock for all
    return {"source": path, "host": host, "clock": clock, "world_size": source["world_size"]}


def _ordered(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames).sort(frames[0].columns, nulls_last=True, maintain_order=False)


def step_ns(whole: Job) -> float:
    """Mean step of the slowest rank; the longest span where no rank has steady steps."""
    period = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    frame = whole.steps if whole.steps.height else whole.members
    means = frame.with_columns(period).group_by("rank").agg(pl.col("length_ns").mean())
    longest = means["length_ns"].max()
    return float(longest) if isinstance(longest, (int, float)) else 0.0
