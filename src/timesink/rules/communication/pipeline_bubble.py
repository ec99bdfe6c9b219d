"""The stages of a pipeline stand still for much of the step.

## What it detects
Ranks that mostly send to and receive from each other, and whose GPUs compute for less than a share of the step.

## Why it matters
With one micro-batch a pipeline of p stages uses one GPU at a time: p GPUs do the work of one. More micro-batches fill
the gap; of equal stages the share that stays empty is (p - 1) / (v m + p - 1), with v chunks of the model on each rank.

## How it is measured
A stage's time is the median computation of its rank in a steady step, the period the median step (without a profiler
where that was measured). Bubble: the part of the period in which stages did not compute, averaged over them. It is
split into what m micro-batches leave of even stages, what uneven stages add, and the rest: transfers, launches and
waiting. The schedule is known by ranges of the program (PP:0F3, pp:stage0:A) and by the order of messages: all sent
before the first comes back (GPipe), or one a stage (1F1B). OverlapScore = (sum of stages - period) / (sum of stages -
longest stage): 0 one after another, 1 as fast as the longest stage. No clocks of different ranks are compared.

One item at a time is priced by a replay with two of them in the pipeline, in which stages are slowed by receives that
wait beside them: as much as kernels of the same shape were on any rank, else by the multiprocessors that the receives
hold. Twice as many micro-batches are priced with what a micro-batch costs today besides its computation: nothing of it
again, half, all.

## What to do
Cut the batch into more micro-batches (four per stage leave a bubble of about a fifth), use 1F1B or interleaved
schedules, and even out the stages: the longest one sets the pace. Where waiting receives slow the stages, give them
fewer channels (NCCL_MAX_P2P_NCHANNELS).

## When it misleads
Smaller micro-batches run less efficient kernels: the price assumes that they do not. Interleaved schedules without
ranges look like more micro-batches. On two H200s the replay was 0.1 to 1.2 % off the period at depth 2 of four
pipelines and 0.6 to 5.5 % at depth 4, and 41.1 ms of one batch at a time were foretold to become 30.2 ms with 8
micro-batches: they became 29.6.
"""

from __future__ import annotations

from typing import Final

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict, Where
from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.depths import depths, waiting_slowdown
from timesink.measures.communication.pipelines import Pipeline, Schedule, ideal_bubble, pipeline, schedule, trains
from timesink.measures.ranks.job import JOB_READS
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import share_text, time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found where the bubble is larger than its limit."""
    line = pipeline(trace)
    if line is None:
        return NotApplicable("no two ranks mostly send to and receive from each other in steady steps")
    evidence = Evidence(
        "share of the step in which stages do not compute",
        Quantity(line.overlap.bubble_ratio, "ratio"),
        "one less the computation of each stage over the step, averaged over the stages",
        limit=Quantity(limits["bubble_ratio"], "ratio"),
        table="collectives",
    )
    return found_or_clear([_finding(trace, line, evidence) if evidence.is_over else evidence])


def _finding(trace: Trace, line: Pipeline, evidence: Evidence) -> Finding:
    overlap, plan = line.overlap, schedule(trace)
    assert plan is not None  # there is a pipeline
    found = better(trace, line, plan)
    score = overlap.score if overlap.score is not None else 0.0
    lines = device_timeline(trace).by_device
    standing = {
        key: Intervals.one(part.span_start_ns, part.span_end_ns) - part.compute
        for key, part in lines.items()
        if key[0] in line.ranks
    }
    how = "" if line.labelled else ", by kernel names"
    return Finding(
        message=f"the {len(line.ranks)} stages of the pipeline{how} stand still {share_text(overlap.bubble_ratio)} of "
        f"a {time_text(overlap.period_ns)} median step; {made_of(plan, score)}; the longest stage takes "
        f"{time_text(overlap.longest.time_ns)}{found.said}",
        bottleneck=Bottleneck.PIPELINE_BUBBLE,
        where=Where(rank=max(zip(line.ranks, overlap.stages, strict=True), key=lambda at: at[1].time_ns)[0]),
        evidence=(
            evidence,
            Evidence("OverlapScore", Quantity(score, "ratio"), "hidden stage time over what could be hidden"),
            Evidence(
                "ideal bubble",
                Quantity(plan.ideal_ratio, "ratio"),
                f"(p - 1) / (v m + p - 1): p = {len(line.ranks)}, m = {plan.micro_batches}, v = {plan.chunks}",
            ),
        ),
        advice=found.advice,
        verify="Capture again: the bubble shrinks towards (p - 1) / (v m + p - 1).",
        claim=Claim(standing),
        stated=Quantity.ms(found.gain_ns[1], *found.gain_ns[::2]),
    )


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


RULE = Rule(
    "COM105",
    check,
    needs=(DEVICE_OPS,),
    reads=JOB_READS,
    limits={
        "bubble_ratio": Limit.ratio(
            0.25, "four micro-batches per stage leave less than a fifth", "Megatron-LM, arXiv 2104.04473"
        )
    },
    references=("https://arxiv.org/abs/2104.04473",),
    capture="timesink capture torch -- torchrun train.py",
)
