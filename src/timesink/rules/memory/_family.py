"""What the rules on memory share: one figure per GPU, a finding where its share of the peak passes the limit.

Memory is no time: findings state bytes in their evidence and claim no device time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from timesink.diagnosis.rule import Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Clear,
    Evidence,
    Finding,
    Found,
    Limit,
    NotApplicable,
    Quantity,
    Undecided,
    Verdict,
    Where,
)
from timesink.measures.memory.ledger import MemoryLedger, memory_ledger
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS
from timesink.model.trace import Trace
from timesink.units import bytes_text, share_text

CAPTURE: Final = (
    "torch.cuda.memory._record_memory_history(); run a few steps; torch.cuda.memory._dump_snapshot('snapshot.pickle')"
)
memory_rule: Final = partial(Rule, needs=(MEMORY_EVENTS,), reads=(MEMORY_BLOCKS, MEMORY_MARKS), capture=CAPTURE)
"""Declares a rule on memory: the tables it reads, and how to record them."""

TOLD_APART = Limit(
    default=0.5,
    unit="ratio",
    why="beyond it a share says more of the classification than of the program",
    source="measured programs leave less than 1 % of their peak unclassified (docs/explanation/memory-accuracy.md)",
)


@dataclass(frozen=True, slots=True)
class SharePattern:
    """A rule that is told by bytes at the peak. `measure` gives them, or None where the GPU has nothing to ask about.

    `subject` stands in "GPU 0: 3.88 GB of ... are <subject> at the peak of 22.8 GB (17.0 %, limit 5 %)"; `more` adds
    evidence.
    """

    measure: Callable[[MemoryLedger], int | None]
    label: str
    how: str
    subject: str
    advice: str
    verify: str
    more: Callable[[MemoryLedger], tuple[Evidence, ...]] = lambda _: ()


def share_verdict(pattern: SharePattern, trace: Trace, limit: float) -> Verdict:
    """Found for each GPU over the limit. Undecided where the record has no stacks to tell what memory is for."""
    ledgers = {key: one for key, one in memory_ledger(trace).items() if one.peak_bytes}
    if not ledgers:
        return NotApplicable("no GPU memory is in use in the record")
    told = {key: one for key, one in ledgers.items() if one.unclassified_ratio <= TOLD_APART.default}
    if not told:
        return Undecided("more than half of the peak cannot be told apart: no stacks were recorded", CAPTURE)
    findings, clear = [], []
    for (rank, device), one in sorted(told.items()):
        size = pattern.measure(one)
        if size is None:
            continue
        fact = evidence(pattern.label, size, one.peak_bytes, pattern.how, limit)
        if size > limit * one.peak_bytes:
            findings.append(_finding(pattern, one, (rank, device), size, (fact, limit)))
        else:
            clear.append(fact)
    if findings:
        return Found(tuple(findings))
    return Clear(tuple(clear)) if clear else NotApplicable("the record holds no training step")


def evidence(label: str, size_bytes: int, whole_bytes: int, how: str, limit: float) -> Evidence:
    """A share with its limit."""
    share = Quantity(size_bytes / whole_bytes if whole_bytes else 0.0, "ratio")
    return Evidence(label, share, how, Quantity(limit, "ratio"), "memory_events")


def size_evidence(label: str, size_bytes: int, how: str) -> Evidence:
    """A size that is compared with nothing."""
    return Evidence(label, Quantity(float(size_bytes), "bytes"), how, None, "memory_events")


def _finding(
    pattern: SharePattern, one: MemoryLedger, key: tuple[int, int], size: int, fact: tuple[Evidence, float]
) -> Finding:
    share = size / one.peak_bytes
    return Finding(
        message=f"{bytes_text(size)} {pattern.subject}, {share_text(share)} of device {key[1]}'s peak of "
        f"{bytes_text(one.peak_bytes)} (limit {100 * fact[1]:g} %)",
        bottleneck=Bottleneck.MEMORY_CAPACITY,
        where=Where(rank=key[0], device=key[1]),
        evidence=(
            fact[0],
            size_evidence(f"{pattern.label}, bytes", size, pattern.how),
            size_evidence("peak, bytes", one.peak_bytes, "highest total of tensors alive, as asked for"),
            *pattern.more(one),
        ),
        advice=pattern.advice,
        verify=pattern.verify,
    )
