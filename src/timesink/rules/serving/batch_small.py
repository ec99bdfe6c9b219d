"""An engine decodes for as many requests as it may, and more would hardly take longer.

## What it detects
An annotated engine whose steps hold one largest number of requests nearly all the time while others join, at which most
of the step does not depend on how many there are.

## Why it matters
Decoding reads all weights for every step, whether for 8 requests or for 16. Twice the requests in a step of nearly the
same length are nearly twice the tokens per second.

## How it is measured
Products by weights, kernels of a few microseconds, kernels with less than a wave of blocks and gaps stay as they are;
all other time doubles with the requests, prompts included. The gain is that of the time of a token over all requests.

## What to do
Let more requests run (`max_num_seqs` in vLLM, `--max-running-requests` in SGLang), as far as the cache has room.

## When it misleads
Where nobody else waits there is nothing to batch: the trace shows no queue. Each request's own time per output token
gets longer, not shorter.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.measures.steps.engine import FullBatch, full_batches
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import share_text, time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device whose steps are full, where twice the requests win more than the limit of a token's time."""
    judged = (_judged(one, trace.unprofiled_step_ns or one.step_ns, limits) for one in full_batches(trace))
    return applicable(judged, "no annotated engine steps of several requests that others join")


def _judged(one: FullBatch, step_ns: float, limits: Limits) -> Finding | Evidence:
    saved_ns = max(one.saved_ns - max(one.step_ns - step_ns, 0.0) / 2, 0.0)  # a profiler's time is none to share
    share = saved_ns / step_ns if step_ns else 0.0
    evidence = Evidence(
        f"of the time of a token, what twice the requests save on device {one.device[1]}",
        Quantity(share, "ratio"),
        "half of what does not depend on the number of requests, over the mean step",
        limit=Quantity(limits["saved_ratio"], "ratio"),
    )
    if not evidence.is_over or one.share < limits["full_ratio"]:
        return evidence
    return Finding(
        message=f"{share_text(one.share)} of the engine steps hold {one.requests} requests and none holds more, while "
        f"{one.joined} joined: if others wait, twice as many in a step would take each token {share_text(share)} less "
        f"time, for {time_text(one.fixed_ns)} of the mean step of {time_text(one.step_ns)} do not depend on how many "
        "there are",
        bottleneck=Bottleneck.BATCH_SMALL,
        where=Where(rank=one.device[0], device=one.device[1]),
        evidence=(evidence,),
        advice="Let more requests run at once, as far as the cache has room; see how many wait.",
        verify="Capture again: tokens per second go up; a step takes longer, so that each request waits longer.",
        stated=Quantity.ms(saved_ns, 0.0, saved_ns),
    )


RULE = Rule(
    "SRV103",
    check,
    needs=(DEVICE_OPS, RANGES),
    reads=(API_CALLS, DEVICES, HOST_OPS),
    limits={
        "saved_ratio": Limit.ratio(0.25, "half of a step of 32 requests and more depends on them", HEALTHY),
        "full_ratio": Limit.ratio(0.8, "one leaves and the next joins: some steps hold one less", HEALTHY),
    },
    references=("https://www.usenix.org/conference/osdi22/presentation/yu",),
)
