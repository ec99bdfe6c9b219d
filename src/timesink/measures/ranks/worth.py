"""What a job wins if one rank were late no more, and whether its lateness is the recording's own."""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.job import as_often_ns, step_ns
from timesink.measures.ranks.lateness import evened_out, lateness
from timesink.measures.ranks.paces import estimated_step_ns, room_beside, slowed_ns
from timesink.measures.ranks.why_late import beside_peers
from timesink.measures.timeline import covered_by_device, device_timeline
from timesink.measures.timeline.replay import deflated_pricers
from timesink.model.arrays import median
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.whatif import Case


class RankWorth(Record):
    """A gain per step, `low_ns <= gain_ns <= high_ns <= step_ns`; the step is the job's without a profiler, as told or
    by estimate."""

    low_ns: float
    gain_ns: float
    high_ns: float
    step_ns: float


_ANOTHER_RUN: Final = 2.0  # times the recorded step: a step told to be as long is not the one that was recorded


def worth_of_rank(trace: Trace, rank: int, gain_ratio: float, late_by: str) -> RankWorth:
    """The gain without the lateness of a rank that replays put at `gain_ratio` of the time.

    Late by more work (`device_ns`): where the rank runs what its peers run and more slowly, its excess goes; of what it
    has to do besides (`_work_share`) balancing leaves some on the peers, half of it on one peer. Late by
    its host (`host_ns`): a profiler slows hosts, and some more than others, so it wins no more than what the job's step
    exceeds the other ranks' own, both without the profiler by estimate, and perhaps nothing; but of a host that takes
    several times as long as the others' the time beyond that is no profiler's. Where the step without the profiler is
    told, it is what that exceeds the step as recorded without the rank's lateness: that step is the others', whose
    devices no profiler slows, however late the rank was when it was recorded. Else the ratio itself.
    """
    waits, estimated = collective_waits(trace), estimated_step_ns(trace)
    gain_ns, profiled = as_often_ns(trace, gain_ratio)
    held_ratio, gain_ratio = gain_ratio, gain_ns / max(profiled, 1.0)
    step = trace.unprofiled_step_ns or (min(estimated[1], profiled) if estimated else profiled)
    error = assumed.GAIN_ERROR.value
    low, gain, high = gain_ratio * (1 - error), gain_ratio, gain_ratio * (1 + error)
    if late_by == "device_ns":
        spread, gone = evened_out(waits, lateness(trace), rank, slowed_ns(trace))
        more = _work_share(trace, rank)
        worth = more * spread + (1 - more) * max(gain, gone)
        if worth:
            low, gain = min(low, spread * (1 - error)), worth
            high = max(high, worth * (1 + error), gone * (1 + error))
    elif late_by == "host_ns" and trace.unprofiled_step_ns and step < _ANOTHER_RUN * profiled:
        low, gain = 0.0, 1 - _without_ns(trace, rank, held_ratio, profiled) / step
        high = gain * (1 + error)
    elif late_by == "host_ns" and estimated:
        room, own = room_beside(trace, rank, estimated), _own_host_ns(trace, rank) / max(profiled, 1.0)
        low, gain, high = 0.0, min(gain, max(room[Case.EXPECTED.value], own)), min(high, max(*room, own))
    low, gain, high = (min(max(ratio, 0.0), 1.0) * step for ratio in (low, gain, high))
    return RankWorth(low, gain, high, step)


def _without_ns(trace: Trace, rank: int, held_ratio: float, profiled_ns: float) -> float:
    """The recorded step without what a rank holds it up for, no shorter than the busiest other host keeps up with.

    The ratio is of the time between anchors, which may hold steps that are not steady: as many of them as what GPUs
    compute in it is of what they compute in a steady one. Of 130 ns, 70 of them held, in which 100 ns are computed, 50
    a step: 30 a step.
    """
    waits, late = collective_waits(trace), lateness(trace)
    anchors = waits.calls.filter(pl.col("instance").is_in(late.anchors))
    spans = anchors.group_by("rank", "device").agg(pl.col("end_ns").min().alias("from_ns"), pl.col("end_ns").max())
    steady, others = waits.job.steps.group_by("rank", "device"), waits.job.steps.filter(pl.col("rank") != rank)
    usual = steady.agg(pl.col("compute_ns").mean()).filter(pl.col("compute_ns") > 0)
    known = spans.join(usual, on=["rank", "device"]).sort("rank", "device")
    lines = {key: line.compute for key, line in device_timeline(trace).by_device.items()}
    counts = covered_by_device(known, lines, "from_ns") / known["compute_ns"].to_numpy()
    step_ns = late.span_ns / median(counts) if counts.any() else profiled_ns
    hosts = others.group_by("rank").agg((pl.col("host_busy_ns") - pl.col("recorded_ns")).mean().alias("ns"))
    return max((1 - held_ratio) * step_ns, float(hosts["ns"].fill_null(0.0).to_numpy().max(initial=0.0)))


def may_be_recording(trace: Trace, rank: int, gain_ratio: float, late_by: str) -> bool:
    """Whether a rank is late by its host by no more than recording makes the step longer, and takes no longer than it
    could make one host of several. The gain is held against hosts without what recording takes at least: so is it."""
    job = collective_waits(trace).job
    profiled, estimated = step_ns(job), estimated_step_ns(trace)
    if late_by != "host_ns" or not estimated or _own_host_ns(trace, rank):
        return False
    recorded_ns = float(job.steps.filter(pl.col("rank") == rank)["recorded_ns"].to_numpy().max(initial=0))
    left_ns = (trace.unprofiled_step_ns or estimated[1]) - recorded_ns
    return gain_ratio <= 1 - left_ns / max(profiled, 1.0)


def _work_share(trace: Trace, rank: int) -> float:
    """Of what a rank computes in a step beyond its peers, the share that somebody has to do: 1 where it has more of a
    batch, 0 where it runs what they run and more slowly, or nothing but one kernel besides.

    Peers take 100 ns; the rank runs the same in 110 ns, and a pass of 30 ns of several kernels besides: 30 of 40. One
    kernel over and over is a load beside the job, and no pass over data.
    """
    both = beside_peers(trace, rank)
    ratio = pl.col("runs_peers") / pl.col("runs")
    both = both.with_columns(
        more_ns=(1 - ratio).clip(0) * pl.col("length_ns"), less_ns=(1 - 1 / ratio).clip(0) * pl.col("length_ns_peers"),
    )  # fmt: skip
    more, less, taken, usual = both.select(pl.sum("more_ns", "less_ns", "length_ns", "length_ns_peers")).row(0)
    if not usual or less > (1 - assumed.SAME_WORK.value) * usual:
        return 1.0
    kinds = both.group_by("name").agg((pl.col("runs") - pl.col("runs_peers")).clip(0).sum())["runs"].to_numpy()
    if kinds.max() >= assumed.SAME_WORK.value * kinds.sum():
        return 0.0
    return float(np.clip((more - less) / max(taken - usual, 1.0), 0.0, 1.0))


def _own_host_ns(trace: Trace, rank: int) -> float:
    """The host's time per step beyond what a profiler could make of the busiest other's, with as much taken off all of
    them for recording as could be."""
    hosts = {one: cases[Case.HOPEFUL.value].host_ns for one, cases in deflated_pricers(trace).items()}
    own = hosts.pop(rank, 0.0)
    return max(own - assumed.HOST_SLOWED.value * max(hosts.values(), default=0.0), 0.0)
