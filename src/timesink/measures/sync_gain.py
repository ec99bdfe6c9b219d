"""What the blocking waits of a rank cost: the idle time behind drains, and what a replay without the waits wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timesink.measures.idle_blame import idle_blame, intervals_of
from timesink.measures.memo import remembered
from timesink.measures.per_step import per_step_ns
from timesink.measures.what_if import pricers
from timesink.model.trace import Trace
from timesink.whatif.changes.host import RemoveSyncs


@dataclass(frozen=True, slots=True)
class SyncGain:
    """`drained_ns` is the idle time per step behind drains (largest device), `gain_ns` the replayed gain per step.

    `gain_ns` is None where the trace cannot be replayed.
    """

    drained_ns: float
    gain_ns: float | None

    @property
    def effective(self) -> bool:
        """Whether removing the waits wins most of the idle time behind them: then the waits are the root of it, and
        what the host does in the restarts is their symptom."""
        return self.gain_ns is not None and 2 * self.gain_ns > self.drained_ns


@remembered
def sync_gain(trace: Trace) -> Mapping[int, SyncGain]:
    """Per rank with drains in its steady steps."""
    drained = intervals_of(idle_blame(trace).drained())
    worst: dict[int, float] = {}
    for (rank, device), part in drained.items():
        worst[rank] = max(worst.get(rank, 0.0), per_step_ns(trace, (rank, device), part))
    found = {}
    for rank, drained_ns in sorted(worst.items()):
        pricer = pricers(trace).get(rank)
        priced = pricer.price(RemoveSyncs()) if pricer is not None and drained_ns > 0 else None
        gain = None if priced is None or priced.refused is not None else priced.gain_ns
        found[rank] = SyncGain(drained_ns, gain)
    return found
