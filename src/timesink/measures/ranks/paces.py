"""What each rank of a job would take by itself without a profiler, and the step of the job from that.

Ranks wait for each other, in collectives and between the stages of a pipeline: a rank that waits for a late one has
that one's step. Recording slows hosts, and of some ranks more, so what is waited for may be the profiler's.
"""

from __future__ import annotations

from collections.abc import Mapping

from timesink.knowledge.assumptions import replay
from timesink.measures.communication.pipelines import between_stages
from timesink.measures.communication.waits import waiting_in_collectives
from timesink.measures.steps.per_step import largest_per_step_ns
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.replay import deflated_pricers, pricers, steps_by_case_ns
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace, remembered


@remembered
def rank_paces_ns(trace: Trace) -> Mapping[int, tuple[tuple[float, float], ...]]:
    """Per rank and `Case`, in ns: its step without the profiler by estimate, and that step less the time in which its
    device stands waiting for other ranks: what the rank would take by itself.

    A job has one step: ranks of a pipeline are taken to have that of the longest, however many of theirs are whole.
    """
    paces, none, staged = {}, Intervals.none(), between_stages(trace)
    waits = [waiting_in_collectives(trace), staged]
    stood = {
        key: Intervals.union_all(part.get(key, none) for part in waits) & line.exposed_communication
        for key, line in device_timeline(trace).by_device.items()
    }
    longest_ns = max((pricer.step_ns for pricer in pricers(trace).values()), default=0.0)
    for rank, cases in deflated_pricers(trace).items():
        waited_ns = largest_per_step_ns(trace, {key: part for key, part in stood.items() if key[0] == rank})
        ratio = longest_ns / (pricers(trace)[rank].step_ns or longest_ns) if staged else 1.0
        steps_ns = [ratio * step_ns for step_ns in steps_by_case_ns(cases)]
        paces[rank] = tuple((step_ns, max(step_ns - waited_ns, 0.0)) for step_ns in steps_ns)
    return paces


@remembered
def estimated_step_ns(trace: Trace) -> tuple[float, float, float] | None:
    """The mean step of the job without a profiler as estimated from the trace: low, expected and high, in ns.

    It is that of the rank with the shortest, which waits least, or what the slowest takes by itself, whichever is
    longer. None where no rank has steady steps to replay.
    """
    paces = rank_paces_ns(trace).values()
    if not paces:
        return None
    high_ns, expected_ns, low_ns = (
        max(min(step_ns for step_ns, _ in of_ranks), *(alone_ns for _, alone_ns in of_ranks))
        for of_ranks in zip(*paces, strict=True)
    )
    return low_ns, expected_ns, high_ns


@remembered
def likely_step_ns(trace: Trace) -> tuple[float, float, float] | None:
    """The estimate with what two runs of a program differ in, clocks and processes: low, expected and high, in ns."""
    estimated, other = estimated_step_ns(trace), replay.ANOTHER_RUN
    return estimated and (estimated[0] * other.low, estimated[1] * other.value, estimated[2] * other.high)
