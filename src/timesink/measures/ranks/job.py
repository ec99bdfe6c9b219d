"""What the questions across ranks need of each rank: rows per collective and step, none per kernel; any order merges.

A `Job` is read from a trace of one rank or of many. Merging puts rows together and sorts them by a total order, so it
is associative and commutative: one rank at a time, a tree of hosts, or all at once give the same tables.

The pace of a job: one step of all its ranks.

The collectives of each rank as matching and waiting need them: by the profiler's labels, else by kernel name.

Batches of sends and receives: several calls on the host, then one kernel that carries none of their labels.

PyTorch's `batch_isend_irecv` records each send and receive of a batch on the host; one SendRecv kernel, launched where
the batch closes, does them all. A recorded call without device work belongs to the next such kernel its rank launches.

How long the host takes for each steady step, and how much of that it is not waiting for the GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.collectives import EXCHANGE, POINT_TO_POINT, kind_of_kernel, message_bytes
from timesink.knowledge.kernels import op_class
from timesink.measures.ranks.parity import PARITY, parity_facts
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.budget import time_budget
from timesink.measures.timeline.links import launch_links
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.measures.timeline.timeline import device_timeline
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, DEVICES, HOST_OPS, RANGES, SETTINGS, SOURCES
from timesink.model.trace import Trace, remembered

_BATCH_KEY: Final = ["rank", "device", "stream", "start_ns", "end_ns"]
_BATCH_COLUMNS: Final = ["kind", "group", "group_size", "peer", "bytes", "labelled"]


def split_batches(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The same calls, kernels of known batches once per message; each then has the times of its kernel."""
    said = _on_the_host(trace)
    kernels = calls.filter(pl.col("kind") == EXCHANGE)
    if not said.height or not kernels.height:
        return calls
    launched = kernels.join(_launches(trace), on=_BATCH_KEY, how="inner").sort("launch_ns")
    found = said.sort("call_ns").join_asof(
        launched.select(*_BATCH_KEY, "launch_ns"), left_on="call_ns", right_on="launch_ns", by="rank",
        strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    found = found.drop_nulls("start_ns").select(
        *_BATCH_KEY, *(pl.col(name).alias(f"said_{name}") for name in _BATCH_COLUMNS)
    )
    whole = calls.join(found, on=_BATCH_KEY, how="left", maintain_order="left")
    known = pl.col("said_kind").is_not_null()
    return whole.with_columns(
        pl.when(known).then(f"said_{name}").otherwise(name).alias(name) for name in _BATCH_COLUMNS
    ).select(calls.columns)


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
    launches = ops.select(_BATCH_KEY).with_columns(pl.Series("launch_ns", begun)).filter(pl.Series(link >= 0))
    return launches.unique(_BATCH_KEY, keep="first")


# `holds`: no computation ran at its last instant, and computation went on before the next collective was over: it is
# what the rank had waited for. Collectives that run on while a rank has nothing left to compute hold it only at the
# last. `peer`: the rank that is sent to or received from. `work_before_ns`: computation since the collective before it
# on this GPU ended.
CALLS = {
    "rank": pl.Int32, "device": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "stream": pl.Int64,
    "kind": pl.String, "group": pl.String, "group_size": pl.Int32, "sequence": pl.Int64, "peer": pl.Int32,
    "bytes": pl.Int64, "labelled": pl.Boolean, "exposed_ns": pl.Int64, "holds": pl.Boolean, "work_before_ns": pl.Int64,
}  # fmt: skip

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
    calls = _grouped(split_batches(trace, pl.concat([told, bare]))).sort(*_KEY, "stream", "kind", nulls_last=True)
    return _add_surroundings(trace, calls).select(pl.col(name).cast(dtype) for name, dtype in CALLS.items())


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


def _holds(end: Int64Array, exposed: Intervals, compute: Intervals) -> BoolArray:
    latest = np.iinfo(np.int64).max
    at = np.searchsorted(compute.start_ns, end)
    resumed = np.append(compute.start_ns, latest)[at]
    next_over = np.append(np.maximum.accumulate(end)[1:], latest - 1)
    return (exposed.covered_ns(end - 1, end) > 0) & (resumed <= next_over)


def _kinds(names: pl.Series) -> pl.Series:
    return pl.Series([kind_of_kernel(name) for name in names.to_list()], dtype=pl.String)


def _add_surroundings(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
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


HOST_STEPS = {"rank": pl.Int32, "step": pl.Int32, "host_ns": pl.Int64, "host_busy_ns": pl.Int64}


def host_steps(trace: Trace) -> pl.DataFrame:
    """rank, step, host_ns, host_busy_ns of every kept step. Busy: outside blocking calls of the step's own thread.

    A rank of which no call was recorded has no row: nothing says what its host did.
    """
    seen = set(trace.get(API_CALLS)["rank"].unique())
    waits = synchronisations(trace).calls
    parts = [pl.DataFrame(schema=HOST_STEPS)]
    for (rank, process, thread), mine in (
        steps(trace).kept.partition_by("rank", "process", "thread", as_dict=True).items()
    ):
        if rank not in seen:
            continue
        own = (pl.col("rank") == rank) & (pl.col("process") == process)
        own = own & (pl.col("thread") == thread) if thread is not None else own
        blocked = Intervals.of(waits.filter(own))
        start, end = mine["host_start_ns"].to_numpy(), mine["host_end_ns"].to_numpy()
        parts.append(
            mine.select("rank", "step").with_columns(
                pl.Series("host_ns", end - start),
                pl.Series("host_busy_ns", end - start - blocked.covered_ns(start, end)),
            )
        )
    return pl.concat(parts).sort("rank", "step").unique(["rank", "step"], keep="first", maintain_order=True)


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
