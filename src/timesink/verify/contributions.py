"""What a change in step time is made of: parts of both sides, matched, in whole nanoseconds that sum to the change.

Findings of two diagnoses, matched: which are gone, new, changed or the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from timesink.diagnosis.verdicts import Card, Diagnosis, Finding
from timesink.verify.limits import KERNEL_THRESHOLD
from timesink.verify.outcomes import Contribution, Fate, FindingChange

if TYPE_CHECKING:
    from timesink.measures.steps.parts import StepParts


class Key(NamedTuple):
    """What makes a kernel the same kernel on both sides; for other parts `name` is a cause or empty."""

    kind: str
    name: str
    grid: str
    block: str
    range: str


def contributions(before: StepParts, after: StepParts) -> tuple[Contribution, ...]:
    """Every part of the step on either side, per step; their changes sum to the change of the mean step.

    Kernels are matched by name, grid, block and range; those left over by name and range, then by name alone, each in
    order of first occurrence. What is left then is new or vanished.
    """
    sides = [_per_step(side) for side in (before, after)]
    pairs = matched(list(sides[0]), list(sides[1]))
    return tuple(
        Contribution(_name(old, new), sides[0].get(old, 0) if old else 0, sides[1].get(new, 0) if new else 0)
        for old, new in pairs
    )


def apportioned(totals: Sequence[int], count: int) -> list[int]:
    """Whole numbers near `totals / count` that sum to the rounded mean of their sum, by largest remainders."""
    target = (2 * sum(totals) + count) // (2 * count)
    shares = [total // count for total in totals]
    by_remainder = sorted(range(len(totals)), key=lambda i: (-(totals[i] % count), i))
    for i in by_remainder[: target - sum(shares)]:
        shares[i] += 1
    return shares


def matched(before: Sequence[Key], after: Sequence[Key]) -> list[tuple[Key | None, Key | None]]:
    """Pairs of keys, each key once, in the order of `before` and then of what is new in `after`."""
    partner: dict[Key, Key] = {key: key for key in set(before) & set(after)}
    taken = set(partner)
    for alike in (lambda key: (key.kind, key.name, key.range), lambda key: (key.kind, key.name)):
        free: dict[tuple[str, ...], list[Key]] = defaultdict(list)
        for key in after:
            if key not in taken:
                free[alike(key)].append(key)
        for key in before:
            if key not in partner and free[alike(key)]:
                partner[key] = free[alike(key)].pop(0)
                taken.add(partner[key])
    pairs: list[tuple[Key | None, Key | None]] = [(key, partner.get(key)) for key in before]
    return pairs + [(None, key) for key in after if key not in taken]


def _per_step(side: StepParts) -> dict[Key, int]:
    """Whole nanoseconds per step by key, in order of first occurrence."""
    rows = side.frame.select("kind", "name", "grid", "block", "range", "total_ns").rows()
    shares = apportioned([row[5] for row in rows], max(side.step_count, 1))
    return dict(zip((Key(*row[:5]) for row in rows), shares, strict=True))


def _name(old: Key | None, new: Key | None) -> str:
    key = new or old
    assert key is not None
    fate = " (new)" if old is None else " (vanished)" if new is None else ""
    if key.kind != "compute":
        return f"{key.kind}: {key.name}" if key.name else key.kind
    grids = _unlike(old, new)
    inside = f" in {key.range}" if key.range else ""
    return f"kernel {key.name}{grids}{inside}{fate}"


def _unlike(old: Key | None, new: Key | None) -> str:
    """The launch size, with both where it changed."""
    sizes: Iterable[str] = dict.fromkeys(f"<{key.grid} | {key.block}>" for key in (old, new) if key and key.grid)
    return " " + " → ".join(sizes) if sizes else ""


def grouped(parts: Iterable[Contribution]) -> tuple[Contribution, ...]:
    """The same by kind: compute, exposed communication, exposed copy, idle."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for part in parts:
        kind = "compute" if part.name.startswith("kernel ") else part.name.partition(":")[0]
        sums[kind][0] += part.before_ns
        sums[kind][1] += part.after_ns
    return tuple(Contribution(kind, *sums[kind]) for kind in sorted(sums))


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
