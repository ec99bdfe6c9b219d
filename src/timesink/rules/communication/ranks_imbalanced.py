"""Ranks take turns at being late to the collectives.

The work is spread unevenly, and not always against the same rank.

## What it detects
Lateness that several ranks share, none of them more than half of it, and that together makes the job slower by more
than a share.

## Why it matters
Every collective waits for whoever is last. If the work of a step differs from rank to rank (sequence lengths, experts,
uneven shards), each step takes as long as its unluckiest rank.

## How it is measured
As for one late rank (COM103): collectives matched across ranks, lateness of a rank beyond the median of its peers
since the last collective that held all of them up, within the error of the clocks nothing. The gain is a replay with
every rank's own lateness taken away.

## What to do
Balance what ranks get: bucket by length, balance tokens instead of samples, even out experts. Where the lateness is on
the host, garbage collection or input of different ranks at different steps is the usual cause: run them at one step.

## When it misleads
Random jitter of many ranks adds up too: with hundreds of ranks somebody is always late, and no balancing removes it.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict, Where
from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.waits import collective_waits, exposed_waits
from timesink.measures.ranks.job import JOB_READS, ranks_of, step_ns
from timesink.measures.ranks.lateness import lateness, rebalanced
from timesink.measures.ranks.parity import ranks_text
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text

_SIDES = {
    "host_ns": "on the host",
    "device_ns": "in what their GPUs compute",
    "network_ns": "in transfers among some of them",
}


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found where all ranks' own lateness together costs enough and no rank has more than half of it."""
    if len(ranks_of(trace)) < 2:
        return NotApplicable("the trace holds one rank")
    waits = collective_waits(trace)
    late = lateness(trace)
    if late.anchors.size < 2:
        return NotApplicable("fewer than two collectives hold all ranks up")
    own = {rank: ns for rank, ns in late.ranks.select("rank", "own_ns").rows() if ns > 0}
    gain = rebalanced(late, own).gain_ratio
    evidence = Evidence(
        "share of the time that goes where no rank comes later than the median",
        Quantity(gain, "ratio"),
        "collectives of all ranks replayed without the lateness that is their own",
        limit=Quantity(limits["gain_ratio"], "ratio"),
        table="collectives",
    )
    if not evidence.is_over or 2 * max(own.values(), default=0) > sum(own.values()):
        return found_or_clear([evidence])
    period = step_ns(waits.job)
    saved_ms = gain * period / NS_PER_MS
    latest = sorted(own, key=lambda rank: (-own[rank], rank))
    sums = {name: int(late.ranks[name].sum()) for name in _SIDES}
    side = _SIDES[max(sums, key=lambda name: sums[name])]
    finding = Finding(
        message=f"{ranks_text(tuple(latest))} take turns at being late, mostly {side}, and hold the "
        f"{time_text(period)} step up for {time_text(gain * period)} ({share_text(gain)})",
        bottleneck=Bottleneck.STRAGGLER,
        where=Where(rank=latest[0]),
        evidence=(
            evidence,
            Evidence("own lateness, host", Quantity.ms(sums["host_ns"]), "summed over ranks"),
            Evidence("own lateness, computation", Quantity.ms(sums["device_ns"]), "summed over ranks"),
            Evidence("own lateness, transfer", Quantity.ms(sums["network_ns"]), "summed over ranks"),
        ),
        advice="Give every rank the same work per step (balance tokens, lengths, experts); run garbage collection and "
        "logging of all ranks at the same step.",
        verify="Capture all ranks again: the waits in collectives shrink on every rank.",
        claim=Claim(exposed_waits(trace)),
        stated=Quantity(
            saved_ms,
            "ms",
            low=saved_ms * (1 - assumed.GAIN_ERROR.value),
            high=saved_ms * (1 + assumed.GAIN_ERROR.value),
        ),
    )
    return found_or_clear([finding])


RULE = Rule(
    "COM104",
    check,
    needs=(DEVICE_OPS,),
    reads=JOB_READS,
    limits={
        "gain_ratio": Limit.ratio(
            0.05, "jitter of equal ranks adds up to a few percent of a step", "own captures of balanced jobs"
        )
    },
    capture="timesink capture torch -- torchrun train.py",
)
