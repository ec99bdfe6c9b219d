"""The recorded run spends much of its time compiling.

## What it detects
A recorded run, warm-up included, in which the host compiles for a large share of the time.

## Why it matters
Compilation pays off over many steps. In a short job (a test, an evaluation, a sweep) it can cost more than it wins, and
a cache that is kept between runs costs nothing.

## How it is measured
The union of the ranges that PyTorch writes while it compiles ("dynamo_timed"), over the recorded span of the rank.

## What to do
Keep Inductor's cache (`TORCHINDUCTOR_CACHE_DIR`) and use `torch.compiler.save_cache_artifacts`; compile the repeated
block instead of the whole model; leave a short program eager.

## When it misleads
A capture of the first steps of a long run shows mostly compilation; the run as a whole does not.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.measures.compile.summary import CompileTime, compile_time
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import share_text, time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per rank that compiles for more than the limit."""
    judged = (_judge(rank, limits["compile_ratio"]) for rank in compile_time(trace) if rank.compile_ns)
    return applicable(judged, "no compilation is recorded")


def _judge(time: CompileTime, limit: float) -> Finding | Evidence:
    evidence = Evidence(
        f"time in which rank {time.rank} compiles",
        Quantity(time.share, "ratio"),
        "union of the compiler's ranges, of the recorded span",
        limit=Quantity(limit, "ratio"),
        table="ranges",
    )
    if not evidence.is_over:
        return evidence
    return Finding(
        message=f"rank {time.rank} compiles for {time_text(time.compile_ns)} of the recorded {time_text(time.span_ns)} "
        f"({share_text(time.share)})",
        bottleneck=Bottleneck.RECOMPILATION,
        where=Where(rank=time.rank),
        evidence=(evidence,),
        advice="Keep the compiler's cache between runs, or compile the repeated block instead of the whole model.",
        verify="Run again with the cache in place: timesink show compile shows cache hits, and this share falls.",
        stated=Quantity(0.0, "ms", low=0.0, high=None),
    )


RULE = Rule(
    "CMP105",
    check,
    needs=(DEVICE_OPS,),
    reads=(RANGES, HOST_OPS, API_CALLS),
    limits={
        "compile_ratio": Limit.ratio(
            0.33,
            "a run that compiles for a third of its time is short for what it compiles",
            "convention: a fixed cost above a third of a run is worth avoiding before anything else",
        )
    },
    references=("https://docs.pytorch.org/tutorials/recipes/torch_compile_caching_tutorial.html",),
)
