"""What a job gains where its late rank comes as its peers do: per step, as low, expected and high."""

from __future__ import annotations

import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.op_class import class_of_ops
from timesink.measures.communication.communication import contention
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.job import step_ns
from timesink.measures.ranks.lateness import evened_out, lateness
from timesink.measures.steps.per_step import period_ns
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.measures.timeline.replay import deflated_pricers, estimated_step_ns, rank_paces_ns
from timesink.model.record import dataclass
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.change import Case


@dataclass(frozen=True, slots=True)
class RankWorth:
    """A gain per step, `low_ns <= gain_ns <= high_ns <= step_ns`; the step is the job's without a profiler, as told or
    by estimate."""

    low_ns: float
    gain_ns: float
    high_ns: float
    step_ns: float


def worth_of_rank(trace: Trace, rank: int, gain_ratio: float, late_by: str) -> RankWorth:
    """The gain without the lateness of a rank that replays put at `gain_ratio` of the time.

    Late by more work (`device_ns`): where the rank runs all that its peers run, and more or more slowly, its excess
    goes; where its share is larger, balancing leaves some of the excess on the peers, half of it on one peer. Late by
    its host (`host_ns`): a profiler slows hosts, and some more than others, so it wins no more than what the job's step
    exceeds the other ranks' own, both without the profiler by estimate, and perhaps nothing; but of a host that takes
    several times as long as the others' the time beyond that is no profiler's. Else the ratio itself.
    """
    waits, estimated = collective_waits(trace), estimated_step_ns(trace)
    profiled = step_ns(waits.job)
    step = trace.unprofiled_step_ns or (min(estimated[1], profiled) if estimated else profiled)
    error = assumed.GAIN_ERROR.value
    low, gain, high = gain_ratio * (1 - error), gain_ratio, gain_ratio * (1 + error)
    if late_by == "device_ns":
        spread, gone = (part.gain_ratio for part in evened_out(waits, lateness(trace), rank, _slowed_ns(trace)))
        worth = max(gain, gone) if _runs_what_peers_run(trace, rank) else spread
        if worth:
            low, gain = min(low, spread * (1 - error)), worth
            high = max(high, worth * (1 + error), gone * (1 + error))
    elif late_by == "host_ns" and estimated:
        room, own = _room(trace, rank, estimated), _own_host_ns(trace, rank) / max(profiled, 1.0)
        low, gain, high = 0.0, min(gain, max(room[Case.EXPECTED.value], own)), min(high, max(*room, own))
    low, gain, high = (min(max(ratio, 0.0), 1.0) * step for ratio in (low, gain, high))
    return RankWorth(min(low, gain), gain, max(high, gain), step)


def _runs_what_peers_run(trace: Trace, rank: int) -> bool:
    """Whether the rank runs most kernels of its peers, in the same shapes and as often."""
    ops, shape = trace.get(DEVICE_OPS), ["name", "grid_x", "grid_y", "grid_z"]
    kernels = ops.filter((class_of_ops(trace) == "compute") & (ops["kind"] == "kernel"))
    length = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("length_ns")
    counts = kernels.group_by("rank", *shape).agg(pl.len().alias("runs"), length)
    own = counts.filter(pl.col("rank") == rank).select(*shape, pl.col("runs").alias("own_runs"))
    theirs = counts.filter(pl.col("rank") != rank).join(own, on=shape, how="left", nulls_equal=True)
    as_often = (pl.col("own_runs").fill_null(0) / pl.col("runs")).clip(upper_bound=1.0)
    alike = theirs.select((as_often * pl.col("length_ns")).sum() / pl.col("length_ns").sum()).item()
    return alike is not None and alike >= assumed.SAME_WORK.value


def _own_host_ns(trace: Trace, rank: int) -> float:
    """The host's time per step beyond what a profiler could make of the busiest other's, with as much taken off all of
    them for recording as could be."""
    hosts = {one: cases[Case.HOPEFUL.value].host_ns for one, cases in deflated_pricers(trace).items()}
    others = max((ns for one, ns in hosts.items() if one != rank), default=0.0)
    return max(hosts.get(rank, 0.0) - assumed.HOST_SLOWED.value * others, 0.0)


def _room(trace: Trace, rank: int, estimated: tuple[float, float, float]) -> list[float]:
    """Per `Case`, the share of the job's step by which it exceeds what the slowest other rank takes by itself."""
    others = [cases for other, cases in rank_paces_ns(trace).items() if other != rank]
    alone = [max((cases[case.value][1] for cases in others), default=0.0) for case in Case]
    return [max(1 - own / job, 0.0) if job else 0.0 for own, job in zip(alone, reversed(estimated), strict=True)]


def _slowed_ns(trace: Trace) -> dict[int, float]:
    """What each rank's kernels lose per step beside communication, on the device where that is most."""
    slowed: dict[int, float] = {}
    for row in contention(trace).iter_rows(named=True):
        device = (row["rank"], row["device"])
        share = max(row["excess_ns"], 0) / max(device_timeline(trace)[device].span_ns, 1)
        slowed[device[0]] = max(slowed.get(device[0], 0.0), share * period_ns(trace, device))
    return slowed
