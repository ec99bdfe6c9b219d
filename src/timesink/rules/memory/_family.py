"""What the rules on memory share: one figure per GPU, a finding where its share of the peak passes the limit.

Memory is no time: findings state bytes in their evidence and claim no device time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from timesink.diagnosis.rule import Limit, Rule, applicable, check_of
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Undecided, Verdict, Where
from timesink.measures.memory.ledger import MemoryLedger, memory_ledger
from timesink.measures.timeline.device_timeline import Device
from timesink.model.record import dataclass
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS
from timesink.model.trace import Trace
from timesink.units import bytes_text, share_text

CAPTURE: Final = (
    "torch.cuda.memory._record_memory_history(); run a few steps; torch.cuda.memory._dump_snapshot('snapshot.pickle')"
)
memory_rule: Final = partial(Rule, needs=(MEMORY_EVENTS,), reads=(MEMORY_BLOCKS, MEMORY_MARKS), capture=CAPTURE)
"""Declares a rule on memory: the tables it reads, and how to record them."""


def share_rule(code: str, module: str, pattern: SharePattern, limit: Limit, reference: str) -> Rule:
    """The rule of a module that has nothing but a pattern of a share of the peak, and `limit` to that share."""
    check = check_of(module, "peak_ratio", partial(share_verdict, pattern))
    return memory_rule(code, check, limits={"peak_ratio": limit}, references=(reference,))


UNCLASSIFIED: Final = Limit.ratio(
    0.5,
    "beyond it a share says more of the classification than of the program",
    "measured programs leave less than 1 % of their peak unclassified (docs/explanation/memory-accuracy.md)",
)


@dataclass(frozen=True, slots=True)
class SharePattern:
    """A rule for which a share of the memory peak is all there is to measure.

    `measure` gives the bytes in question, or None where the GPU's record leaves nothing to ask about. `subject` follows
    them in the sentence: "3.88 GB <subject>, 17.0 % of device 0's peak of 22.8 GB (limit 5 %)". `more` adds evidence.
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
    ledgers = {device: ledger for device, ledger in memory_ledger(trace).items() if ledger.peak_bytes}
    classified = {device: one for device, one in ledgers.items() if one.unclassified_ratio <= UNCLASSIFIED.default}
    if ledgers and not classified:
        return Undecided("more than half of the peak cannot be told apart: no stacks were recorded", CAPTURE)
    judged = (
        _judge(pattern, ledger, device, size_bytes, limit)
        for device, ledger in sorted(classified.items())
        if (size_bytes := pattern.measure(ledger)) is not None
    )
    return applicable(
        judged, "the record holds no training step" if ledgers else "no GPU memory is in use in the record"
    )


def size_evidence(label: str, size_bytes: int, how: str) -> Evidence:
    """A size that is compared with nothing."""
    return Evidence(label, Quantity(float(size_bytes), "bytes"), how, table="memory_events")


def _judge(
    pattern: SharePattern, ledger: MemoryLedger, device: Device, size_bytes: int, limit: float
) -> Finding | Evidence:
    share = size_bytes / ledger.peak_bytes
    evidence = Evidence(
        pattern.label, Quantity(share, "ratio"), pattern.how, Quantity(limit, "ratio"), table="memory_events"
    )
    if size_bytes <= limit * ledger.peak_bytes:
        return evidence
    return Finding(
        message=f"{bytes_text(size_bytes)} {pattern.subject}, {share_text(share)} of device {device[1]}'s peak of "
        f"{bytes_text(ledger.peak_bytes)}",
        bottleneck=Bottleneck.MEMORY_CAPACITY,
        where=Where(rank=device[0], device=device[1]),
        evidence=(
            evidence,
            size_evidence(f"{pattern.label}, bytes", size_bytes, pattern.how),
            size_evidence("peak, bytes", ledger.peak_bytes, "highest total of tensors alive, as asked for"),
            *pattern.more(ledger),
        ),
        advice=pattern.advice,
        verify=pattern.verify,
    )
