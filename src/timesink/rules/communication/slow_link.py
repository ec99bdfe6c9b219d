"""A group or pair of ranks transfers slower than others, or than the link that their GPUs have.

The link between them is slow, or not taken.

## What it detects
Collectives of several groups of equal size, or messages between several pairs of ranks, of which some take a multiple
of the usual time for the same number of bytes. And collectives within one host whose GPUs are joined by NVLink that
move at a small part of its rate: they go through host memory or PCIe.

## Why it matters
A link that has lost lanes, an adapter that fell back to a lower rate or a route that others share slows every step of
the ranks behind it, and through them the whole job. Neither their hosts nor their GPUs show anything.

## How it is measured
The transfer is the shortest kernel of a collective or message: whoever comes last waits for nobody. So no clock of
another rank is needed. Groups and pairs are compared that run the same kind with the same bytes over as many ranks and
hosts, three or more of them. A rank that takes part in all slow transfers and in none of the usual speed is named.
Where nothing can be compared, the fastest large transfer of a group within one host, times the factor of its kind
(nccl-tests' bus bandwidth), is held against what NVLink carries in one direction; what it costs is counted in
communication-exposed.

## What to do
Run nccl-tests between the hosts named and between others. Look at link widths, error counters and routes there. Within
one host, `NCCL_DEBUG=INFO` says `via P2P` or `via SHM`: unset `NCCL_P2P_DISABLE`, and let each process see all GPUs of
the host.

## When it misleads
Groups whose transfers run at the same time share links by design; those that happen to run alone look fast. A
collective of all ranks has no counterpart, so a job of one group says nothing, unless it is one of GPUs with NVLink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
from timesink.measures.communication.waits import Detour, SlowLink, beside_nvlink, collective_waits, links
from timesink.measures.ranks.job import JOB_READS, Job, ranks_of, step_ns
from timesink.measures.ranks.parity import ranks_text
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.units import bytes_text, share_text, time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found where a group or pair takes a multiple of the usual time."""
    if len(ranks_of(trace)) < 2:
        return NotApplicable("the trace holds one rank")
    compared = links(trace)
    if not compared.frame.height and (groups := beside_nvlink(trace)):
        return of_nvlink(groups, limits["nvlink_share"])
    if not compared.frame.height:
        why = "no transfer of one size is run by three groups or pairs of ranks: a slow link slows all alike"
        return Undecided(why, "timesink capture nccl-bench --sizes-of TRACE -- torchrun --nproc-per-node=2")
    slow = compared.slow(limits["ratio"])
    if not slow:
        worst = max((compared.frame["p50_ns"] / compared.frame["usual_ns"]).to_list())
        return found_or_clear([_evidence(worst, limits)])
    return found_or_clear([_finding(trace, slow, _evidence(max(link.ratio for link in slow), limits))])


def _evidence(ratio: float, limits: Limits) -> Evidence:
    return Evidence(
        "slowest transfer over the usual one",
        Quantity(ratio, "ratio"),
        "median transfer of a group or pair over the median of those that run the same one, or as nccl-bench measured",
        limit=Quantity(limits["ratio"], "ratio"),
        table="collectives",
    )


def _finding(trace: Trace, slow: tuple[SlowLink, ...], evidence: Evidence) -> Finding:
    waits = collective_waits(trace)
    first, shared = slow[0], links(trace).shared(slow)
    verb = "is" if len(shared) == 1 else "are"
    whom = f"; {ranks_text(shared)} {verb} in all slow transfers and in no other" if shared else ""
    others = f" and {len(slow) - 1} more of their like" if len(slow) > 1 else ""
    counts = waits.job.steps.group_by("rank").len()["len"].to_list()
    saved_ns = max(link.excess_ns for link in slow) / max(counts, default=1)
    elsewhere = "as measured here by nccl-bench" if first.measured else "elsewhere"
    what = f"{AN.get(first.kind, 'a')} {first.kind} of {bytes_text(first.size_bytes)}"
    return Finding(
        message=f"{ranks_text(first.ranks)}{others} take {time_text(first.p50_ns)} for {what} that takes "
        f"{time_text(first.usual_ns)} {elsewhere}{whom}{_hosts(waits.job, shared)}",
        bottleneck=Bottleneck.COMMUNICATION_EXPOSED,
        where=Where(rank=(shared or first.ranks)[0]),
        evidence=(
            evidence,
            Evidence("transfers compared", Quantity(first.count, "calls"), "of that size, of the slowest"),
        ),
        advice="Run nccl-tests between these hosts and between others; look at link widths and error counters.",
        verify="Capture again: the transfer takes as long as elsewhere.",
        claim=Claim(_stood(trace, slow)),
        stated=Quantity.ms(saved_ns, 0.0, min(saved_ns, step_ns(waits.job))),
    )


def _hosts(job: Job, ranks: tuple[int, ...]) -> str:
    names = sorted({host for rank, host in job.members.select("rank", "host").rows() if rank in ranks and host})
    return f" ({' and '.join(names)})" if names else ""


def _stood(trace: Trace, slow: tuple[SlowLink, ...]) -> dict[tuple[int, int], Intervals]:
    """Exposed communication of the ranks behind slow links, by (rank, device)."""
    ranks = {rank for link in slow for rank in link.ranks}
    exposed = collective_waits(trace).job.exposed.partition_by("rank", "device", as_dict=True)
    return {(int(rank), int(device)): Intervals.of(frame) for (rank, device), frame in exposed.items() if rank in ranks}


AN: Final = {"allreduce": "an", "allgather": "an", "alltoall": "an"}
"""The article of a kind of collective, where it is not "a"."""


def of_nvlink(groups: Sequence[Detour], limit: float) -> Verdict:
    """Found where the slowest of the groups reaches less of its NVLink than the limit."""
    evidence = _share(groups[0], limit)
    slow = [group for group in groups if group.bus_share < limit]
    return found_or_clear([_detour(slow, evidence) if slow else evidence])


def _share(group: Detour, limit: float) -> Evidence:
    return Evidence(
        "slowest group's share of NVLink",
        Quantity(group.bus_share, "ratio"),
        "bus bandwidth of its fastest large transfer, of what NVLink carries in one direction",
        limit=Quantity(limit, "ratio"),
        table="collectives",
    )


def _detour(slow: Sequence[Detour], evidence: Evidence) -> Finding:
    """What the transfers cost is said of exposed communication, by a rule that claims their time; this is its cause."""
    first = slow[0]
    return Finding(
        message=f"{ranks_text(first.ranks)} of one host move {AN.get(first.kind, 'a')} {first.kind} of "
        f"{bytes_text(first.size_bytes)} at {first.bus_bytes_per_s / 1e9:.3g} GB/s, {share_text(first.bus_share)} of "
        "their NVLink: through host memory or PCIe",
        bottleneck=Bottleneck.COMMUNICATION_EXPOSED,
        where=Where(rank=first.ranks[0]),
        evidence=(evidence, Evidence("transfers", Quantity(first.count, "calls"), "large ones of the group")),
        advice="NCCL_DEBUG=INFO says via P2P or via SHM: unset NCCL_P2P_DISABLE, and let each process see all GPUs.",
        verify="Capture again: the transfers reach a quarter of NVLink and more.",
        stated=Quantity(0.0, "ms", low=0.0, high=0.0),
        counted_in=("COM101", 1.0),
    )


RULE = Rule(
    "COM109",
    check,
    needs=(DEVICE_OPS,),
    reads=JOB_READS,
    limits={
        "ratio": Limit.ratio(
            1.5,
            "six pairs of healthy GPUs differ by 2 %; a link at half its lanes takes twice as long",
            "own captures of a pipeline on four H200s",
        ),
        "nvlink_share": Limit.ratio(
            0.12,
            "PCIe 5 carries 64 GB/s, a seventh of the NVLink of an H100; what passes through host memory gets less",
            "benchmarks/faults: healthy exchanges of 8 MB and more between two H200s reach 26 to 65 % of NVLink",
        ),
    },
    references=("https://github.com/NVIDIA/nccl-tests",),
    capture="timesink capture torch -- torchrun train.py",
)
