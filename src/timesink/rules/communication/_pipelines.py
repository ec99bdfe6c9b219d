"""What a pipeline's bubble is made of, and what would fill it: the words and the price of COM105."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.depths import depths, waiting_slowdown
from timesink.measures.communication.pipelines import Pipeline
from timesink.measures.communication.schedules import Schedule, ideal_bubble, trains
from timesink.model.record import dataclass
from timesink.model.trace import Trace
from timesink.units import share_text, time_text

_SLOWS: Final = 1.02  # times as long: less is the noise of a step
_ENDLESS: Final = 1 << 20  # items that follow each other without a pause


def made_of(plan: Schedule, score: float) -> str:
    """What fills the bubble, as shares of the step."""
    if plan.is_serial:
        return f"one item at a time: OverlapScore {score:.2f}"
    period = max(plan.period_ns, 1.0)
    named = f"{plan.name}, " if plan.name else ""
    chunks = f" in {plan.chunks} chunks a rank" if plan.chunks > 1 else ""
    return (
        f"{named}{plan.micro_batches} micro-batches{chunks}: {share_text(plan.filling_ns / period)} fills and drains "
        f"(ideal {share_text(plan.ideal_ratio)}), {share_text(plan.uneven_ns / period)} is uneven stages, "
        f"{share_text(plan.excess_ns / period)} transfers, launches and waiting; OverlapScore {score:.2f}"
    )


@dataclass(frozen=True, slots=True)
class Filled:
    """What would shorten the step: `gain_ns` at least, as expected, at most."""

    gain_ns: tuple[float, float, float]
    advice: str
    said: str = ""


def better(trace: Trace, line: Pipeline, plan: Schedule) -> Filled:
    """More items at a time, more micro-batches or even stages: what wins most."""
    count, many = len(line.ranks), assumed.MICRO_BATCHES.whole * len(line.ranks)
    if plan.is_serial:
        return _together(trace, line, plan, many)
    doubled = 2 * plan.micro_batches
    more = plan.gain_ns(doubled, 1.0)
    even = tuple(share * plan.uneven_ns for share in (assumed.EVENED.low, assumed.EVENED.value, assumed.EVENED.high))
    cut = (
        f"{doubled} micro-batches leave an ideal bubble of {share_text(ideal_bubble(count, doubled, plan.chunks))}, "
        f"{plan.chunks + 1} chunks a rank (interleaved) of "
        f"{share_text(ideal_bubble(count, plan.micro_batches, plan.chunks + 1))}"
    )
    evened = (
        f"Even out the stages: the longest takes {time_text(max(plan.stage_ns))}, the mean {time_text(plan.mean_ns)}"
    )
    best, advice = (
        (more, f"Cut the batch into more micro-batches: {cut}.") if more[1] >= even[1] else (even, f"{evened}; {cut}.")
    )
    least, expected, most = (max(0.0, ns) for ns in best)
    return Filled((least, expected, most), advice)


def _together(trace: Trace, line: Pipeline, plan: Schedule, many: int) -> Filled:
    """Items that go one at a time, two at a time; where a step has several or ends in an update, all of its."""
    slowdown, apart = waiting_slowdown(trace, line), depths(trace)
    if apart is None or trains(trace):
        count, drains = max(plan.items, many), trains(trace)
        least, most = (plan.gain_ns(count if drains else _ENDLESS, slower)[1] for slower in (slowdown, 1.0))
        gain = (least + most) / 2  # the longest stage seldom waits, but nothing says how seldom
        how = f"{count} or more micro-batches (1F1B, GPipe)" if drains else "two or more at a time"
        what = f"Let the next item enter before the last one has left: {how}"
        then = f"with {count} micro-batches" if drains else "overlapped"
        said = f"; {then} {time_text(plan.period_ns - gain)} are foretold"
    else:
        period_ns = apart.period_ns(2)
        gain, most = plan.period_ns - period_ns, plan.period_ns - max(stage.alone_ns for stage in apart.stages)
        least = gain * (1 - assumed.GAIN_ERROR.high) if apart.measured else 2 * gain - most
        what = "Let the next item enter before the last one has left: two or more at a time"
        said = f"; with two items at a time {time_text(period_ns)} are foretold"
    slow = "" if slowdown < _SLOWS else (
        f"; receives that wait beside a stage make it {share_text(slowdown - 1)} longer: give them fewer channels "
        "(NCCL_MAX_P2P_NCHANNELS)"
    )  # fmt: skip
    figures = (max(0.0, min(least, gain)), max(0.0, gain), max(0.0, most, gain))
    return Filled(figures, f"{what}; even out the stages{slow}.", said if gain > 0 else "")
