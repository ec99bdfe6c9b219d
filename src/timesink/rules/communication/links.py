"""Rule on the links between ranks: slower than others, than measured here, or than their NVLink."""

from collections.abc import Mapping, Sequence
from typing import Final

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.rule import Limits
from timesink.diagnosis.verdicts import Claim, NotApplicable, Quantity, Undecided, Where
from timesink.diagnosis.words import number
from timesink.knowledge.assumptions import ranks as assumed
from timesink.measures.communication.links import Detour, SlowLink, beside_nvlink, links
from timesink.measures.communication.pipelines import exposed_transfers
from timesink.measures.communication.waits import collective_waits
from timesink.measures.ranks.job import Job, ranks_of, step_ns
from timesink.measures.ranks.parity import ranks_text
from timesink.measures.steps.per_step import largest_per_step_ns
from timesink.measures.timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace

_ARTICLES: Final = {"allreduce": "an", "allgather": "an", "alltoall": "an"}
"""The article of a kind of collective, where it is not "a"."""


def _beside_nvlink(trace: Trace, groups: Sequence[Detour], limits: Limits) -> Row:
    """Found where groups reach less of their NVLink than the limit; by their channels, where no size is recorded."""
    slow = [group for group in groups if group.bus_share < _nvlink_limit(group, limits)]
    first = slow[0] if slow else groups[0]
    known = {"nvlink_share" if first.size_bytes else "channels_share": first.bus_share}
    return _detour(trace, slow, known) if slow else Row((first.ranks[0], -1), known)


def _nvlink_limit(group: Detour, limits: Limits) -> float:
    return limits["nvlink_share"] if group.size_bytes else limits["channels_share"]


def _detour(trace: Trace, slow: Sequence[Detour], known: Mapping[str, float]) -> Row:
    """Over NVLink transfers would take as much less time as they reach less of it than others do."""
    first, used = slow[0], assumed.NVLINK_USED
    ranks = {rank for group in slow for rank in group.ranks}
    exposed = {key: part for key, part in exposed_transfers(trace).items() if key[0] in ranks}
    exposed_ns, least = largest_per_step_ns(trace, exposed), 0.0 if first.size_bytes is None else first.bus_share
    shares = first.bus_share / used.low, (first.bus_share + least) / 2 / used.value, 0.0
    low, gain, high = (exposed_ns * max(1.0 - share, 0.0) for share in shares)
    way = "too few channels" if first.few_channels else "through host memory or PCIe"
    figures = {
        **known,
        "ranks": ranks_text(first.ranks),
        "article": _ARTICLES.get(first.kind, "a"),
        "kind": first.kind,
        "size_bytes": first.size_bytes,
        "channels": number(first.channels, "channel", "channels") if first.channels else "",
        "rate": f"{'at most' if first.size_bytes is None else 'at'} {first.bus_bytes_per_s / 1e9:.3g} GB/s",
        "bus_share": first.bus_share,
        "way": "through host memory or PCIe, or too few channels" if first.size_bytes is None else way,
        "transfers": first.count,
    }
    where, stated = Where(rank=first.ranks[0]), Quantity.ms(gain, low, high)
    return Row((first.ranks[0], -1), figures, where=where, claim=Claim(exposed), stated=stated, variant="nvlink")


def _compared(trace: Trace, limits: Limits) -> Rows:
    """Found where a group or pair takes a multiple of the usual time."""
    if len(ranks_of(trace)) < 2:
        return NotApplicable("the trace holds one rank")
    compared = links(trace)
    if not compared.frame.height and (groups := beside_nvlink(trace)):
        return [_beside_nvlink(trace, groups, limits)]
    if not compared.frame.height:
        why = "no transfer of one size is run by three groups or pairs of ranks: a slow link slows all alike"
        return Undecided(why, "timesink capture nccl-bench --sizes-of TRACE -- torchrun --nproc-per-node=2")
    if slow := compared.slow(limits["ratio"]):
        return [_slow_link(trace, slow)]
    return [Row((-1, -1), {"ratio": max((compared.frame["p50_ns"] / compared.frame["usual_ns"]).to_list())})]


def _slow_link(trace: Trace, slow: tuple[SlowLink, ...]) -> Row:
    waits = collective_waits(trace)
    first, shared = slow[0], links(trace).shared(slow)
    verb = "is" if len(shared) == 1 else "are"
    counts = waits.job.steps.group_by("rank").len()["len"].to_list()
    saved_ns = max(link.excess_ns for link in slow) / max(counts, default=1)
    figures = {
        "ratio": max(link.ratio for link in slow),
        "ranks": ranks_text(first.ranks),
        "others": f" and {len(slow) - 1} more of their like" if len(slow) > 1 else "",
        "p50_ns": first.p50_ns,
        "article": _ARTICLES.get(first.kind, "a"),
        "kind": first.kind,
        "size_bytes": first.size_bytes,
        "usual_ns": first.usual_ns,
        "elsewhere": "as measured here by nccl-bench" if first.measured else "elsewhere",
        "whom": f"; {ranks_text(shared)} {verb} in all slow transfers and in no other" if shared else "",
        "hosts": _hosts(waits.job, shared),
        "compared": first.count,
    }
    where = Where(rank=(shared or first.ranks)[0])
    stated = Quantity.ms(saved_ns, 0.0, min(saved_ns, step_ns(waits.job)))
    return Row((first.ranks[0], -1), figures, where=where, claim=Claim(_stood(trace, slow)), stated=stated)


def _hosts(job: Job, ranks: tuple[int, ...]) -> str:
    names = sorted({host for rank, host in job.members.select("rank", "host").rows() if rank in ranks and host})
    return f" ({' and '.join(names)})" if names else ""


def _stood(trace: Trace, slow: tuple[SlowLink, ...]) -> dict[Device, Intervals]:
    """Exposed communication of the ranks behind slow links."""
    ranks, lines = {rank for link in slow for rank in link.ranks}, device_timeline(trace).by_device
    return {key: line.exposed_communication for key, line in lines.items() if key[0] in ranks}


RULES: Final = (declare("slow-link", _compared, asks_limits=True),)
