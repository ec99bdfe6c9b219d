"""Every collective and message split into waiting for the last rank and moving data, hidden and exposed.

From waits follow two views of transfers. `bandwidth` is that of nccl-tests (PERFORMANCE.md): algbw = S / t and
busbw = algbw x factor of the collective, t being the transfer from the last rank's arrival to the last end, since
waiting for a late rank moves no data; 1 GB = 1e9 bytes. `links` compares groups and pairs of ranks that transfer the
same.

`waits_by_step` says how long each rank waited for others in each of its steps.
"""

from typing import Final

import polars as pl

from timesink.knowledge.collectives import BUS_FACTORS, EXCHANGE
from timesink.measures.communication import may_communicate
from timesink.measures.communication.clocks import Clocks, align_clocks
from timesink.measures.communication.matching import (
    MatchedCollectives,
    MatchedMessages,
    match_collectives,
    match_messages,
)
from timesink.measures.ranks.job import Job, exposed_by_device, job
from timesink.measures.timeline import Device, covered_by_device
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_SHOWN: Final = 5  # exchanges that waited for a late rank: fewer may have done so by chance


class CollectiveWaits(Record, eq=False):
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
    calls = _add_exposed(_with_seen_barriers(_split_waits(clocks.calls)), job.exposed)
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


def _with_seen_barriers(calls: pl.DataFrame) -> pl.DataFrame:
    """An exchange that runs as sends and receives may hold its ranks or not, and its name does not say. It did where of
    all instances of its group nobody left before the last had come, and some came later than a transfer takes::

        rank  arrival  end
           0      190  210
           1      100  205     held; over at 120 it would have gone on without rank 0
    """
    if not (calls["kind"] == EXCHANGE).any():
        return calls
    exchange = pl.col("kind") == EXCHANGE
    of_group = pl.col("group").fill_null("")
    instances = (
        calls.filter(exchange)
        .group_by(of_group, "instance")
        .agg(
            is_held=((pl.col("transfer_ns") > pl.col("error_ns")).fill_null(False) & pl.col("complete")).all(),
            late_ns=pl.col("wait_ns").max() - pl.col("transfer_ns").max() - pl.col("error_ns").max(),
        )
    )
    groups = instances.group_by("group").agg(pl.col("is_held").all(), shown=(pl.col("late_ns") > 0).sum())
    held = groups.filter("is_held", pl.col("shown") >= _SHOWN)["group"]
    return calls.with_columns(rigorous=pl.col("rigorous") | (exchange & of_group.is_in(held.implode())))


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
