"""The stages of a pipeline stand still for much of the step.

## What it detects
Ranks that mostly send to and receive from each other, and whose GPUs compute for less than a share of the step.

## Why it matters
With one micro-batch a pipeline of p stages uses one GPU at a time: p GPUs do the work of one. More micro-batches fill
the gap; of equal stages the share that stays empty is (p - 1) / (m + p - 1).

## How it is measured
A stage's time is the median computation of its rank in a steady step, the period the median step. Bubble: the part of
the period in which stages did not compute, averaged over them. OverlapScore = (sum of stages - period) / (sum of
stages - longest stage): 0 one after another, 1 as fast as the longest stage. No clocks of different ranks are
compared.

## What to do
Cut the batch into more micro-batches (four per stage leave a bubble of about a fifth), use 1F1B or interleaved
schedules, and even out the stages: the longest one sets the pace.

## When it misleads
Smaller micro-batches run less efficient kernels: the price assumes that they do not. Computation slowed by transfers
beside it makes the score too high. Receives that wait beside computation take multiprocessors from it: of two stages on
two H200s overlap won 2.4 ms where 3.4 ms were to be had.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limits, Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Evidence,
    Finding,
    Found,
    Limit,
    NotApplicable,
    Quantity,
    Verdict,
    Where,
)
from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.pipelines import Pipeline, pipeline
from timesink.measures.ranks.job import JOB_READS
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found where the bubble is larger than its limit."""
    line = pipeline(trace)
    if line is None:
        return NotApplicable("no two ranks mostly send to and receive from each other in steady steps")
    overlap = line.overlap
    evidence = Evidence(
        "share of the step in which stages do not compute",
        Quantity(overlap.bubble_ratio, "ratio"),
        "one less the computation of each stage over the step, averaged over the stages",
        limit=Quantity(limits["bubble_ratio"], "ratio"),
        table="collectives",
    )
    if overlap.bubble_ratio <= limits["bubble_ratio"]:
        return Clear((evidence,))
    return Found((_finding(trace, line, evidence),))


def _finding(trace: Trace, line: Pipeline, evidence: Evidence) -> Finding:
    overlap, count = line.overlap, len(line.ranks)
    filled_ns = overlap.longest.time_ns * (1 + (count - 1) / (assumed.MICRO_BATCHES.whole * count))
    gain_ms = max(0.0, overlap.period_ns - filled_ns) / NS_PER_MS
    score = overlap.score if overlap.score is not None else 0.0
    lines = device_timeline(trace).by_device
    standing = {
        key: Intervals.one(part.span_start_ns, part.span_end_ns) - part.compute
        for key, part in lines.items()
        if key[0] in line.ranks
    }
    how = "" if line.labelled else ", by kernel names"
    return Finding(
        message=f"the {count} stages of the pipeline{how} stand still {share_text(overlap.bubble_ratio)} of a "
        f"{time_text(overlap.period_ns)} median step; "
        f"OverlapScore {score:.2f}, the longest stage takes {time_text(overlap.longest.time_ns)}",
        bottleneck=Bottleneck.PIPELINE_BUBBLE,
        where=Where(rank=max(zip(line.ranks, overlap.stages, strict=True), key=lambda at: at[1].time_ns)[0]),
        evidence=(
            evidence,
            Evidence("OverlapScore", Quantity(score, "ratio"), "hidden stage time over what could be hidden"),
        ),
        advice="Let the next item enter before the last one has left: cut the batch into "
        f"{assumed.MICRO_BATCHES.whole * count} or more micro-batches; even out the stages.",
        verify="Capture again: the bubble shrinks towards (p - 1) / (m + p - 1).",
        claim=Claim(standing),
        stated=Quantity(gain_ms, "ms", low=0.0, high=overlap.headroom_ns / NS_PER_MS),
    )


RULE = Rule(
    "COM105",
    check,
    needs=(DEVICE_OPS,),
    reads=JOB_READS,
    limits={
        "bubble_ratio": Limit(
            0.25, "ratio", "four micro-batches per stage leave less than a fifth", "Megatron-LM, arXiv 2104.04473"
        )
    },
    references=("https://arxiv.org/abs/2104.04473",),
    capture="timesink capture torch -- torchrun train.py",
)
