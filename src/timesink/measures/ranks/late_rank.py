"""What a job gains where its late rank comes as its peers do: per step, as low, expected and high."""

from __future__ import annotations

from dataclasses import dataclass

from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.communication import contention
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.job import step_ns
from timesink.measures.ranks.lateness import evened_out, lateness
from timesink.measures.steps.per_step import period_ns
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.measures.timeline.replay import estimated_step_ns, rank_paces_ns
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

    Late by more work (`device_ns`): balancing leaves half of the excess on a peer where there are two ranks. Late by
    its host (`host_ns`): a profiler slows hosts, and some more than others, so it wins no more than what the job's step
    exceeds the other ranks' own, both without the profiler by estimate, and perhaps nothing. Else the ratio itself.
    """
    waits, estimated = collective_waits(trace), estimated_step_ns(trace)
    step = trace.unprofiled_step_ns or (estimated[1] if estimated else step_ns(waits.job))
    error = assumed.GAIN_ERROR.value
    low, gain, high = gain_ratio * (1 - error), gain_ratio, gain_ratio * (1 + error)
    if late_by == "device_ns":
        spread, gone = (part.gain_ratio for part in evened_out(waits, lateness(trace), rank, _slowed_ns(trace)))
        if spread:
            low, gain = min(low, spread * (1 - error)), spread
            high = max(high, spread * (1 + error), gone * (1 + error))
    elif late_by == "host_ns" and estimated:
        room = _room(trace, rank, estimated)
        low, gain, high = 0.0, min(gain, room[Case.EXPECTED.value]), min(high, max(room))
    low, gain, high = (min(max(ratio, 0.0), 1.0) * step for ratio in (low, gain, high))
    return RankWorth(min(low, gain), gain, max(high, gain), step)


def _room(trace: Trace, rank: int, estimated: tuple[float, float, float]) -> list[float]:
    """Per `Case`, the share of the job's step by which it exceeds what the slowest other rank takes by itself."""
    others = [cases for other, cases in rank_paces_ns(trace).items() if other != rank]
    alone = [max((cases[case.value][1] for cases in others), default=0.0) for case in Case]
    return [max(1 - own / job, 0.0) if job else 0.0 for own, job in zip(alone, reversed(estimated), strict=True)]


def _slowed_ns(trace: Trace) -> dict[int, float]:
    """What each rank's kernels lose per step beside communication, on the device where that is most."""
    slowed: dict[int, float] = {}
    for row in contention(trace).frame.iter_rows(named=True):
        device = (row["rank"], row["device"])
        share = max(row["excess_ns"], 0) / max(device_timeline(trace)[device].span_ns, 1)
        slowed[device[0]] = max(slowed.get(device[0], 0.0), share * period_ns(trace, device))
    return slowed
