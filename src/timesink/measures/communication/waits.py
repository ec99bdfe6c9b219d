"""Every collective and message split into waiting for the last rank and moving data, hidden and exposed.

From waits follow two views of transfers. `bandwidth` is that of nccl-tests (PERFORMANCE.md): algbw = S / t and
busbw = algbw x factor of the collective, t being the transfer from the last rank's arrival to the last end, since
waiting for a late rank moves no data; 1 GB = 1e9 bytes. `links` compares groups and pairs of ranks that transfer the
same. That needs no clock: who arrives last waits for nobody, so the shortest of an instance's kernels is the transfer.
Only transfers of one kind, size, number of ranks and number of hosts are compared. A collective of all ranks has
nothing to be compared with: a slow link slows it for everybody.

`waits_by_step` says how long each rank waited for others in each of its steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.collectives import BUS_FACTORS
from timesink.knowledge.gpus import nvlink_bytes_per_s
from timesink.measures.communication.clocks import Clocks, align_clocks
from timesink.measures.communication.communication import may_communicate
from timesink.measures.communication.link_curve import link_curve
from timesink.measures.communication.matching import (
    MatchedCollectives,
    MatchedMessages,
    match_collectives,
    match_messages,
)
from timesink.measures.ranks.job import Job, exposed_by_device, job
from timesink.measures.timeline.device_timeline import Device, covered_by_device
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass
from timesink.units import NS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveWaits:
    """Every matched call of a job split into wait and transfer: wait + transfer = duration, to the nanosecond.

    `calls`: one row per matched call, by instance and rank. Columns besides those of the call: instance, size,
    complete, rigorous, offset_ns, arrival_ns (start on the first rank's clock), ready_ns (the last arrival), wait_ns
    (from its own arrival until the last one), transfer_ns (the rest), exposed_wait_ns, exposed_transfer_ns (those parts
    with no computation at the same time), error_ns (what the clocks leave open about wait and transfer; null:
    everything). `instances`: instance, kind, group, size, bytes, ready_ns, end_ns, transfer_ns (from the last arrival
    to the last end), last_rank, last_device, margin_ns (how long after the second last), error_ns. Where a rank is
    missing from an instance (`complete` false), waits are lower bounds.

    `pairs`: the same columns as `calls` for sends and receives that have a counterpart. A send that is over before its
    receiver comes was buffered and waited for nobody.
    """

    job: Job
    matched: MatchedCollectives
    clocks: Clocks
    calls: pl.DataFrame
    instances: pl.DataFrame
    paired: MatchedMessages
    pairs: pl.DataFrame


@remembered
def collective_waits(trace: Trace) -> CollectiveWaits:
    """The split for all ranks of a trace."""
    return waits_of(job(trace))


def waits_of(job: Job) -> CollectiveWaits:
    """The split for a merged job."""
    collectives = match_collectives(job.calls)
    messages = match_messages(job.calls, first_instance=int(collectives.calls["instance"].n_unique()))
    clocks = align_clocks(collectives.calls, job.members, messages.calls)
    calls = _add_exposed(_split_waits(clocks.calls), job.exposed)
    pairs = _add_exposed(_drop_buffered(_split_waits(clocks.pairs)), job.exposed)
    return CollectiveWaits(job, collectives, clocks, calls, _instances(calls), messages, pairs)


def _split_waits(calls: pl.DataFrame) -> pl.DataFrame:
    """Add arrival_ns, ready_ns, wait_ns, error_ns and transfer_ns. One collective of two ranks, clock 1 being 5 ahead:

    rank  start  end  offset   arrival  ready  wait  transfer
      0     100  200       0       100    160    60        40
      1     165  205       5       160    160     0        40
    """
    arrival, length = pl.col("start_ns") - pl.col("offset_ns"), pl.col("end_ns") - pl.col("start_ns")
    last = pl.col("arrival_ns") == pl.col("ready_ns")
    own_error = pl.col("error_ns")
    last_error = own_error.filter(last).max().over("instance")
    # An error is a sum of two clocks' errors; within one clock both are null or equal and cancel.
    return (
        calls.with_columns(arrival.alias("arrival_ns"))
        .with_columns(pl.col("arrival_ns").max().over("instance").alias("ready_ns"))
        .with_columns(
            pl.min_horizontal(pl.col("ready_ns") - pl.col("arrival_ns"), length).alias("wait_ns"),
            pl.when(pl.col("offset_ns").n_unique().over("instance") == 1)
            .then(pl.max_horizontal(own_error, last_error))
            .otherwise(own_error + last_error)
            .alias("error_ns"),
        )
        .with_columns((length - pl.col("wait_ns")).alias("transfer_ns"))
    )


def _drop_buffered(pairs: pl.DataFrame) -> pl.DataFrame:
    """A send that ended before its receiver arrived was buffered: all of it is transfer."""
    length = pl.col("end_ns") - pl.col("start_ns")
    buffered = (pl.col("kind") == "send") & (pl.col("wait_ns") >= length)
    wait = pl.when(buffered).then(0).otherwise("wait_ns").alias("wait_ns")
    return pairs.with_columns(wait, (length - wait).alias("transfer_ns"))


def _add_exposed(calls: pl.DataFrame, exposed: pl.DataFrame) -> pl.DataFrame:
    """Add how much of wait and transfer no computation hides, by the rank's own clock."""
    exposed_on = exposed_by_device(exposed)
    ready = calls.with_columns((pl.col("start_ns") + pl.col("wait_ns")).alias("ready"))
    in_wait, in_transfer = (
        covered_by_device(ready, exposed_on, *ends) for ends in (("start_ns", "ready"), ("ready", "end_ns"))
    )
    added = pl.Series("exposed_wait_ns", in_wait), pl.Series("exposed_transfer_ns", in_transfer)
    return calls.with_columns(*added).sort("instance", "rank", "device")


def _instances(calls: pl.DataFrame) -> pl.DataFrame:
    """One row per instance, from the calls of its ranks in order of arrival."""
    by_arrival = calls.sort("instance", "arrival_ns", "rank", "device")
    arrival, end = pl.col("arrival_ns"), pl.col("end_ns") - pl.col("offset_ns")
    return (
        by_arrival.group_by("instance", maintain_order=True)
        .agg(
            pl.col("kind", "group", "size", "complete", "rigorous").first(),
            pl.col("bytes").max(),
            pl.col("ready_ns").first(),
            end.max().alias("end_ns"),
            pl.col("rank").last().alias("last_rank"),
            pl.col("device").last().alias("last_device"),
            (arrival.last() - arrival.slice(-2, 1).first()).alias("margin_ns"),
            pl.col("error_ns").max(),
            pl.col("transfer_ns").min().alias("least_transfer_ns"),
            pl.col("wait_ns").sum().alias("wait_sum_ns"),
        )
        .with_columns(pl.max_horizontal(pl.lit(0), pl.col("end_ns") - pl.col("ready_ns")).alias("transfer_ns"))
    )


@remembered
def waiting_in_collectives(trace: Trace) -> dict[Device, Intervals]:
    """Per GPU: when it stood in a collective whose last rank had not arrived, hidden or not, by the rank's own
    clock."""
    if not may_communicate(trace):
        return {}
    calls = collective_waits(trace).calls
    waited = calls.with_columns((pl.col("start_ns") + pl.col("wait_ns")).alias("end_ns"))
    return intervals_by(waited, "rank", "device")


@remembered
def exposed_waits(trace: Trace) -> dict[Device, Intervals]:
    """Per GPU: the part of `waiting_in_collectives` with no computation at the same time."""
    if not (stood := waiting_in_collectives(trace)):
        return {}
    exposed = exposed_by_device(collective_waits(trace).job.exposed)
    return {key: waiting & exposed[key] for key, waiting in stood.items() if key in exposed}


def bandwidth(waits: CollectiveWaits) -> pl.DataFrame:
    """Transfers of complete collectives, by kind, number of ranks and size; unknown kinds and sizes are left out.

    Columns: kind, size (ranks), bytes, count, transfer_ns (fastest), p50_ns, algbw_gb_per_s and busbw_gb_per_s of the
    fastest.
    """
    known = waits.instances.filter(
        pl.col("complete") & (pl.col("bytes") > 0) & (pl.col("transfer_ns") > 0) & pl.col("kind").is_in(BUS_FACTORS)
    )
    frame = (
        known.group_by("kind", "size", "bytes")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("transfer_ns").min(),
            pl.col("transfer_ns").median().alias("p50_ns"),
        )
        .sort("kind", "size", "bytes")
    )
    factors = [BUS_FACTORS[kind](size) for kind, size in frame.select("kind", "size").iter_rows()]
    rate = pl.col("bytes") / pl.col("transfer_ns")
    return frame.with_columns(
        rate.alias("algbw_gb_per_s"), (rate * pl.Series(factors, dtype=pl.Float64)).alias("busbw_gb_per_s")
    )


def messages(waits: CollectiveWaits) -> pl.DataFrame:
    """One row per pair of send and receive: sender, receiver (the lower and the higher rank where nothing says who
    sends), bytes, wait_ns and exposed_wait_ns (both ends), transfer_ns (from the later arrival to the later end, on one
    clock), exposed_transfer_ns (the larger end's), error_ns."""
    from_rank = pl.when(pl.col("kind") == "recv").then("peer").otherwise("rank")
    known = pl.col("rigorous").all()
    end = pl.col("end_ns") - pl.col("offset_ns")
    return (
        waits.pairs.group_by("instance", maintain_order=True)
        .agg(
            pl.when(known).then(from_rank.first()).otherwise(pl.col("rank").min()).alias("sender"),
            pl.max_horizontal(pl.col("rank").max(), pl.col("peer").max()).alias("high"),
            pl.min_horizontal(pl.col("rank").min(), pl.col("peer").min()).alias("low"),
            pl.col("bytes", "error_ns").max(),
            pl.col("wait_ns", "exposed_wait_ns").sum(),
            pl.col("exposed_transfer_ns").max(),
            (end.max() - pl.col("ready_ns").first()).clip(0).alias("transfer_ns"),
        )
        .with_columns(receiver=pl.when(pl.col("sender") == pl.col("low")).then("high").otherwise("low"))
        .drop("low", "high")
    )


def channels(waits: CollectiveWaits) -> pl.DataFrame:
    """One row per direction and size: sender, receiver, bytes, count, wait_ns, exposed_wait_ns (sums), transfer_ns
    (median), gb_per_s (of the median; 1 GB = 1e9 bytes), those with the most waiting first."""
    return (
        messages(waits)
        .group_by("sender", "receiver", "bytes")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("wait_ns", "exposed_wait_ns").sum(),
            pl.col("transfer_ns").median(),
        )
        .with_columns(gb_per_s=pl.when(pl.col("transfer_ns") > 0).then(pl.col("bytes") / pl.col("transfer_ns")))
        .sort("wait_ns", "sender", "receiver", "bytes", descending=[True, False, False, False], nulls_last=True)
    )


_SHAPE: Final = ("kind", "size", "hosts", "bytes")


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A group or pair `ranks` that needs `p50_ns` for a `kind` of `size_bytes` for which the median of comparable ones
    needs `usual_ns` (`measured`: by `link_curve`); `exposed_ns` is the exposed time of its slowest
    rank in its `count` transfers, summed."""

    ranks: tuple[int, ...]
    kind: str
    size_bytes: int
    p50_ns: float
    usual_ns: float
    count: int
    exposed_ns: int
    measured: bool = False

    @property
    def ratio(self) -> float:
        """How many times as long it takes."""
        return self.p50_ns / self.usual_ns

    @property
    def excess_ns(self) -> float:
        """The exposed time that would go if these transfers took the usual time."""
        return self.exposed_ns * (1 - self.usual_ns / self.p50_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """Groups and pairs of ranks that have at least two others, or a measurement, to be compared with.

    `frame`: ranks (list), kind, size (ranks), hosts, bytes, count, p50_ns, exposed_ns, usual_ns, measured: where too
    few are alike, the usual time is the one that was measured on this machine (`link_curve`), of one host.
    """

    frame: pl.DataFrame

    def slow(self, ratio: float) -> tuple[SlowLink, ...]:
        """Those whose transfers take more than `ratio` times the usual, the most exposed excess first."""
        rows = self.frame.filter(pl.col("p50_ns") > ratio * pl.col("usual_ns")).iter_rows(named=True)
        slow = [
            SlowLink(tuple(row["ranks"]), row["kind"], row["bytes"], row["p50_ns"], row["usual_ns"], row["count"],
                     row["exposed_ns"], row["measured"])
            for row in rows
        ]  # fmt: skip
        return tuple(sorted(slow, key=lambda link: (-link.excess_ns, link.ranks, link.kind, link.size_bytes)))

    def shared(self, slow: tuple[SlowLink, ...]) -> tuple[int, ...]:
        """Ranks that take part in every slow transfer and in none of the usual speed."""
        slow_groups = {link.ranks for link in slow}
        in_all = set.intersection(*(set(ranks) for ranks in slow_groups)) if slow_groups else set()
        sound = {rank for ranks in self.frame["ranks"].to_list() if tuple(ranks) not in slow_groups for rank in ranks}
        return tuple(sorted(in_all - sound))


@dataclass(frozen=True, slots=True)
class Detour:
    """Ranks of one host whose fastest large transfer, a `kind` of `size_bytes`, moves `bus_bytes_per_s` on the bus,
    `bus_share` of what the NVLink of their GPUs carries, of `count` large transfers."""

    ranks: tuple[int, ...]
    kind: str
    size_bytes: int
    count: int
    bus_bytes_per_s: float
    bus_share: float


@remembered
def beside_nvlink(trace: Trace) -> tuple[Detour, ...]:
    """Per group of ranks of one host whose GPUs all have NVLink: its fastest exchange that is large enough to show the
    link, the slowest group first."""
    members = collective_waits(trace).job.members.select("rank", "device_name")
    names = {rank: name for rank, name in members.iter_rows() if name}
    frame = _transfers(trace).filter(
        (pl.col("hosts") == 1) & (pl.col("bytes") >= assumed.NVLINK_BYTES.value) & pl.col("kind").is_in(BUS_FACTORS)
    )
    found = []
    for (ranks,), rows in frame.group_by("ranks", maintain_order=True):
        rates = [nvlink_bytes_per_s(names.get(rank, "")) for rank in ranks]
        if len(ranks) < 2 or not all(rates) or rows.height < assumed.LINK_CALLS.whole:
            continue
        factor = np.array([BUS_FACTORS[kind](size) for kind, size in rows.select("kind", "size").iter_rows()])
        on_bus = rows["bytes"].to_numpy() * factor / np.maximum(rows["transfer_ns"].to_numpy(), 1) * NS_PER_S
        best = int(on_bus.argmax())
        rate, kind, size = float(on_bus[best]), rows["kind"][best], int(rows["bytes"][best])
        share = rate / min(filter(None, rates))
        found.append(Detour(tuple(ranks), kind, size, rows.height, rate, share))
    return tuple(sorted(found, key=lambda group: (group.bus_share, group.ranks)))


@remembered
def links(trace: Trace) -> Links:
    """Groups and pairs of ranks with enough transfers of a known size each, among enough of their like."""
    each = _transfers(trace)
    units = (
        each.group_by("ranks", *_SHAPE)
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("transfer_ns").median().alias("p50_ns"),
            pl.col("exposed_transfer_ns").sum().alias("exposed_ns"),
        )
        .filter((pl.col("count") >= assumed.LINK_CALLS.whole) & (pl.col("p50_ns") >= assumed.LINK_SHORTEST_US.ns))
    )
    enough = pl.len().over(_SHAPE) >= assumed.LINK_PEERS.whole
    usual = pl.when(enough).then(pl.col("p50_ns").quantile(0.5, "lower").over(_SHAPE))
    curve = link_curve(trace) if collective_waits(trace).job.members["host"].drop_nulls().n_unique() < 2 else None
    alone = [
        None if curve is None else curve.time_ns(kind, len(ranks), size)
        for ranks, kind, size in units.select("ranks", "kind", "bytes").rows()
    ]
    known = units.with_columns(usual.alias("usual_ns"), pl.Series("alone_ns", alone, pl.Float64))
    known = known.with_columns(pl.coalesce("usual_ns", "alone_ns"), measured=pl.col("usual_ns").is_null())
    return Links(known.drop("alone_ns").drop_nulls("usual_ns").sort("ranks", *_SHAPE))


def _transfers(trace: Trace) -> pl.DataFrame:
    """Complete collectives and messages of a known size: kind, size (ranks), ranks, hosts, bytes, transfer_ns (the
    shortest kernel of any rank), exposed_transfer_ns."""
    waits = collective_waits(trace)
    calls = pl.concat([waits.calls, waits.pairs]).filter(pl.col("bytes").is_not_null() & pl.col("complete"))
    hosts = waits.job.members.select("rank", "clock").unique("rank", keep="first")
    calls = calls.join(hosts, on="rank", how="left").with_columns(
        kind=pl.when(pl.col("kind").is_in(["send", "recv"])).then(pl.lit("message")).otherwise("kind"),
        length_ns=pl.col("end_ns") - pl.col("start_ns"),
    )
    return calls.group_by("instance").agg(
        pl.col("kind").first(),
        pl.col("bytes").max(),
        pl.col("rank").unique().sort().alias("ranks"),
        pl.col("size").first(),
        pl.col("clock").n_unique().alias("hosts"),
        pl.col("length_ns").min().alias("transfer_ns"),
        pl.col("exposed_transfer_ns").max(),
    )


def waits_by_step(waits: CollectiveWaits) -> pl.DataFrame:
    """One row per rank and kept step, in that order: rank, step, period_ns, wait_ns and transfer_ns: the parts of
    collectives and messages begun in the step that no computation hides. A rank of several GPUs has their mean.

    Steps are bounded by the rank's own clock, so no clock of another rank is asked.
    """
    device, parts = ["rank", "device"], ["exposed_wait_ns", "exposed_transfer_ns"]
    steps = waits.job.steps.select(*device, "step", "start_ns", "end_ns").sort("start_ns")
    calls = pl.concat([some.select(*device, "start_ns", *parts) for some in (waits.calls, waits.pairs)])
    inside = (
        calls.sort("start_ns")
        .join_asof(
            steps.with_columns(pl.col("start_ns").alias("begins")), on="start_ns", by=device, check_sortedness=False
        )
        .filter(pl.col("start_ns") < pl.col("end_ns"))
        .group_by(*device, "step")
        .agg(pl.col(parts).sum())
    )
    joined = steps.join(inside, on=[*device, "step"], how="left").with_columns(pl.col(parts).fill_null(0))
    return (
        joined.group_by("rank", "step")
        .agg(
            (pl.col("end_ns") - pl.col("start_ns")).mean().alias("period_ns"),
            pl.col("exposed_wait_ns").mean().alias("wait_ns"),
            pl.col("exposed_transfer_ns").mean().alias("transfer_ns"),
        )
        .sort("rank", "step")
    )
