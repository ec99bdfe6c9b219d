"""The device of a serving engine waits between steps for the engine's host.

## What it detects
Idle time between the steps of an engine (annotated as vLLM, SGLang and TensorRT-LLM do, `execute_model`, or replays of
one graph that a small copy of tokens follows), and the one thing that makes the host late: memory given back and
allocated, copies through pageable memory, blocking reads, host code between CUDA calls (scheduling, sampling,
detokenising, a tokenizer's thread that holds Python's lock), or launches of a batch size that has no graph.

## Why it matters
An engine makes a token for each request in a step: the step is the time per output token. A host that is late once in a
step is late for every token of every request.

## How it is measured
Idle stretches that the host is to blame for, over the steady steps. The trace is replayed without each candidate: the
root is the one whose absence wins most, and of those that win nearly as much the most specific. Host code counts as a
whole, also where the device still works beside it. The claim is all of that idle time: a host that is ahead again is
not late for anything.

## What to do
As the root says: keep memory, pin buffers, read tokens a step later (asynchronous scheduling), sample on the device,
move scheduling and text to another process, capture graphs for the missing batch sizes.

## When it misleads
A capture with operators slows the host: compare with the time per output token without a profiler. Host code is not
told apart further without ranges or stacks.
"""

from __future__ import annotations

from typing import Final

from timesink.diagnosis.pricing import price_change
from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_period
from timesink.fixes import table as fixes
from timesink.knowledge.assumptions import idle as assumed
from timesink.measures.steps.engine import EngineLate, Root, engine_late
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.rules.serving._family import CAUSES, words_of, worth_of
from timesink.units import NS_PER_MS

_NEARLY: Final = 0.8  # of the largest gain: the more specific root is the one
_LOCKED: Final = 0.5  # where most of the host's time is known to be waits for a lock


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device whose waits for the host pass the limit, where some change of the host wins them back."""
    judged = (_judged(trace, engine, limits["late_ratio"]) for engine in engine_late(trace))
    return applicable(judged, "no steps of a serving engine with the calls that launch them")


def _judged(trace: Trace, engine: EngineLate, limit: float) -> Finding | Evidence:
    evidence = Evidence(
        f"idle time before engine steps of device {engine.device[1]}",
        Quantity(engine.share, "ratio"),
        "idle stretches that the host is to blame for, over the steady steps",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
    )
    found = _root(trace, engine) if evidence.is_over else None
    if found is None:
        return evidence
    root, gain = found
    worth = worth_of(trace, engine, root, gain)
    if worth is not None and worth.value * NS_PER_MS <= limit * (trace.unprofiled_step_ns or 0.0):
        return evidence
    bottleneck, advice = CAUSES[root]
    copied = root is Root.HOST and engine.copied_bytes > 0
    claim = Claim({engine.device: engine.late | engine.busy_copies if copied else engine.late})
    return Finding(
        message=f"between engine steps device {engine.device[1]} waits "
        f"{of_period(trace, engine.device, engine.late_ns)} for the host: {words_of(engine, root)}; the step is the "
        "time per output token",
        bottleneck=bottleneck,
        where=Where(rank=engine.device[0], device=engine.device[1]),
        evidence=(evidence, Evidence("host time between CUDA calls", Quantity.ms(engine.host_ns),
                                     "stretches of the engine's thread longer than operators take, per step")),
        advice=advice,
        verify="Capture again: the next step is launched before the device is done with this one.",
        claim=claim,
        change=engine.changes[root],
        fix=fixes.PREPARE_NEXT_STEP,
        stated=worth,
    )  # fmt: skip


def _root(trace: Trace, engine: EngineLate) -> tuple[Root, Quantity] | None:
    """The most specific of the roots that win about the most, and its gain; None where none wins a good part of the
    time."""
    priced = {root: price_change(change, engine.device[0], trace) for root, change in engine.changes.items()}
    gains = {root: worth.gain for root, worth in priced.items() if worth is not None}
    most = max((gain.value for gain in gains.values()), default=0.0)
    if most * NS_PER_MS <= assumed.EFFECTIVE_SHARE.value * engine.late_ns:
        return None
    least = {root: (_LOCKED if root is Root.LOCK else _NEARLY) * most for root in Root}
    return next((root, gains[root]) for root in Root if root in gains and gains[root].value >= least[root])


RULE = Rule(
    "SRV101",
    check,
    needs=(DEVICE_OPS, API_CALLS),
    reads=BLAME_READS,
    limits={"late_ratio": Limit.ratio(0.03, "a healthy server's host is late by up to 2 % of a step", HEALTHY)},
    references=("https://arxiv.org/abs/2309.06180",),
)
