"""How late each rank came to each collective, and how much of that was its own doing.

A rank that waited for a late one comes late itself: that lateness is inherited. Time is therefore counted from an
anchor, the last collective that held everybody up (most ranks had nothing left to compute and went on after it): all
ranks leave it at the same instant. What a rank needs from there to the next collective, beyond the median of the
ranks in it (of two: the earlier), is its own, but for what it stood in smaller collectives and messages for others.
What it stood in transfers longer than its peers is told from what its host and its GPU took.

What the job gains where ranks come as their peers do: the question of ByteDance's straggler study (OSDI'25).

Between two anchors a job is as late as its latest rank. Without the own lateness of some ranks it is as late as the
latest of the others; that gain is real only as far as the others stood waiting for it with nothing to compute, and only
as far as the hosts of the others can keep that pace.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.communication.waits import CollectiveWaits, collective_waits
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered

# A collective that starts this soon after the one before it on its stream was held by that one, not by its rank's work.
_FOLLOWS_NS: Final = 20_000
_HELD_UP: Final = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Lateness:
    """`calls`: instance, rank, device, arrival_ns, end_ns (first rank's clock), anchor (instance, -1: none seen yet),
    since_anchor_ns, follows (instance that held it, -1: none), behind_ns (after the median arrival), own_ns, device_ns,
    network_ns, host_ns, error_ns. own = device + network + host: device is computation beyond the median since the
    anchor, network the exposed transfer beyond the median, host the rest.

    `ranks`: rank, own_ns (largest per anchor, summed), device_ns, network_ns, host_ns, late_count, anchors, last_count,
    since_ns (when the first of the anchors it was late at ended). Ranks that come late by no more than the clocks leave
    open are not late. `anchors`: instances that held everybody up. `epochs`: rank, anchor, own_ns (largest of the
    rank's calls after that anchor, the last anchor left out), stood_ns (exposed communication of them all but the last
    transfer). `span_ns`: from the first anchor's end to the last one's. `host_busy`: rank, busy_ratio (share of the
    steady steps in which the host did not wait); no row where not known.
    """

    calls: pl.DataFrame
    ranks: pl.DataFrame
    anchors: Int64Array
    epochs: pl.DataFrame
    span_ns: int
    host_busy: pl.DataFrame


@remembered
def lateness(trace: Trace) -> Lateness:
    """Lateness of every rank of a trace."""
    return lateness_of(collective_waits(trace))


def lateness_of(waits: CollectiveWaits) -> Lateness:
    """Lateness of every rank of a job."""
    anchors = _anchors(waits.calls)
    placed = _anchored(waits, anchors)
    same = ["instance", "anchor"]
    known = pl.col("anchor") >= 0
    error = pl.col("error_ns").fill_null(np.iinfo(np.int64).max)

    def beyond(name: str) -> pl.Expr:  # of two ranks the earlier, of many the median
        return (pl.col(name) - pl.col(name).quantile(0.5, "lower").over(same)).round().cast(pl.Int64)

    own = beyond("since_anchor_ns") - beyond("waited_since_ns").clip(0)
    calls = (
        placed.with_columns(
            (pl.col("arrival_ns") - pl.col("arrival_ns").quantile(0.5, "lower").over("instance"))
            .clip(0)
            .cast(pl.Int64)
            .alias("behind_ns"),
            pl.when(known & pl.col("rigorous") & (pl.col("follows") < 0) & (own > error))
            .then(own)
            .otherwise(0)
            .alias("own_ns"),
        )
        .with_columns(pl.min_horizontal(pl.col("own_ns"), beyond("work_since_ns").clip(0)).alias("device_ns"))
        .with_columns(
            pl.min_horizontal(pl.col("own_ns") - pl.col("device_ns"), beyond("moved_since_ns").clip(0)).alias(
                "network_ns"
            )
        )
        .with_columns((pl.col("own_ns") - pl.col("device_ns") - pl.col("network_ns")).alias("host_ns"))
        .sort("instance", "rank", "device")
    )
    over = calls.filter(pl.col("instance").is_in(anchors)).group_by("instance").agg(pl.col("end_ns").max())
    over = over.sort("end_ns", "instance")
    ends, last = over["end_ns"].to_numpy(), int(over["instance"][-1]) if over.height else -1
    # Transfers before the last of an epoch would have run beside the computation that is over when a late rank comes.
    stood = (pl.col("exposed_wait_ns") + pl.col("exposed_transfer_ns")).alias("stood_ns")
    last_transfer = pl.col("exposed_transfer_ns").sort_by("end_ns", "instance").last()
    epochs = (
        calls.filter((pl.col("anchor") >= 0) & (pl.col("anchor") != last))
        .group_by("rank", "anchor")
        .agg(pl.col("own_ns").max(), stood.sum() - last_transfer)
        .sort("anchor", "rank")
    )
    span = int(ends[-1] - ends[0]) if ends.size else 0
    return Lateness(calls, _by_rank(calls, waits.instances), anchors, epochs, span, _host_busy(waits))


def _anchors(calls: pl.DataFrame) -> Int64Array:
    held = calls.group_by("instance").agg(pl.col("holds").mean().alias("share"), pl.col("complete").all())
    return np.sort(held.filter((pl.col("share") >= _HELD_UP) & pl.col("complete"))["instance"].to_numpy())


def _anchored(waits: CollectiveWaits, anchors: Int64Array) -> pl.DataFrame:
    """Each call with the last anchor its rank had left when it arrived, and with the call right before it."""
    standing = _standing(waits)
    calls = waits.calls.with_columns((pl.col("end_ns") - pl.col("offset_ns")).alias("end_ns")).sort(
        "rank", "device", "arrival_ns", "end_ns", "instance"
    )
    parts = [calls.clear().with_columns(anchor=pl.lit(0, pl.Int64), since_anchor_ns=pl.lit(0, pl.Int64),
                                        work_since_ns=pl.lit(0, pl.Int64), waited_since_ns=pl.lit(0, pl.Int64),
                                        moved_since_ns=pl.lit(0, pl.Int64), follows=pl.lit(0, pl.Int64))]  # fmt: skip
    for mine in calls.partition_by("rank", "device", maintain_order=True):
        arrival, end = mine["arrival_ns"].to_numpy(), mine["end_ns"].to_numpy()
        instance, stream = mine["instance"].to_numpy(), mine["stream"].fill_null(-1).to_numpy()
        is_anchor = np.isin(instance, anchors)
        left_ns, left = end[is_anchor], instance[is_anchor]
        order = np.argsort(left_ns, kind="stable")
        place = np.searchsorted(left_ns[order], arrival, side="right") - 1
        found = place >= 0
        row = order[np.maximum(place, 0)] if order.size else np.zeros(arrival.size, np.int64)
        anchor_end = np.where(found, left_ns[row] if order.size else 0, 0)
        worked = np.cumsum(mine["work_before_ns"].to_numpy())
        waiting, moving = standing[mine["rank"][0], mine["device"][0]]
        start = mine["start_ns"].to_numpy()
        since = np.where(found, anchor_end + mine["offset_ns"].to_numpy(), start)
        anchor_row = np.flatnonzero(is_anchor)[row] if order.size else np.zeros(arrival.size, np.int64)
        parts.append(
            mine.with_columns(
                pl.Series("anchor", np.where(found, left[row] if order.size else -1, -1)),
                pl.Series("since_anchor_ns", np.where(found, arrival - anchor_end, 0)),
                pl.Series("work_since_ns", np.where(found, worked - worked[anchor_row], 0)),
                pl.Series("waited_since_ns", waiting.covered_ns(np.minimum(since, start), start)),
                pl.Series("moved_since_ns", moving.covered_ns(np.minimum(since, start), start)),
                pl.Series("follows", _held_by(arrival, end, stream, instance)),
            )
        )
    return pl.concat(parts)


def _standing(waits: CollectiveWaits) -> dict[tuple[int, int], tuple[Intervals, Intervals]]:
    """Per GPU, by its own clock: when it stood waiting for others, and when it stood in transfers."""
    exposed = waits.job.exposed.partition_by("rank", "device", as_dict=True)
    kept = ["rank", "device", "start_ns", "end_ns", "wait_ns"]
    talked = pl.concat([waits.calls.select(kept), waits.pairs.select(kept)])
    found = {}
    for (rank, device), mine in talked.partition_by("rank", "device", as_dict=True).items():
        start, end, wait = (mine[name].to_numpy() for name in ("start_ns", "end_ns", "wait_ns"))
        bare = Intervals.of(exposed[rank, device]) if (rank, device) in exposed else Intervals.none()
        waiting = Intervals.union_of(start, start + wait) & bare
        found[rank, device] = waiting, (Intervals.union_of(start + wait, end) & bare) - waiting
    return found


def _held_by(arrival: Int64Array, end: Int64Array, stream: Int64Array, instance: Int64Array) -> Int64Array:
    """The instance on the same stream whose end let each call begin, or -1."""
    found = np.full(arrival.size, -1, np.int64)
    for lane in np.unique(stream):
        rows = np.flatnonzero(stream == lane)
        gap = arrival[rows[1:]] - end[rows[:-1]]
        found[rows[1:]] = np.where((gap >= 0) & (gap <= _FOLLOWS_NS), instance[rows[:-1]], -1)
    return found


def _host_busy(waits: CollectiveWaits) -> pl.DataFrame:
    length = pl.col("end_ns") - pl.col("start_ns")
    return (
        waits.job.steps.drop_nulls("host_busy_ns")
        .unique(["rank", "step"], keep="first", maintain_order=True)
        .group_by("rank")
        .agg((pl.col("host_busy_ns").sum() / length.sum()).alias("busy_ratio"))
        .sort("rank")
    )


def _by_rank(calls: pl.DataFrame, instances: pl.DataFrame) -> pl.DataFrame:
    known = calls.filter(pl.col("anchor") >= 0)
    worst = known.sort("own_ns", "instance", descending=[True, False]).unique(
        ["rank", "anchor"], keep="first", maintain_order=True
    )
    last = instances.group_by(pl.col("last_rank").alias("rank")).agg(pl.len().cast(pl.Int64).alias("last_count"))
    late = pl.col("own_ns") > 0
    return (
        calls.select("rank")
        .unique()
        .join(
            worst.group_by("rank").agg(
                pl.col("own_ns", "device_ns", "network_ns", "host_ns").sum(),
                late.sum().cast(pl.Int64).alias("late_count"),
                (pl.col("arrival_ns") - pl.col("since_anchor_ns")).filter(late).min().alias("since_ns"),
            ),
            on="rank",
            how="left",
        )
        .join(last, on="rank", how="left")
        .with_columns(
            pl.col("own_ns", "device_ns", "network_ns", "host_ns", "late_count", "last_count").fill_null(0),
            pl.lit(int(known["anchor"].n_unique()), pl.Int64).alias("anchors"),
        )
        .sort("rank")
    )


# What such a gain may be off by, of itself: p10 to p90 of replays of one rank's graph (whatif.pricing).
GAIN_ERROR_RATIO: Final = 0.1


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """`gain_ns` of `span_ns`, from the first anchor's end to the last one's; nothing is said of what lies outside."""

    ranks: tuple[int, ...]
    gain_ns: int
    span_ns: int

    @property
    def gain_ratio(self) -> float:
        """Share of the time that goes."""
        return self.gain_ns / self.span_ns if self.span_ns else 0.0


def rebalanced(late: Lateness, ranks: Collection[int]) -> Rebalanced:
    """The gain where these ranks lose their own lateness. With all ranks given nobody comes later than the median."""
    chosen = tuple(sorted(set(ranks)))
    epochs = late.epochs
    if late.anchors.size < 2 or not epochs.height or not chosen:
        return Rebalanced(chosen, 0, 0 if late.anchors.size < 2 else late.span_ns)
    theirs = pl.col("rank").is_in(chosen)
    others = epochs.filter(~theirs)
    after = others.group_by("anchor").agg(
        pl.col("own_ns").max().alias("next_ns"), pl.col("stood_ns").min().alias("waited_ns")
    )
    if not others.height:
        after = epochs.group_by("anchor").agg(
            pl.lit(0, pl.Int64).alias("next_ns"), pl.col("stood_ns").max().alias("waited_ns")
        )
    latest = epochs.group_by("anchor").agg(pl.col("own_ns").max())
    gains = latest.join(after, on="anchor", how="inner").select(
        pl.min_horizontal(pl.col("own_ns") - pl.col("next_ns"), "waited_ns").clip(0).sum()
    )
    gain = min(int(gains.item() or 0), _host_slack_ns(late, chosen))
    return Rebalanced(chosen, max(gain, 0), late.span_ns)


def _host_slack_ns(late: Lateness, chosen: tuple[int, ...]) -> int:
    """How much shorter the span could be before some host outside `chosen` is busy all the time."""
    others = late.host_busy.filter(~pl.col("rank").is_in(chosen))
    hosts = others if others.height else late.host_busy
    busy = hosts["busy_ratio"].max()
    return late.span_ns if not isinstance(busy, float) else int(np.floor(late.span_ns * max(0.0, 1.0 - busy)))
