"""A prompt that is read in one piece makes other requests wait for their next token.

## What it detects
Steps of an annotated engine that read a prompt while other requests are decoding, and take several times as long as a
step that only decodes.

## Why it matters
Every request of the batch waits that long for one token: the mean time per output token hardly shows it, its ninety-
ninth percentile, and whoever reads along, do.

## How it is measured
The longest steady step that reads a prompt, over the median step that only decodes. The foretold wait is that of a step
that reads one chunk beside the same decoding: a power of two of tokens that takes at most half of a usual step.

## What to do
Read prompts in chunks beside decoding (`enable_chunked_prefill` and `max_num_batched_tokens` in vLLM,
`--chunked-prefill-size` in SGLang), or on other GPUs than those that decode.

## When it misleads
Chunks make the prompt's own first token later and the mean no shorter: each reads the weights and the cache again.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import number
from timesink.measures.steps.engine import BlockedTokens, blocked_tokens
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where such a step is longer than the usual one by more than the limit."""
    judged = (_judged(one, limits["late_ratio"]) for one in blocked_tokens(trace))
    return applicable(judged, "no annotated engine steps that read prompts beside steps that only decode")


def _judged(one: BlockedTokens, limit: float) -> Finding | Evidence:
    ratio = one.step_ns / one.usual_ns
    evidence = Evidence(
        f"the longest step that reads a prompt, over a step that only decodes, on device {one.device[1]}",
        Quantity(ratio, "ratio"),
        "longest steady step with a prompt over the median one without",
        limit=Quantity(limit, "ratio"),
    )
    if not evidence.is_over:
        return evidence
    return Finding(
        message=f"a prompt of {one.prompt_tokens:,} tokens read in one step makes {number(one.waiting, 'request')} "
        f"wait {time_text(one.step_ns)} for the next token, {ratio:.1f} times the usual {time_text(one.usual_ns)}; "
        f"in chunks of {one.chunk:,} tokens the wait would be about {time_text(one.chunked_ns)}, and the mean time per "
        "output token no shorter",
        bottleneck=Bottleneck.PREFILL_BLOCKS,
        where=Where(rank=one.device[0], device=one.device[1]),
        evidence=(evidence, Evidence("of that wait, what chunks take away", Quantity(1 - one.chunked_ns / one.step_ns,
                                     "ratio"), "a chunk's share of the prompt's time, and a quarter more")),
        advice="Read prompts in chunks beside decoding (chunked prefill), or on other GPUs than those that decode.",
        verify="Capture again: the ninety-ninth percentile of the waits for a token goes down.",
        stated=Quantity(0.0, "ms", low=0.0, high=0.0),
    )  # fmt: skip


RULE = Rule(
    "SRV102",
    check,
    needs=(DEVICE_OPS, RANGES),
    reads=(API_CALLS, HOST_OPS),
    limits={"late_ratio": Limit.ratio(3.0, "chunks of a healthy server take up to 2.3 times a step", HEALTHY)},
    references=("https://arxiv.org/abs/2308.16369",),
)
