"""What a finding is worth: milliseconds per step, as low / value / high.

Every price is a bound or a replay, never a guess. `bound_price` uses only the claim: the union of device intervals that
the fix could at most remove (a fix of host work gains at most the device's idle time; one of copies or communication
at most their exposed time). A replay of the finding's `change` takes its place where one exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from timesink.findings import Card, Claim, Finding, Quantity
from timesink.measures.per_step import largest_per_step_ns
from timesink.model.intervals import Intervals
from timesink.rule import Facts
from timesink.units import NS_PER_MS

Pricer = Callable[[Finding, Facts], Quantity]


def bound_price(finding: Finding, facts: Facts) -> Quantity:
    """At most the claimed device time per step; at least nothing."""
    high = claimed_ms_per_step(finding.claim, facts)
    return Quantity(high, "ms", low=0.0, high=high)


def claimed_ms_per_step(claim: Claim, facts: Facts) -> float:
    """Claimed time within the steady steps, averaged over them, on the device where it is largest."""
    return largest_per_step_ns(facts.trace, claim.intervals) / NS_PER_MS


def shared(ranked: Iterable[tuple[Card, Finding]], facts: Facts) -> list[tuple[Card, Finding]]:
    """Let findings that claim the same device time share it: each keeps what those before it leave.

    The sum over findings then never exceeds the union of their claims, so it never exceeds the step.
    """
    taken: dict[tuple[int, int], Intervals] = {}
    priced = []
    for card, finding in ranked:
        left = {key: part - taken.get(key, Intervals.none()) for key, part in finding.claim.intervals.items()}
        whole = claimed_ms_per_step(finding.claim, facts)
        share = claimed_ms_per_step(Claim(left), facts) / whole if whole > 0 else 1.0
        for key, part in finding.claim.intervals.items():
            taken[key] = taken.get(key, Intervals.none()) | part
        worth = finding.recoverable
        priced.append((card, replace(finding, recoverable=_scaled(worth, share) if worth else None)))
    return priced


def _scaled(worth: Quantity, share: float) -> Quantity:
    low, high = worth.low, worth.high
    return Quantity(
        worth.value * share,
        worth.unit,
        low=None if low is None else low * share,
        high=None if high is None else high * share,
    )
