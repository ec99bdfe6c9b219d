"""What a finding is worth: milliseconds per step, as low / value / high.

Every price is a bound or a replay, never a guess. `bound_price` uses only the claim: the union of device intervals that
the fix could at most remove (a fix of host work gains at most the device's idle time; one of copies or communication
at most their exposed time). A replay of the finding's `change` takes its place where one exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import polars as pl

from timesink.findings import Card, Claim, Finding, Quantity
from timesink.measures.steps import steps
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals, Times
from timesink.rule import Facts
from timesink.units import NS_PER_MS

Pricer = Callable[[Finding, Facts], Quantity]


def bound_price(finding: Finding, facts: Facts) -> Quantity:
    """At most the claimed device time per step; at least nothing."""
    high = claimed_ms_per_step(finding.claim, facts)
    return Quantity(high, "ms", low=0.0, high=high)


def claimed_ms_per_step(claim: Claim, facts: Facts) -> float:
    """Claimed time within the steady steps, averaged over them, on the device where it is largest.

    Ranks of a synchronous job wait for each other, so the device with the most to gain bounds the job's gain. A trace
    without steps counts as one.
    """
    worth = [
        float(np.mean(part.covered_ns(*_windows(rank, device, facts))))
        for (rank, device), part in claim.intervals.items()
    ]
    return max(worth, default=0.0) / NS_PER_MS


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


def _windows(rank: int, device: int, facts: Facts) -> tuple[Times, Times]:
    windows = facts(steps).windows.filter((pl.col("rank") == rank) & (pl.col("device") == device))
    if windows.height:
        return windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy()
    line = facts(device_timeline)[rank, device]
    return np.array([line.span_start_ns]), np.array([line.span_end_ns])
