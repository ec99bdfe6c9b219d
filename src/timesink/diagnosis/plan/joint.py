"""What sets of changes win together: one replay of all of them, whatever their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from timesink.diagnosis.plan.candidates import OF_LAUNCHES, Candidate, Chosen, products_per_step
from timesink.diagnosis.pricing import at_most, claimed_ms_per_step, in_order, price, price_change, scaled
from timesink.diagnosis.verdicts import Claim, Finding, Limit, Quantity
from timesink.knowledge.assumptions import fixes
from timesink.measures.kernels.attainable import attainable
from timesink.measures.timeline.replay import calibrated_pricers, deflated_pricers, least_step_ns
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS
from timesink.whatif.change import Case, Change, Touches
from timesink.whatif.changes import Together
from timesink.whatif.changes.kernels import ShortenKernels, together
from timesink.whatif.pricing import Pricer

WORTH: Final = Limit(
    default=0.02,
    unit="ratio",
    why="a change that wins less of the step is no rung of a plan",
    source="run-to-run deviation of step time is about 1 % on one GPU (docs/explanation/accuracy.md)",
)
MOSTLY: Final = Limit(
    default=0.5,
    unit="ratio",
    why="what kernels attain is said where more than half of their time has a known bound",
    source="docs/rules/KRN109.md",
)
_SAME_KERNELS: Final = frozenset({
    "cuda_graph", "remove_sync", "loader_workers", "pin_memory", "prefetch", "no_sync", "buckets", "drop_debugging",
})  # fmt: skip
GRAPHS: Final = ("cuda_graph", "compile_graph")
NOTHING: Final = Quantity(0.0, "ms", low=0.0, high=0.0)


class Joint:
    """What sets of changes win on a rank, in ms per step; each set is replayed once."""

    def __init__(self, trace: Trace, rank: int, step_ms: float, offered: Sequence[Candidate]) -> None:
        self.trace, self.rank, self.step_ms = trace, rank, step_ms
        self.least_ms = min((least_step_ns(trace) or step_ms * NS_PER_MS) / NS_PER_MS, step_ms)
        self.offered = {candidate.id: candidate for candidate in offered}
        self._known: dict[tuple[Chosen, bool], Quantity | None] = {}

    def gain(self, chosen: Iterable[str], eased: bool | None = None) -> Quantity | None:
        """What these changes win together; None where the trace cannot be replayed. Their order is of no account.

        `eased` says whether others have left the device less to do, where that is another than these among themselves.
        """
        effective = self.effective(chosen)
        key = effective, self._eased(effective) if eased is None else eased
        if key not in self._known:
            self._known[key] = self._replayed(*key)
        return self._known[key]

    def _eased(self, effective: Chosen) -> bool:
        """Whether one of several changes leaves the device less to do for launches that come as before."""
        others = effective - OF_LAUNCHES if len(effective) > 1 else ()
        least_ms = WORTH.default * self.step_ms
        return any((gain := self.gain({name})) is not None and gain.value >= least_ms for name in others)

    def effective(self, chosen: Iterable[str]) -> Chosen:
        """The changes without those that others of them make as well."""
        chosen = frozenset(chosen)
        return chosen - {other for one in chosen for other in self.offered[one].change.subsumes}

    def _replayed(self, chosen: Chosen, eased: bool) -> Quantity | None:
        own = [candidate for name, candidate in self.offered.items() if name in chosen]  # in one order, always
        changes = self.parts(chosen, eased)
        worth = self._of_changes(changes, chosen) if changes else NOTHING
        if worth is None:
            return None
        unreplayed = [finding for candidate in own for finding in candidate.unreplayed(self.rank)]
        others = [finding for candidate in own for _, finding in candidate.findings if finding not in unreplayed]
        apart, whole = (self._stated(unreplayed, beside) for beside in (others, ()))
        worth = in_order(max(_sum(worth, apart), whole, key=lambda gain: gain.value))
        return at_most(self._as_claimed(worth, own, eased), self.least_ms, self.step_ms)

    def _as_claimed(self, worth: Quantity, own: Sequence[Candidate], eased: bool) -> Quantity:
        """No more than the findings of changes that do what findings propose claim, beside what the others win."""
        claimed = {one.id: ms for one in own if (ms := one.claimed_ms(self.trace, self.rank)) is not None}
        if not claimed:
            return worth
        if len(own) == 1:
            return at_most(worth, claimed[own[0].id], self.step_ms)
        rest = [one.id for one in own if one.id not in claimed]
        gains = [self.gain({name}) for name in claimed]
        if rest:  # beside the others: a graph leaves the host free for shorter kernels
            changes = self.parts(rest, eased)
            beside = self._of_changes(changes, frozenset(one.id for one in own)) if changes else None
            gains.append(max((g for g in (self.gain(rest, eased), beside) if g), key=lambda g: g.value, default=None))
        return at_most(worth, sum(gain.value for gain in gains if gain), self.step_ms)

    def _of_changes(self, changes: Sequence[Change], chosen: Chosen) -> Quantity | None:
        """One replay of all; at least the kernel time that goes, where some of them only make kernels shorter."""
        shorter = _by_device([c for c in changes if isinstance(c, ShortenKernels) and c.touches is Touches.DEVICE])
        by_time = [price_change(part, self.rank, self.trace) for part in shorter]
        best = max((worth.gain for worth in by_time if worth), key=lambda gain: gain.value, default=NOTHING)
        best = at_most(best, self._beside_host_ms(chosen), self.step_ms)
        others = [c for c in changes if not isinstance(c, ShortenKernels) or c.touches is not Touches.DEVICE]
        if not others:
            return best
        every = (*shorter, *others)
        replayed = price_change(every[0] if len(every) == 1 else Together(every), self.rank, self.trace)
        if replayed is None:
            return None
        return max(replayed.gain, best, key=lambda gain: gain.value)

    def _beside_host_ms(self, chosen: Chosen) -> float:
        """What shorter kernels can win: the host needs its own time all the same, by the least that is known of it, and
        with autocast that of the casts."""
        if chosen & set(GRAPHS):
            return self.step_ms
        hosts = [deflated_pricers(self.trace)[self.rank][Case.HOPEFUL.value].host_ns]
        if self.trace.unprofiled_step_ns is not None:
            pricer = calibrated_pricers(self.trace)[self.rank]
            hosts.append(pricer.host_ns * self.trace.unprofiled_step_ns / max(pricer.step_ns, 1.0))
        host_ms = min(hosts) / NS_PER_MS
        if "bf16" in chosen and not chosen & OF_LAUNCHES:
            host_ms += products_per_step(self.trace, self.rank) * fixes.AUTOCAST_US.ns / NS_PER_MS
        return max(self.step_ms - host_ms, 0.0)

    def _stated(self, findings: Iterable[Finding], beside: Iterable[Finding]) -> Quantity:
        """What rules state or claims bound, each time once, and none that findings `beside` them claim."""
        taken: dict[tuple[int, int], Intervals] = {}
        for finding in beside:
            _take(finding.claim, taken)
        total = NOTHING
        for finding in findings:
            parts = finding.claim.intervals.items()
            left = {device: part - taken.get(device, Intervals.none()) for device, part in parts}
            whole_ms = claimed_ms_per_step(finding.claim, self.trace)
            share = claimed_ms_per_step(Claim(left), self.trace) / whole_ms if whole_ms else 1.0
            _take(finding.claim, taken)
            total = _sum(total, scaled(in_order(price(finding, self.trace).gain), share))
        return total

    @property
    def pricer(self) -> Pricer:
        """What replays the expected case."""
        if self.trace.unprofiled_step_ns is not None:
            return calibrated_pricers(self.trace)[self.rank]
        return deflated_pricers(self.trace)[self.rank][Case.EXPECTED.value]

    def parts(self, chosen: Iterable[str], eased: bool | None = None) -> list[Change]:
        """What these changes change, in one order whatever theirs is."""
        effective = self.effective(chosen)
        eased = self._eased(effective) if eased is None else eased
        own = [candidate for name, candidate in self.offered.items() if name in effective]
        return [part for one in own for part in one.parts(self.trace, self.rank, effective, eased)]

    def bound_by(self, chosen: Iterable[str]) -> str:
        """What most of the critical path consists of once these changes are made."""
        totals: dict[str, float] = {}
        for share in self.pricer.next_path(Together(tuple(self.parts(chosen)))):
            totals[share.kind] = totals.get(share.kind, 0.0) + share.ns
        return max(totals, key=lambda kind: totals[kind], default="")

    def attained(self, chosen: Iterable[str]) -> float | None:
        """The share of the attainable bound that kernels reach: None where most of them have no known bound, or where
        changes make other kernels."""
        known = attainable(self.trace)
        if (known.covered_ratio or 0.0) < MOSTLY.default or not self.effective(chosen) <= _SAME_KERNELS:
            return None
        return known.attained_ratio


def _by_device(changes: Sequence[ShortenKernels]) -> list[ShortenKernels]:
    devices = sorted({change.device for change in changes})
    parts = ([change for change in changes if change.device == device] for device in devices)
    return [own[0] if len(own) == 1 else together(own, own[0].label) for own in parts]


def _take(claim: Claim, taken: dict[tuple[int, int], Intervals]) -> None:
    for device, part in claim.intervals.items():
        taken[device] = taken.get(device, Intervals.none()) | part


def _sum(one: Quantity, other: Quantity) -> Quantity:
    if not other.value and not other.high:
        return one
    low, high = (one.low or 0.0) + (other.low or 0.0), one.most + other.most
    return Quantity(one.value + other.value, "ms", low, high)
