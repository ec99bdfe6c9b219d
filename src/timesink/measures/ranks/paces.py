"""How long each rank's host takes for a step, and how long the job takes without the profiler.

Ranks wait for each other, so that one which waits for a late one has that one's step; and recording slows some hosts
more than others, so that what is waited for may be the profiler's.
"""

from collections.abc import Mapping, Sequence

from timesink.measures.communication import contention
from timesink.measures.communication.pipelines import between_stages
from timesink.measures.communication.waits import waiting_in_collectives
from timesink.measures.steps.per_step import largest_per_step_ns, period_ns
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.replay import deflated_pricers, pricers, steps_by_case_ns
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered
from timesink.whatif import Case


def room_beside(trace: Trace, rank: int, estimated: tuple[float, float, float]) -> list[float]:
    """Per `Case`, the share of the job's step by which it exceeds what the slowest other rank takes by itself."""
    others = [cases for other, cases in rank_paces_ns(trace).items() if other != rank]
    alone = [max((cases[case.value][1] for cases in others), default=0.0) for case in Case]
    return [max(1 - own / job, 0.0) if job else 0.0 for own, job in zip(alone, reversed(estimated), strict=True)]


def slowed_ns(trace: Trace) -> dict[int, float]:
    """What each rank's kernels lose per step beside communication, on the device where that is most."""
    slowed: dict[int, float] = {}
    for row in contention(trace).iter_rows(named=True):
        device = (row["rank"], row["device"])
        share = (row["excess_ns"] + row["second_turns_ns"]) / max(device_timeline(trace)[device].span_ns, 1)
        slowed[device[0]] = max(slowed.get(device[0], 0.0), share * period_ns(trace, device))
    return slowed


@remembered
def rank_paces_ns(trace: Trace) -> Mapping[int, tuple[tuple[float, float], ...]]:
    """Per rank and `Case`, in ns: its step without the profiler by estimate, and that step less the time in which its
    device stands waiting for other ranks: what the rank would take by itself.

    A job has one step: ranks of a pipeline are taken to have that of the longest, however many of theirs are whole.
    """
    return _paces_ns(trace, {rank: steps_by_case_ns(cases) for rank, cases in deflated_pricers(trace).items()})


def _paces_ns(trace: Trace, steps_of: Mapping[int, Sequence[float]]) -> Mapping[int, tuple[tuple[float, float], ...]]:
    none, staged = Intervals.none(), between_stages(trace)
    waits = [waiting_in_collectives(trace), staged]
    stood = {
        key: Intervals.union_all(part.get(key, none) for part in waits) & line.exposed_communication
        for key, line in device_timeline(trace).by_device.items()
    }
    longest_ns = max((pricer.step_ns for pricer in pricers(trace).values()), default=0.0)
    paces = {}
    for rank, steps_ns in steps_of.items():
        waited_ns = largest_per_step_ns(trace, {key: part for key, part in stood.items() if key[0] == rank})
        ratio = longest_ns / (pricers(trace)[rank].step_ns or longest_ns) if staged else 1.0
        paces[rank] = tuple((ratio * step_ns, max(ratio * step_ns - waited_ns, 0.0)) for step_ns in steps_ns)
    return paces


def _jobs_ns(paces: Mapping[int, tuple[tuple[float, float], ...]]) -> tuple[float, ...]:
    """Per case the step of a job whose ranks have these paces: that of the rank with the shortest, which waits least,
    or what the slowest takes by itself, whichever is longer."""
    return tuple(
        max(min(step_ns for step_ns, _ in of_ranks), *(alone_ns for _, alone_ns in of_ranks))
        for of_ranks in zip(*paces.values(), strict=True)
    )


@remembered
def estimated_step_ns(trace: Trace) -> tuple[float, float, float] | None:
    """The mean step of the job without a profiler as estimated from the trace: low, expected and high, in ns. None
    where no rank has steady steps to replay."""
    if not (paces := rank_paces_ns(trace)):
        return None
    high_ns, expected_ns, low_ns = _jobs_ns(paces)
    return low_ns, expected_ns, high_ns


@remembered
def kept_ratio(trace: Trace) -> tuple[float, float, float] | None:
    """What of a recorded step is left without the profiler, low, expected and high: the replay of the steps with
    recording taken off over the replay of the same steps as they are. At most 1; None where nothing is replayed."""
    recorded = _paces_ns(trace, {rank: [pricer.step_ns] for rank, pricer in pricers(trace).items()})
    if not recorded or not (recorded_ns := _jobs_ns(recorded)[0]):
        return None
    low, expected, high = (min(step_ns / recorded_ns, 1.0) for step_ns in estimated_step_ns(trace) or ())
    return low, expected, high
