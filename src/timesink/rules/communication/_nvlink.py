"""Groups of one host whose transfers reach a small part of the NVLink that their GPUs have, as a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from timesink.diagnosis.rule import found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.measures.communication.waits import Detour
from timesink.measures.ranks.parity import ranks_text
from timesink.units import bytes_text, share_text

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
