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

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict, Where
from timesink.measures.communication.pipelines import Pipeline, pipeline
from timesink.measures.communication.schedules import schedule
from timesink.measures.ranks.job import JOB_READS
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.communication._pipelines import better, made_of
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
