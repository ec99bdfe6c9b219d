"""One rank comes late to the collectives and the others wait.

## What it detects
A rank that takes longer than its peers from one collective that held all ranks up to the next, and whose lateness
makes the whole job slower by more than a share.

## Why it matters
A synchronous job runs at the pace of its slowest rank. The time shows on all other ranks, as communication: neither a
faster network nor more overlap wins it back.

## How it is measured
Collectives are matched across ranks and clocks aligned on them. Lateness counts from the last collective at whose end
most ranks had nothing to compute, beyond the median of the ranks (of two: the earlier one), so that lateness inherited
from others is not counted (what it stood waiting in smaller collectives and for messages neither), nor any within the
error of the clocks. Computation beyond the median of its peers is charged to the GPU, exposed transfer beyond theirs to
the network, the rest to the host. The gain is a replay of all ranks' collectives
without this rank's lateness. A rank that runs all the kernels of its peers, and more or more slowly, wins what it
computes beyond them. A larger share of the work does not vanish where it is balanced: then the gain is what the rank
computes beyond the mean of all. A profiler slows some hosts more than others: a late host gains no more than by what
the job's step, without the profiler's cost by estimate, exceeds what the others take by themselves, and possibly
nothing; only a host that takes several times as long as the others' is late of itself.

## What to do
Look at that rank and its host: uneven input, a slower GPU or clock, another process, garbage collection. `timesink
idle --rank N` says what its GPU waited for; computation beyond that of its peers says that it has more to do.

## When it misleads
Where ranks have different roles (pipeline stages, a parameter server) being late may be their role. A rank that is not
among the files can be the late one: then all others look late together, and nobody is named.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Evidence,
    Finding,
    NotApplicable,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.measures.communication.waits import collective_waits, exposed_waits
from timesink.measures.ranks.job import JOB_READS, ranks_of, step_ns
from timesink.measures.ranks.lateness import lateness, latest_rank, worth_of_rank
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.idle import BLAME_READS
from timesink.units import share_text, time_text

# What a rank is late by: where it shows, and what to ask next. The first of equals is named.
SIDES = {
    "host_ns": ("its host", "what does its host do between collectives?"),
    "device_ns": ("more work on its GPU", "which kernels does it run beyond theirs?"),
    "network_ns": ("slower transfers to and from it", "which link, adapter or route do its transfers take?"),
}


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found for the rank without whose lateness the job gains most, if that is enough and more than half of it all."""
    if len(ranks_of(trace)) < 2:
        return NotApplicable("the trace holds one rank")
    waits = collective_waits(trace)
    if not waits.matched.calls.height:
        return NotApplicable("no collective of one rank has a counterpart on another")
    late = lateness(trace)
    if late.anchors.size < limits["collectives"]:
        why = f"{late.anchors.size} collectives hold all ranks up, too few to tell one late arrival from a late rank"
        return Undecided(why, "capture more steps, of every rank")
    worst = latest_rank(late, waits.job.ranks)
    evidence = Evidence(
        f"share of the time that goes where rank {worst.rank} comes as its peers do",
        Quantity(worst.gain_ratio, "ratio"),
        "collectives of all ranks replayed without the lateness that is this rank's own",
        limit=Quantity(limits["gain_ratio"], "ratio"),
        table="collectives",
    )
    is_found = evidence.is_over and worst.has_most
    return found_or_clear([_finding(trace, worst.rank, worst.gain_ratio, evidence) if is_found else evidence])


def _finding(trace: Trace, rank: int, gain: float, evidence: Evidence) -> Finding:
    waits, late = collective_waits(trace), lateness(trace)
    row = late.ranks.filter(late.ranks["rank"] == rank).row(0, named=True)
    late_by = max(SIDES, key=lambda name: row[name])
    (side, question), worth = SIDES[late_by], worth_of_rank(trace, rank, gain, late_by)
    period = step_ns(waits.job)
    device = waits.job.members.filter(waits.job.members["rank"] == rank)["device"][0]
    host = waits.job.members.filter(waits.job.members["rank"] == rank)["host"][0]
    claim = {key: part for key, part in exposed_waits(trace).items() if key[0] != rank}
    return Finding(
        message=f"rank {rank}{f' on {host}' if host else ''} comes late to {row['late_count']} of {row['anchors']} "
        f"collectives because of {side}, and holds the {time_text(period)} step up for {time_text(gain * period)} "
        f"({share_text(gain)})",
        bottleneck=Bottleneck.STRAGGLER,
        where=Where(rank=rank, device=device),
        evidence=(
            evidence,
            Evidence(
                f"own lateness of rank {rank}",
                Quantity.ms(row["own_ns"]),
                "beyond the median of its peers since the collective before, summed",
            ),
            Evidence("of it computation", Quantity.ms(row["device_ns"]), "beyond that of its peers"),
            Evidence(
                "of it transfer",
                Quantity.ms(row["network_ns"]),
                "exposed, in collectives and messages of some ranks, beyond that of its peers",
            ),
        ),
        advice=f"Compare rank {rank} with a peer (`timesink show idle --rank {rank}`): {question}",
        verify="Capture all ranks again: this rank comes late no more, and the waits of the others go.",
        claim=Claim(claim),
        stated=Quantity.ms(worth.gain_ns, worth.low_ns, worth.high_ns),
    )


RULE = Rule(
    "COM103",
    check,
    needs=(DEVICE_OPS,),
    reads=(*dict.fromkeys((*JOB_READS, *BLAME_READS)),),
    limits={
        "gain_ratio": Limit.ratio(0.03, "steps of a balanced job differ by less from run to run", "own captures"),
        "collectives": Limit(
            3, "calls", "one late arrival may be the start of the capture", "first and last do not count"
        ),
    },
    references=("https://www.usenix.org/conference/osdi25/presentation/lin-jinkun",),
    capture="timesink capture torch -- torchrun train.py",
)
