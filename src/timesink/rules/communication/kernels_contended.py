"""Kernels take longer while communication runs beside them.

## What it detects
Kernels whose runs beside communication are longer than their free runs, by more than a share, for more than a share of
the step.

## Why it matters
Overlap is not free: NCCL kernels take multiprocessors and memory bandwidth from what runs beside them. Where
computation is slowed by as much as the overlap hides, nothing is won.

## How it is measured
Runs of one kernel (name, grid and block) that communication covers at least half of, against the median of those it
does not touch. Only kernels with at least three of both, whose free runs agree within a quarter, are compared.

## What to do
Give communication fewer multiprocessors (NCCL_MAX_CTAS, fewer channels), move it to copy engines where the library
can, or place it beside kernels that leave room. Compare the step, not the kernels.

## When it misleads
One launch shape may stand for different problem sizes; agreement of the free runs makes that unlikely, not
impossible. Taking contention away by ending the overlap exposes the communication. The loss is stated as the most
that could be won; nothing is promised, so this is never the bottleneck of a diagnosis.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_period
from timesink.measures.communication.communication import communication, contention
from timesink.measures.steps.per_step import period_ns
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import share_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per GPU whose slowed kernels cost enough of the step."""
    communicates = any(one.kernel_count for one in communication(trace))
    rows = contention(trace).iter_rows(named=True) if communicates else ()
    judged = (_judge(trace, limits, row) for row in rows)
    return applicable(judged, "no kernel has enough runs with and without communication beside it")


def _judge(trace: Trace, limits: Limits, row: dict[str, int]) -> Finding | Evidence:
    device = (row["rank"], row["device"])
    span_ns = device_timeline(trace)[device].span_ns
    share = max(0.0, row["excess_ns"] / span_ns) if span_ns else 0.0
    slower = row["excess_ns"] / max(row["beside_ns"] - row["excess_ns"], 1)
    evidence = Evidence(
        f"time that kernels lose beside communication on rank {device[0]}, device {device[1]}",
        Quantity(share, "ratio"),
        "runs beside communication beyond the median of the free runs of the same kernel, over the span",
        limit=Quantity(limits["excess_ratio"], "ratio"),
        table="device_ops",
    )
    if not evidence.is_over:
        return evidence
    step_ns = period_ns(trace, device)
    return Finding(
        message=f"{row['kernels']} kernels take {share_text(slower)} longer while communication runs beside them on "
        f"rank {device[0]}, {of_period(trace, device, share * step_ns)}",
        bottleneck=Bottleneck.COMMUNICATION_EXPOSED,
        where=Where(rank=device[0], device=device[1]),
        evidence=(
            evidence,
            Evidence("slowdown", Quantity(slower, "ratio"), "excess over the free time of the same runs"),
        ),
        advice="Give communication fewer multiprocessors (NCCL_MAX_CTAS) or move it beside kernels that leave room, "
        "and compare whole steps.",
        verify="Capture again: runs beside communication come nearer to the free ones, and the step is shorter.",
        # Overlap that slows kernels may still be the best there is: nothing says that any of it can be won.
        stated=Quantity.ms(0.0, 0.0, share * step_ns),
    )


RULE = Rule(
    "COM106",
    check,
    needs=(DEVICE_OPS,),
    reads=(API_CALLS, HOST_OPS, RANGES),
    limits={
        "excess_ratio": Limit.ratio(
            0.03, "below this a perfect partition of the GPU gains little", "arXiv 2507.03114: 19 % slower on average"
        )
    },
    references=("https://arxiv.org/abs/2507.03114",),
)
