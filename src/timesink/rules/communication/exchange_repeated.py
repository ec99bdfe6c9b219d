"""Gradients are exchanged after every micro-batch.

Only the sum of a step is used.

## What it detects
Steps with several forward passes of a DistributedDataParallel module, each followed by the same all-reduces.

## Why it matters
With gradient accumulation the optimizer uses the sum over micro-batches. Exchanging after each of k micro-batches
moves k times the bytes that one exchange of the sum moves.

## How it is measured
Ranges `DistributedDataParallel.forward` part each steady step. All-reduces are counted to the forward pass before their
launch; behind each of them the list of sizes must be the same. What the exchanges before the last cost is their time
with no computation beside them, and what kernels beside them take beyond their free runs. The gain is a replay without
them: behind a host that is late anyway it is nothing.

## What to do
Run all but the last micro-batch under `no_sync()`.

## When it misleads
Several modules wrapped one by one, of the same sizes, look the same. FSDP gathers parameters again on purpose: it is
not looked at here.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_step
from timesink.fixes import table as fixes
from timesink.measures.communication.collectives import RepeatedExchange, repeated_exchanges
from timesink.measures.steps.per_step import share_of_step
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, DEVICES, HOST_OPS, RANGES, SETTINGS, SOURCES
from timesink.model.trace import Trace
from timesink.units import bytes_text
from timesink.whatif.change import Case


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found where the exchanges that could be left out are exposed long enough."""
    judged = [_judge(trace, limits, exchange) for exchange in repeated_exchanges(trace)]
    first = [one for one in judged if isinstance(one, Finding)][:1]
    return applicable(first or judged, "no step exchanges the same gradients after each of several forward passes")


def _judge(trace: Trace, limits: Limits, exchange: RepeatedExchange) -> Finding | Evidence:
    change = fixes.NO_SYNC.change(exchange.early, exchange.slowed)
    slowed = change.kernels.beside.saved(trace, Case.EXPECTED) if change.kernels.beside else Intervals.none()
    claim = exchange.exposed | slowed
    evidence = Evidence(
        f"time that repeated exchanges cost on rank {exchange.device[0]}",
        Quantity(share_of_step(trace, exchange.device, claim), "ratio"),
        "all but the last exchange of each step, where no computation runs beside them, and what they slow down",
        limit=Quantity(limits["exposed_ratio"], "ratio"),
        table="collectives",
    )
    if not evidence.is_over:
        return evidence
    return Finding(
        message=f"gradients are exchanged {exchange.times} times a step ({bytes_text(exchange.step_bytes)} where "
        f"{bytes_text(exchange.step_bytes / exchange.times)} would do); those before the last, exposed or in kernels "
        f"that they slow down, cost {of_step(trace, exchange.device, claim)}",
        bottleneck=Bottleneck.COMMUNICATION_EXPOSED,
        where=Where(rank=exchange.device[0], device=exchange.device[1], op="DistributedDataParallel.forward"),
        evidence=(
            evidence,
            Evidence("exchanges per step", Quantity(exchange.times, "calls"), "equal lists of all-reduces"),
        ),
        advice="Run every micro-batch but the last under model.no_sync().",
        verify="Capture again: one exchange per step.",
        claim=Claim({exchange.device: claim}),
        change=change,
        fix=fixes.NO_SYNC,
    )


RULE = Rule(
    "COM107",
    check,
    needs=(DEVICE_OPS, COLLECTIVES),
    reads=(API_CALLS, DEVICES, HOST_OPS, RANGES, SETTINGS, SOURCES),
    limits={
        "exposed_ratio": Limit.ratio(0.02, "hidden exchanges cost the step little", "run-to-run deviation of a step")
    },
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    capture="timesink capture torch -- torchrun train.py",
)
