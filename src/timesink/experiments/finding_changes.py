"""Findings of two diagnoses, matched: which are gone, new, changed or the same."""

from __future__ import annotations

from collections import defaultdict

from timesink.experiments.limits import KERNEL_THRESHOLD
from timesink.findings import Card, Diagnosis, Finding
from timesink.outcomes import Fate, FindingChange

_PLACE = ("range", "op", "kernel", "file", "line", "stream")


def finding_changes(before: Diagnosis, after: Diagnosis) -> tuple[FindingChange, ...]:
    """Matched by code and place, then by code alone in order; changed where the recoverable time moved by over 5 %."""
    old, new = list(before.findings), list(after.findings)
    pairs: list[tuple[tuple[Card, Finding] | None, tuple[Card, Finding] | None]] = []
    for place in (_by_place, _by_code):
        waiting: dict[object, list[tuple[Card, Finding]]] = defaultdict(list)
        for found in new:
            waiting[place(found)].append(found)
        for found in list(old):
            if waiting[place(found)]:
                partner = waiting[place(found)].pop(0)
                pairs.append((found, partner))
                old.remove(found)
                new.remove(partner)
    found_once = [(found, None) for found in old] + [(None, found) for found in new]
    told = [_told(one, other) for one, other in [*pairs, *found_once]]
    return tuple(sorted(told, key=lambda change: (change.code, change.message)))


def _by_place(found: tuple[Card, Finding]) -> object:
    card, finding = found
    return (card.code, *(getattr(finding.where, name) for name in _PLACE))


def _by_code(found: tuple[Card, Finding]) -> object:
    return found[0].code


def _told(old: tuple[Card, Finding] | None, new: tuple[Card, Finding] | None) -> FindingChange:
    card, finding = new or old or (None, None)
    assert card is not None
    assert finding is not None
    before, after = (None if side is None else _recoverable_ms(side[1]) for side in (old, new))
    where = finding.where
    fate = Fate.NEW if old is None else Fate.GONE if new is None else _moved(before, after)
    return FindingChange(card.code, card.name, finding.message, fate, before, after, where.file, where.line)


def _moved(before: float | None, after: float | None) -> Fate:
    if before is None or after is None:
        return Fate.SAME if before is after else Fate.CHANGED
    return Fate.SAME if abs(after - before) <= KERNEL_THRESHOLD.default * abs(before) else Fate.CHANGED


def _recoverable_ms(finding: Finding) -> float | None:
    return finding.recoverable.value if finding.recoverable is not None else None
