"""How late each rank came to each collective, how much of that was its own doing, and what the job would gain without
it.

A rank that waited for a late one comes late itself: that lateness is inherited. Time is therefore counted from an
*anchor*, the last collective that held everybody up: all ranks leave it at the same instant. `straggler.md` says what
from there to the next collective is a rank's own, and how it is split by cause.

Between two anchors a job is as late as its latest rank. Without the own lateness of some ranks it is as late as the
latest of the others (the question of the straggler study of Lin et al., OSDI 2025). That gain is real only as far as
the others stood waiting for it with nothing to compute, and as far as the hosts of the others can keep that pace.

`worth_of_rank` prices that gain per step, as low, expected and high.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.assumptions import replay
from timesink.measures.communication.waits import CollectiveWaits, collective_waits
from timesink.measures.ranks.job import exposed_by_device
from timesink.measures.timeline import Device, rows_by_device
from timesink.model.arrays import Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.nesting import key_slices
from timesink.model.trace import Trace, remembered
from timesink.records import Record


class Lateness(Record, eq=False):
    """Lateness per call, per rank and per epoch (the time from one anchor to the next).

    `calls`: instance, rank, device, arrival_ns, end_ns (first rank's clock), anchor (instance, -1: none seen yet),
    since_anchor_ns, follows (instance that held it, -1: none), behind_ns (after the median arrival), own_ns, device_ns,
    network_ns, host_ns, error_ns. own = device + network + host: device is computation beyond the median since the
    anchor, network the exposed transfer beyond the median, host the rest; all of them ns.

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

    @property
    def own_ns(self) -> dict[int, int]:
        """By rank how late it is of itself, of those that are, the latest first."""
        own = self.ranks.filter(pl.col("own_ns") > 0).sort("own_ns", "rank", descending=[True, False])
        return dict(own.select("rank", "own_ns").rows())

    @property
    def is_of_one(self) -> bool:
        """Whether one rank is late for longer than all others together."""
        own = self.own_ns.values()
        return 2 * max(own, default=0) > sum(own)

    def of_rank(self, rank: int) -> tuple[dict[str, Any], str]:
        """The row of a rank in `ranks`, and the column that has most of its lateness, the first of equals."""
        row = self.ranks.row(by_predicate=pl.col("rank") == rank, named=True)
        return row, max(("host_ns", "device_ns", "network_ns"), key=row.__getitem__)


@remembered
def lateness(trace: Trace) -> Lateness:
    """Lateness of every rank of a trace."""
    return lateness_of(collective_waits(trace))


@remembered
def lateness_if_exact(trace: Trace) -> Lateness:
    """The same if clocks are what they are most likely: what of it lies within their error may be none."""
    return lateness_of(collective_waits(trace), as_if_exact=True)


def may_hide(waits: CollectiveWaits, late: Lateness, ratio: float) -> bool:
    """Whether the error of the clocks, once an anchor, may be more than such a share of the time."""
    error_ns = waits.clocks.worst_error_ns
    return error_ns is None or late.anchors.size * error_ns > ratio * late.span_ns


def lateness_of(waits: CollectiveWaits, *, as_if_exact: bool = False) -> Lateness:
    """Lateness of every rank of a job; as if clocks were exact, also what lies within their error."""
    anchors = _find_anchors(waits.calls)
    error = pl.lit(0) if as_if_exact else pl.col("error_ns").fill_null(np.iinfo(np.int64).max)

    def beyond(name: str) -> pl.Expr:  # the median of the ranks that count from the same anchor; of two the earlier
        median = pl.col(name).quantile(0.5, "lower").over("instance", "anchor")
        return (pl.col(name) - median).round().cast(pl.Int64)

    own = beyond("since_anchor_ns") - beyond("waited_since_ns").clip(0)
    is_own = pl.col("rigorous") & (pl.col("follows") < 0) & (own > error)
    behind = pl.col("arrival_ns") - pl.col("arrival_ns").quantile(0.5, "lower").over("instance")
    network = pl.min_horizontal(pl.col("own_ns") - pl.col("device_ns"), beyond("moved_since_ns").clip(0))
    calls = (
        _add_anchors(waits, anchors)
        .with_columns(behind_ns=behind.clip(0).cast(pl.Int64), own_ns=pl.when(is_own).then(own).otherwise(0))
        .with_columns(pl.min_horizontal(pl.col("own_ns"), beyond("work_since_ns").clip(0)).alias("device_ns"))
        .with_columns(network.alias("network_ns"))
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
    return Lateness(calls, _sum_by_rank(calls, waits, span), anchors, epochs, span, _host_busy(waits))


def _find_anchors(calls: pl.DataFrame) -> Int64Array:
    """Instances, ascending, of complete collectives that held at least half of their ranks."""
    held = calls.group_by("instance").agg(pl.col("holds").mean().alias("share"), pl.col("complete").all())
    return np.sort(held.filter((pl.col("share") >= assumed.HELD_UP.value) & pl.col("complete"))["instance"].to_numpy())


def _add_anchors(waits: CollectiveWaits, anchors: Int64Array) -> pl.DataFrame:
    """Each call with the last anchor its rank had left when it arrived, what the GPU did since, and what held the call.

    Adds anchor, since_anchor_ns, work_since_ns, waited_since_ns, moved_since_ns and follows; end_ns is put on the first
    rank's clock. Four calls of one GPU, by that clock, where instances 3 and 8 are anchors:

        instance  arrival  end   computed before   anchor  since_anchor  work_since
               3      100  150                40       -1             0           0
               5      200  220                50        3            50          50
               8      300  330                60        3           150         110
               9      400  410                70        8            70          70
    """
    standing = _measure_standing(waits)
    calls = waits.calls.with_columns((pl.col("end_ns") - pl.col("offset_ns")).alias("end_ns")).sort(
        "rank", "device", "arrival_ns", "end_ns", "instance"
    )
    names = ("anchor", "since_anchor_ns", "work_since_ns", "waited_since_ns", "moved_since_ns", "follows")
    added = {name: np.zeros(calls.height, np.int64) for name in names}
    for (rank, device), first, last in key_slices(calls, ("rank", "device")):
        own = calls[first:last]
        known = ("instance", "start_ns", "arrival_ns", "end_ns", "offset_ns")
        instance, start, arrival, end, offset = (own[name].to_numpy() for name in known)
        # Rows of anchors in order of their end: the last one that ended before a call arrived is its anchor.
        rows = np.flatnonzero(np.isin(instance, anchors))
        rows = rows[np.argsort(end[rows], kind="stable")]
        left = np.searchsorted(end[rows], arrival, side="right") - 1
        found = left >= 0
        anchor = rows[left] if rows.size else np.zeros(arrival.size, np.int64)
        worked = np.cumsum(own["work_before_ns"].to_numpy())
        waiting, moving = standing[rank, device]
        since = np.minimum(np.where(found, end[anchor] + offset, start), start)  # by the rank's own clock
        stream = own["stream"].fill_null(-1).to_numpy()
        here = slice(first, last)
        added["anchor"][here] = np.where(found, instance[anchor], -1)
        added["since_anchor_ns"][here] = np.where(found, arrival - end[anchor], 0)
        added["work_since_ns"][here] = np.where(found, worked - worked[anchor], 0)
        added["waited_since_ns"][here] = waiting.covered_ns(since, start)
        added["moved_since_ns"][here] = moving.covered_ns(since, start)
        added["follows"][here] = _find_holders(arrival, end, stream, instance)
    return calls.with_columns(pl.Series(name, column) for name, column in added.items())


def _measure_standing(waits: CollectiveWaits) -> dict[Device, tuple[Intervals, Intervals]]:
    """Per GPU, by its own clock: when it stood exposed waiting for others, and when in transfers."""
    exposed = exposed_by_device(waits.job.exposed)
    columns = ["rank", "device", "start_ns", "end_ns", "wait_ns"]
    calls = pl.concat([waits.calls.select(columns), waits.pairs.select(columns)])
    standing = {}
    starts, ends, lengths = (calls[name].to_numpy() for name in ("start_ns", "end_ns", "wait_ns"))
    for device, rows in rows_by_device(calls).items():
        start, end, wait = starts[rows], ends[rows], lengths[rows]
        free = exposed.get(device, Intervals.none())
        waiting = Intervals.union_of(start, start + wait) & free
        standing[device] = waiting, (Intervals.union_of(start + wait, end) & free) - waiting
    return standing


def _find_holders(arrival: Int64Array, end: Int64Array, stream: Int64Array, instance: Int64Array) -> Int64Array:
    """The instance on the same stream whose end let each call begin, or -1; rows are in order of arrival.

    stream        7       7       8       7
    arrival       0  60_000  60_000  95_000
    end      50_000  90_000  70_000  99_000
    instance      1       2       3       4
    result       -1       1      -1       2     within 20_000 ns after the end before it on the stream
    """
    holder = np.full(arrival.size, -1, np.int64)
    for one_stream in np.unique(stream):
        rows = np.flatnonzero(stream == one_stream)
        gap = arrival[rows[1:]] - end[rows[:-1]]
        holder[rows[1:]] = np.where((gap >= 0) & (gap <= replay.CLOCK_SLACK_US.ns), instance[rows[:-1]], -1)
    return holder


def _host_busy(waits: CollectiveWaits) -> pl.DataFrame:
    """rank, busy_ratio: the share of its steady steps in which a rank's host did not wait, less recording."""
    length, busy = pl.col("end_ns") - pl.col("start_ns"), (pl.col("host_busy_ns") - pl.col("recorded_ns")).clip(0)
    return (
        waits.job.steps.drop_nulls("host_busy_ns")
        .unique(["rank", "step"], keep="first", maintain_order=True)
        .group_by("rank")
        .agg((busy.sum() / length.sum()).alias("busy_ratio"))
        .sort("rank")
    )


def _computed_more_ns(waits: CollectiveWaits, span_ns: int) -> pl.DataFrame:
    """rank, more_ns: what it computes in such a time beyond the rank that computes least; no row where not known."""
    length = pl.col("end_ns") - pl.col("start_ns")
    shares = waits.job.steps.group_by("rank").agg(share=pl.col("compute_ns").sum() / length.sum())
    more = (pl.col("share") - pl.col("share").min()) * span_ns
    return shares.select("rank", more_ns=more.round().cast(pl.Int64))


def _sum_by_rank(calls: pl.DataFrame, waits: CollectiveWaits, span_ns: int) -> pl.DataFrame:
    """The `ranks` of `Lateness`: of each anchor the rank's latest call, added up."""
    own = ["own_ns", "device_ns", "network_ns", "host_ns"]
    known = calls.select("rank", "anchor", "instance", "arrival_ns", "since_anchor_ns", *own).filter(
        pl.col("anchor") >= 0
    )
    worst = known.sort("own_ns", "instance", descending=[True, False]).unique(
        ["rank", "anchor"], keep="first", maintain_order=True
    )
    last = waits.instances.group_by(pl.col("last_rank").alias("rank")).agg(pl.len().cast(pl.Int64).alias("last_count"))
    late = pl.col("own_ns") > 0
    summed = worst.group_by("rank").agg(
        pl.col(own).sum(),
        late.sum().cast(pl.Int64).alias("late_count"),
        (pl.col("arrival_ns") - pl.col("since_anchor_ns")).filter(late).min().alias("since_ns"),
    )
    ranks = calls.select("rank").unique().join(summed, on="rank", how="left").join(last, on="rank", how="left")
    return (
        ranks.join(_computed_more_ns(waits, span_ns), on="rank", how="left")
        .with_columns(
            pl.col(*own, "late_count", "last_count").fill_null(0),
            pl.lit(int(known["anchor"].n_unique()), pl.Int64).alias("anchors"),
        )
        .with_columns(pl.min_horizontal("device_ns", "more_ns").alias("device_ns"))
        .with_columns((pl.col("own_ns") - pl.col("device_ns") - pl.col("network_ns")).alias("host_ns"))
        .drop("more_ns")
        .sort("rank")
    )


def rebalanced(late: Lateness, ranks: Collection[int]) -> float:
    """The share of the time between anchors that a job gains where these ranks are not late of themselves; with all
    ranks given nobody comes later than the median.

    Per epoch: min(latest own lateness - latest of the others, the shortest exposed communication of the others), not
    below 0; summed, and capped by `_host_slack_ns`. Own lateness 90, 20 and 0 of ranks 0 to 2, of which rank 0 is
    chosen and the others stood 60 and 80: the epoch gains min(90 - 20, 60) = 60.
    """
    epochs, theirs = late.epochs, pl.col("rank").is_in(list(ranks))
    if late.anchors.size < 2:
        return 0.0
    others = epochs.filter(~theirs)
    after = others.group_by("anchor").agg(next_ns=pl.col("own_ns").max(), waited_ns=pl.col("stood_ns").min())
    if not others.height:
        after = epochs.group_by("anchor").agg(next_ns=pl.lit(0, pl.Int64), waited_ns=pl.col("stood_ns").max())
    latest = epochs.group_by("anchor").agg(pl.col("own_ns").max())
    gains = latest.join(after, on="anchor", how="inner").select(
        pl.min_horizontal(pl.col("own_ns") - pl.col("next_ns"), "waited_ns").clip(0).sum()
    )
    return min(int(gains.item()), _host_slack_ns(late, ranks)) / max(late.span_ns, 1)


class LatestRank(Record):
    """The rank without whose lateness the job gains most, that gain as a share of the job's time, and what share of all
    lateness is that rank's."""

    rank: int
    gain_ratio: float
    own_ratio: float

    @property
    def has_most(self) -> bool:
        """Whether the others together are late for less."""
        return self.own_ratio > 0.5

    def is_late(self, limit_ratio: float) -> bool:
        """Whether the job gains more than a limit without it, and most of all lateness is its own."""
        return self.gain_ratio > limit_ratio and self.has_most


def latest_rank(late: Lateness, ranks: Collection[int]) -> LatestRank:
    """Of these ranks; of equal ones the first. Nothing is gained by a rank that nowhere is the latest alone."""
    latest = late.epochs.filter(pl.col("own_ns") == pl.col("own_ns").max().over("anchor"))
    alone = set(latest.filter(pl.len().over("anchor") == 1)["rank"])
    gains = {rank: rebalanced(late, [rank]) if rank in alone else 0.0 for rank in ranks}
    worst = max(gains, key=lambda rank: (gains[rank], -rank))
    own = dict(late.ranks.select("rank", "own_ns").rows())
    return LatestRank(worst, gains[worst], own.get(worst, 0) / max(sum(own.values()), 1))


def even_gain(late: Lateness) -> float:
    """The share of the time that the job gains where no rank comes later than the median."""
    return rebalanced(late, late.ranks.filter(pl.col("own_ns") > 0)["rank"].to_list())


def left_by_balance(late: Lateness) -> float:
    """The share of `even_gain` that stays with all ranks, as computation does that is spread over them: of two that are
    late in turn half of it, as far as their lateness is computation."""
    of_anchor = late.epochs.group_by("anchor").agg(most=pl.col("own_ns").max(), mean=pl.col("own_ns").mean())
    most, mean = of_anchor.select(pl.sum("most", "mean")).row(0)
    own, device = late.ranks.select(pl.sum("own_ns", "device_ns")).row(0)
    return float(mean / max(most, 1) * device / max(own, 1))


def evened_out(
    waits: CollectiveWaits, late: Lateness, rank: int, slowed_ns: Mapping[int, float]
) -> tuple[float, float]:
    """The share of the time gained where what a rank computes beyond the mean of all is spread over them, and where it
    goes.

    `slowed_ns` is what computation loses per step beside communication, by rank: collectives that wait for a late rank
    slow the others' kernels all the while, which does not make their work more.

    That is the excess per steady step, over all of the span, at most the shortest exposed communication of the others.
    Work does not vanish by being balanced: of two ranks that compute 12 and 4 ms a step, each has 8 then, and 4 ms are
    gained. Where the rank is merely slower at the same work, it is the excess over its peers that goes, 8 ms. Where a
    rank has no steady steps, its lateness by computation is the excess.
    """
    length = (pl.col("end_ns") - pl.col("start_ns")).mean()
    means = waits.job.steps.group_by("rank").agg(pl.col("compute_ns").mean(), length.alias("step_ns")).sort("rank")
    own, others = means.filter(pl.col("rank") == rank), means.filter(pl.col("rank") != rank)
    stood = late.epochs.filter(pl.col("rank") != rank).group_by("anchor").agg(pl.col("stood_ns").min())
    most = min(int(stood["stood_ns"].sum()), _host_slack_ns(late, [rank])) / max(late.span_ns, 1)
    if not own.height or not others.height:
        computed_ns = int(late.ranks.filter(pl.col("rank") == rank)["device_ns"].sum())
        gone = min(computed_ns / max(late.span_ns, 1), most)
        return gone * (1 - 1 / max(late.ranks.height, 1)), gone
    work = {r: float(compute) - slowed_ns.get(r, 0.0) for r, compute in means.select("rank", "compute_ns").rows()}
    peers, step = [ns for r, ns in work.items() if r != rank], max(float(own["step_ns"][0]), 1.0)
    left_ns = sum(work.values()) / len(work), median(peers)
    spread, gone = (min(max(work[rank] - left, 0.0) / step, most) for left in left_ns)
    return spread, gone


def _host_slack_ns(late: Lateness, chosen: Collection[int]) -> int:
    """How much shorter the span could be before some host outside `chosen` is busy all the time."""
    others = late.host_busy.filter(~pl.col("rank").is_in(list(chosen)))
    hosts = others if others.height else late.host_busy
    busy = hosts["busy_ratio"].max()
    return late.span_ns if not isinstance(busy, float) else int(np.floor(late.span_ns * max(0.0, 1.0 - busy)))
