"""Rule on the links between ranks: slower than others, than measured here, or than their NVLink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from timesink.diagnosis.rule import Limits, found_or_clear, make_rule
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
from timesink.diagnosis.words import number
from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.links import Detour, SlowLink, beside_nvlink, links
from timesink.measures.communication.pipelines import exposed_transfers
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.job import Job, ranks_of, step_ns
from timesink.measures.ranks.parity import ranks_text
from timesink.measures.steps.per_step import largest_per_step_ns
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.units import bytes_text, share_text, time_text

_ARTICLES: Final = {"allreduce": "an", "allgather": "an", "alltoall": "an"}
"""The article of a kind of collective, where it is not "a"."""


def _judge_nvlink(trace: Trace, groups: Sequence[Detour], limits: Limits) -> Verdict:
    """Found where groups reach less of their NVLink than the limit; by their channels, where no size is recorded."""
    slow = [group for group in groups if group.bus_share < _nvlink_limit(group, limits)]
    first = slow[0] if slow else groups[0]
    how = "bus bandwidth of its fastest large transfer" if first.size_bytes else "as much as its channels move at most"
    evidence = Evidence(
        "slowest group's share of NVLink",
        Quantity(first.bus_share, "ratio"),
        f"{how}, of what NVLink carries in one direction",
        limit=Quantity(_nvlink_limit(first, limits), "ratio"),
        table="collectives",
    )
    return found_or_clear([_detour(trace, slow, evidence) if slow else evidence])


def _nvlink_limit(group: Detour, limits: Limits) -> float:
    return limits["nvlink_share"] if group.size_bytes else limits["channels_share"]


def _detour(trace: Trace, slow: Sequence[Detour], evidence: Evidence) -> Finding:
    """Over NVLink transfers would take as much less time as they reach less of it than others do."""
    first, used = slow[0], assumed.NVLINK_USED
    ranks = {rank for group in slow for rank in group.ranks}
    exposed = {key: part for key, part in exposed_transfers(trace).items() if key[0] in ranks}
    exposed_ns, least = largest_per_step_ns(trace, exposed), 0.0 if first.size_bytes is None else first.bus_share
    shares = first.bus_share / used.low, (first.bus_share + least) / 2 / used.value, 0.0
    low, gain, high = (exposed_ns * max(1.0 - share, 0.0) for share in shares)
    of = "" if first.size_bytes is None else f" of {bytes_text(first.size_bytes)}"
    rate = f"{'at most' if first.size_bytes is None else 'at'} {first.bus_bytes_per_s / 1e9:.3g} GB/s"
    over = f" over {number(first.channels, 'channel', 'channels')}" if first.channels else ""
    way = "too few channels" if first.few_channels else "through host memory or PCIe"
    way = "through host memory or PCIe, or too few channels" if first.size_bytes is None else way
    return Finding(
        message=f"{ranks_text(first.ranks)} of one host move {_ARTICLES.get(first.kind, 'a')} {first.kind}{of}{over}, "
        f"{rate}, {share_text(first.bus_share)} of their NVLink bandwidth: {way}",
        bottleneck=Bottleneck.COMMUNICATION_EXPOSED,
        where=Where(rank=first.ranks[0]),
        evidence=(evidence, Evidence("transfers", Quantity(first.count, "calls"), "large ones of the group")),
        advice="Unset NCCL_P2P_DISABLE and NCCL_MAX_CTAS; let each process see all GPUs: NCCL_DEBUG=INFO then says via "
        "P2P.",
        verify="Capture again: the transfers reach a quarter of NVLink and more.",
        claim=Claim(exposed),
        stated=Quantity.ms(gain, low, high),
    )


def _check_links(trace: Trace, limits: Limits) -> Verdict:
    """Found where a group or pair takes a multiple of the usual time."""
    if len(ranks_of(trace)) < 2:
        return NotApplicable("the trace holds one rank")
    compared = links(trace)
    if not compared.frame.height and (groups := beside_nvlink(trace)):
        return _judge_nvlink(trace, groups, limits)
    if not compared.frame.height:
        why = "no transfer of one size is run by three groups or pairs of ranks: a slow link slows all alike"
        return Undecided(why, "timesink capture nccl-bench --sizes-of TRACE -- torchrun --nproc-per-node=2")
    slow = compared.slow(limits["ratio"])
    if not slow:
        worst = max((compared.frame["p50_ns"] / compared.frame["usual_ns"]).to_list())
        return found_or_clear([_link_evidence(worst, limits)])
    return found_or_clear([_slow_link(trace, slow, _link_evidence(max(link.ratio for link in slow), limits))])


def _link_evidence(ratio: float, limits: Limits) -> Evidence:
    return Evidence(
        "slowest transfer over the usual one",
        Quantity(ratio, "ratio"),
        "median transfer of a group or pair over the median of those that run the same one, or as nccl-bench measured",
        limit=Quantity(limits["ratio"], "ratio"),
        table="collectives",
    )


def _slow_link(trace: Trace, slow: tuple[SlowLink, ...], evidence: Evidence) -> Finding:
    waits = collective_waits(trace)
    first, shared = slow[0], links(trace).shared(slow)
    verb = "is" if len(shared) == 1 else "are"
    whom = f"; {ranks_text(shared)} {verb} in all slow transfers and in no other" if shared else ""
    others = f" and {len(slow) - 1} more of their like" if len(slow) > 1 else ""
    counts = waits.job.steps.group_by("rank").len()["len"].to_list()
    saved_ns = max(link.excess_ns for link in slow) / max(counts, default=1)
    elsewhere = "as measured here by nccl-bench" if first.measured else "elsewhere"
    what = f"{_ARTICLES.get(first.kind, 'a')} {first.kind} of {bytes_text(first.size_bytes)}"
    return Finding(
        message=f"{ranks_text(first.ranks)}{others} take {time_text(first.p50_ns)} for {what} that takes "
        f"{time_text(first.usual_ns)} {elsewhere}{whom}{_hosts(waits.job, shared)}",
        bottleneck=Bottleneck.COMMUNICATION_EXPOSED,
        where=Where(rank=(shared or first.ranks)[0]),
        evidence=(
            evidence,
            Evidence("transfers compared", Quantity(first.count, "calls"), "of that size, of the slowest"),
        ),
        advice="Run nccl-tests between these hosts and between others; check link widths and error counters.",
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


RULES: Final = (make_rule("slow-link", _check_links),)
