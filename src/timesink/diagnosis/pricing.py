"""What a finding is worth: milliseconds per step, as low / value / high.

Every price is a bound or a replay, never a guess. A finding with a `change` is priced by replaying the trace's
dependency graph with that change made (`whatif`). Without one, or where the trace cannot be replayed, the price is the
bound of its claim: the union of device intervals the fix could at most remove. A rule may state its own price where it
knows a tighter bound than its claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from timesink.diagnosis.rule import Facts
from timesink.diagnosis.verdicts import Card, Claim, Finding, Quantity
from timesink.measures.steps.per_step import largest_per_step_ns
from timesink.measures.timeline.replay import calibrated_pricers, pricers
from timesink.model.intervals import Intervals
from timesink.units import NS_PER_MS
from timesink.whatif import pricing
from timesink.whatif.graph import Change, Touches

Pricer = Callable[[Finding, Facts], Quantity]


def bound_price(finding: Finding, facts: Facts) -> Quantity:
    """At most the claimed device time per step; at least nothing."""
    claim = finding.claim
    high = claimed_ms_per_step(claim, facts)
    value = high if claim.expected is None else claimed_ms_per_step(Claim(claim.expected), facts)
    return Quantity(value, "ms", low=0.0, high=high)


def replay_price(finding: Finding, facts: Facts) -> Quantity:
    """The price of a finding: what the rule says, else a replay of its change, else the bound of its claim.

    Where the step without a profiler is known, it is of that step that the price is a part.
    """
    if finding.recoverable is not None:
        return finding.recoverable
    rank = finding.where.rank or 0
    plain = facts(pricers).get(rank)
    bound = bound_price(finding, facts)
    if plain is None:
        return bound
    bound = _scaled(bound, _unprofiled_share(plain, facts))
    if finding.change is None:
        return bound
    change = cast("Change", finding.change)
    if facts.trace.unprofiled_step_ns is None:
        priced = _as_profiled(change, rank, facts)
    else:
        priced = _without_profiler(change, rank, bound, facts)
    if priced is None:
        return bound
    return _at_most(priced, bound) if finding.claim.total_ns else priced


def _as_profiled(change: Change, rank: int, facts: Facts) -> Quantity | None:
    """The gain of a replay of the trace as it is; None where it cannot be replayed."""
    price = facts(pricers)[rank].price(change)
    return _quantity(price.gain_ns, price.low_ns, price.high_ns) if price.replayed else None


def _without_profiler(change: Change, rank: int, bound: Quantity, facts: Facts) -> Quantity | None:
    """The gain of a replay brought to the step without a profiler; None where the trace cannot be replayed."""
    pricer, step_ns = facts(calibrated_pricers)[rank], facts.trace.unprofiled_step_ns or 0.0
    price = pricer.price(change)
    if not price.replayed:
        return None
    scale = _unprofiled_share(pricer, facts)
    low, high = price.low_ns * scale, price.high_ns * scale
    if change.touches is Touches.DEVICE:  # the device is not slowed, but a slowed host may hide what it gains
        profiled = facts(pricers)[rank].price(change)
        low, high = min(low, profiled.low_ns), max(high, profiled.high_ns)
    if price.refused is not None:  # mostly profiling: nothing of it is sure, the bound is all that is known
        low, high = 0.0, max(high, (bound.high or bound.value) * NS_PER_MS)
    return _quantity(*(min(part, step_ns) for part in (price.gain_ns * scale, low, high)))


def _unprofiled_share(pricer: pricing.Pricer, facts: Facts) -> float:
    """The step without a profiler over the one that is replayed; 1 where it is not known."""
    step_ns = facts.trace.unprofiled_step_ns
    return 1.0 if step_ns is None or not pricer.step_ns else step_ns / pricer.step_ns


def claimed_ms_per_step(claim: Claim, facts: Facts) -> float:
    """Claimed time within the steady steps, averaged over them, on the device where it is largest."""
    return largest_per_step_ns(facts.trace, claim.intervals) / NS_PER_MS


def shared(ranked: Iterable[tuple[Card, Finding]], facts: Facts, step_ms: float | None) -> list[tuple[Card, Finding]]:
    """Let findings that claim the same device time share it: each keeps what those before it leave.

    Their values together never exceed the step.
    """
    left_ms = step_ms
    taken: dict[tuple[int, int], Intervals] = {}
    priced = []
    for card, finding in ranked:
        left = {key: part - taken.get(key, Intervals.none()) for key, part in finding.claim.intervals.items()}
        whole = claimed_ms_per_step(finding.claim, facts)
        share = claimed_ms_per_step(Claim(left), facts) / whole if whole > 0 else 1.0
        for key, part in finding.claim.intervals.items():
            taken[key] = taken.get(key, Intervals.none()) | part
        worth = _scaled(finding.recoverable, share) if finding.recoverable else None
        if worth is not None and left_ms is not None and worth.unit == "ms":
            worth = replace(worth, value=min(worth.value, left_ms), low=min(worth.low or 0.0, left_ms))
            left_ms -= worth.value
        priced.append((card, replace(finding, recoverable=worth)))
    return priced


def _quantity(gain_ns: float, low_ns: float, high_ns: float) -> Quantity:
    return Quantity(
        max(gain_ns, 0.0) / NS_PER_MS, "ms", low=max(low_ns, 0.0) / NS_PER_MS, high=max(high_ns, 0.0) / NS_PER_MS
    )


def _at_most(worth: Quantity, bound: Quantity) -> Quantity:
    """A change may win more than the finding claims, such as time of another finding: that part is not this one's.

    `high` is left as it is: the replay says that as much is possible.
    """
    most = bound.high if bound.high is not None else bound.value
    return Quantity(min(worth.value, most), worth.unit, low=min(worth.low or 0.0, most), high=worth.high)


def _scaled(worth: Quantity, share: float) -> Quantity:
    low, high = worth.low, worth.high
    return Quantity(
        worth.value * share,
        worth.unit,
        low=None if low is None else low * share,
        high=None if high is None else high * share,
    )
