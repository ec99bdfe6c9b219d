"""Kernels run eagerly between compiled graphs.

## What it detects
Steps in which a share of the kernels is launched by eager operators although compiled graphs of the same step stand
before and behind them.

## Why it matters
An eager operator is dispatched and launched by itself and fuses with nothing. Often the compiler gave a whole function
up because of one call in it, and only what that function calls is still compiled.

## How it is measured
Kernels launched outside of every "## Call CompiledFxGraph" mark, between the first and the last mark of a steady step,
of all kernels of these steps, where the device waits for them. Optimizers behind the last graph do not count. What
they cost is bounded by the idle time they ended: in a graph, a product takes as long.

## What to do
`timesink show compile` on a log (TORCH_TRACE) lists functions that run eagerly, and why. Functional collectives, custom
operators and `torch.where` keep such code in the graph.

## When it misleads
A loss or a library kernel left out of the graph on purpose is an island too. Nsight Systems records no graph calls.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.measures.compile.graphs import EagerIslands, eager_islands
from timesink.measures.compile.summary import compile_summary
from timesink.measures.steps.per_step import share_of_step
from timesink.model.tables import API_CALLS, COMPILE_EVENTS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.units import share_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where the share of such kernels passes the limit."""
    judged = (_judge(trace, islands, limits) for islands in eager_islands(trace))
    return applicable(judged, "no step calls more than one compiled graph")


def _judge(trace: Trace, islands: EagerIslands, limits: Limits) -> Finding | Evidence:
    evidence = Evidence(
        f"kernels run eagerly between compiled graphs on device {islands.device[1]}",
        Quantity(islands.share, "ratio"),
        "of the kernels of steady steps, by the marks of compiled graphs around their launches",
        limit=Quantity(limits["kernel_ratio"], "ratio"),
        table="device_ops",
        rows=tuple(islands.rows.tolist()),
    )
    waited = share_of_step(trace, islands.device, islands.idle)
    if not evidence.is_over or waited <= limits["idle_ratio"]:
        return evidence
    by = f", by {', '.join(islands.operators)}" if islands.operators else ""
    return Finding(
        message=f"{islands.per_step:.0f} kernels per step ({share_text(islands.share)}) run "
        f"eagerly between compiled graphs on device {islands.device[1]}{by}; "
        f"it waits {share_text(waited)} of the step for them",
        bottleneck=Bottleneck.GRAPH_BREAKS,
        where=Where(*islands.device, op=islands.operators[0] if islands.operators else None),
        evidence=(evidence,),
        advice=_advice(trace),
        verify="Capture again: these operators are gone, and fewer graphs are called per step.",
        claim=Claim({islands.device: islands.idle}),
    )


def _advice(trace: Trace) -> str:
    given_up = [f"{islands.function} ({islands.eager})" for islands in compile_summary(trace).frames if islands.eager]
    if given_up:
        return f"By the log, these run eagerly: {'; '.join(dict.fromkeys(given_up))}."
    return "Record TORCH_TRACE: timesink show compile lists the functions that run eagerly, and why."


RULE = Rule(
    "CMP104",
    check,
    needs=(DEVICE_OPS, API_CALLS),
    reads=(*BLAME_READS, COMPILE_EVENTS),
    limits={
        "kernel_ratio": Limit.ratio(
            0.1,
            "a loss between forward and backward is a few kernels of a model",
            "compiled training of 16 blocks on an H200: 3 % are its loss (tests/data/compile)",
        ),
        "idle_ratio": Limit.ratio(
            0.03,
            "where the device does not wait for them, eager kernels cost little",
            "benchmarks/faults: a compiled function between large eager products loses nothing",
        ),
    },
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",),
)
