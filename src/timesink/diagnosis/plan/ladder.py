"""The ladder of a program: changes one after another, each priced in the graph that those before it leave.

What several changes win together is one replay with all of them, whatever their order: a rung wins the difference
between two such replays. So the gains of rungs add up to that of all, which is at most the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from timesink.diagnosis import headline
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.candidates import Candidate, Chosen, candidates
from timesink.diagnosis.plan.catalogue import PlannedChange
from timesink.diagnosis.pricing import at_most, claimed_ms_per_step, in_order, price, price_change, scaled
from timesink.diagnosis.verdicts import Claim, Diagnosis, Finding, Limit, Quantity
from timesink.measures.timeline.replay import calibrated_pricers, deflated_pricers, least_step_ns, pricers
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass, field
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
_NONE: Final = Quantity(0.0, "ms", low=0.0, high=0.0)


@dataclass(frozen=True, slots=True)
class Rung:
    """One change of a plan: the step before it and after it, in ms, and what it wins of the step before it."""

    change: PlannedChange
    before_ms: float
    after: Quantity
    gain: Quantity
    cumulative_ms: float
    findings: tuple[str, ...]
    where: str = ""
    bound_by: str = ""

    @property
    def id(self) -> str:
        """The id of the change."""
        return self.change.id

    @property
    def after_ms(self) -> float:
        """The step after it."""
        return self.after.value


@dataclass(frozen=True, slots=True)
class Plan:
    """The rungs in order; the price of every candidate alone; and where it ends.

    `floor_ms` is the step when everything that any candidate may win is won. `refused` says why there is no ladder, if
    so; `unpriced` which changes have no price, and why.
    """

    step_ms: float | None
    rungs: tuple[Rung, ...] = ()
    singles: dict[str, Quantity] = field(default_factory=dict)
    left: dict[str, Quantity] = field(default_factory=dict)
    floor_ms: float = 0.0
    floor: str = ""
    refused: str = ""
    unpriced: tuple[tuple[str, str], ...] = ()


def plan(trace: Trace, diagnosis: Diagnosis | None = None, worth: float = WORTH.default) -> Plan:
    """The ladder of a trace: changes that win `worth` of the step or more, best first."""
    diagnosis = diagnosis or diagnose(trace)
    step_ms = headline.step_ms(trace)
    refused = _refused(trace, diagnosis)
    if refused or step_ms is None:
        return Plan(step_ms, refused=refused or "the trace has no device work")
    rank = _rank(trace, diagnosis)
    joint = Joint(trace, rank, step_ms, candidates(trace, diagnosis))
    return _climbed(joint, worth)


def _refused(trace: Trace, diagnosis: Diagnosis) -> str:
    barred = headline.not_diagnosable(trace)
    if barred is not None:
        return barred.why
    if diagnosis.partial:
        return f"only part of the capture could be read: {diagnosis.partial}"
    if not pricers(trace):
        return "no complete step was found, and a plan is per step"
    return ""


def _rank(trace: Trace, diagnosis: Diagnosis) -> int:
    """The rank of the first finding that can be replayed; else the first rank."""
    ranks = pricers(trace)
    return next((rank for _, f in diagnosis.findings if (rank := f.where.rank or 0) in ranks), min(ranks))


class Joint:
    """What sets of changes win on a rank, in ms per step; each set is replayed once."""

    def __init__(self, trace: Trace, rank: int, step_ms: float, offered: Sequence[Candidate]) -> None:
        self.trace, self.rank, self.step_ms = trace, rank, step_ms
        self.least_ms = min((least_step_ns(trace) or step_ms * NS_PER_MS) / NS_PER_MS, step_ms)
        self.offered = {candidate.id: candidate for candidate in offered}
        self._known: dict[Chosen, Quantity | None] = {}

    def gain(self, chosen: Iterable[str]) -> Quantity | None:
        """What these changes win together; None where the trace cannot be replayed. Their order is of no account."""
        effective = self.effective(chosen)
        if effective not in self._known:
            self._known[effective] = self._replayed(effective)
        return self._known[effective]

    def effective(self, chosen: Iterable[str]) -> Chosen:
        """The changes without those that others of them make as well."""
        chosen = frozenset(chosen)
        return chosen - {other for one in chosen for other in self.offered[one].change.subsumes}

    def _replayed(self, chosen: Chosen) -> Quantity | None:
        own = [candidate for name, candidate in self.offered.items() if name in chosen]  # in one order, always
        changes = [part for candidate in own for part in candidate.parts(self.trace, self.rank, chosen)]
        worth = self._of_changes(changes) if changes else _NONE
        if worth is None:
            return None
        unreplayed = [finding for candidate in own for finding in candidate.unreplayed(self.rank)]
        worth = _sum(worth, self._stated(unreplayed))
        return at_most(in_order(worth), self.least_ms, self.step_ms)

    def _of_changes(self, changes: Sequence[Change]) -> Quantity | None:
        """One replay of all; at least the kernel time that goes, where some of them only make kernels shorter."""
        shorter = [c for c in changes if isinstance(c, ShortenKernels) and c.touches is Touches.DEVICE]
        by_time = [price_change(part, self.rank, self.trace) for part in _by_device(shorter)]
        best = max((worth.gain for worth in by_time if worth), key=lambda gain: gain.value, default=_NONE)
        if len(shorter) == len(changes):
            return best
        every = changes[0] if len(changes) == 1 else Together(tuple(changes))
        replayed = price_change(every, self.rank, self.trace)
        if replayed is None:
            return None
        gain = replayed.gain
        if not shorter or gain.value >= best.value:
            return gain
        return best

    def _stated(self, findings: Iterable[Finding]) -> Quantity:
        """What rules state or claims bound, each time once."""
        taken: dict[tuple[int, int], Intervals] = {}
        total = _NONE
        for finding in findings:
            claimed = finding.claim.intervals
            left = {device: part - taken.get(device, Intervals.none()) for device, part in claimed.items()}
            whole_ms = claimed_ms_per_step(finding.claim, self.trace)
            share = claimed_ms_per_step(Claim(left), self.trace) / whole_ms if whole_ms else 1.0
            for device, part in claimed.items():
                taken[device] = taken.get(device, Intervals.none()) | part
            total = _sum(total, scaled(in_order(price(finding, self.trace).gain), share))
        return total

    @property
    def pricer(self) -> Pricer:
        """What replays the expected case."""
        if self.trace.unprofiled_step_ns is not None:
            return calibrated_pricers(self.trace)[self.rank]
        return deflated_pricers(self.trace)[self.rank][Case.EXPECTED.value]

    def bound_by(self, chosen: Iterable[str]) -> str:
        """What most of the critical path consists of once these changes are made."""
        effective = self.effective(chosen)
        own = [candidate for name, candidate in self.offered.items() if name in effective]
        parts = tuple(part for candidate in own for part in candidate.parts(self.trace, self.rank, effective))
        shares = self.pricer.next_path(Together(parts))
        totals: dict[str, float] = {}
        for share in shares:
            totals[share.kind] = totals.get(share.kind, 0.0) + share.ns
        return max(totals, key=lambda kind: totals[kind], default="")


def _by_device(changes: Sequence[ShortenKernels]) -> list[ShortenKernels]:
    devices = sorted({change.device for change in changes})
    parts = ([change for change in changes if change.device == device] for device in devices)
    return [own[0] if len(own) == 1 else together(own, own[0].label) for own in parts]


def _climbed(joint: Joint, worth: float) -> Plan:
    least_ms = worth * joint.step_ms
    singles = {name: gain for name in joint.offered if (gain := joint.gain({name})) is not None}
    unpriced = tuple((name, "the trace cannot be replayed") for name in joint.offered if name not in singles)
    chosen: list[str] = []
    rungs: list[Rung] = []
    won = _NONE
    while True:
        rest = [name for name in singles if name not in chosen and _allowed(joint, name, chosen)]
        gains = {name: gain for name in rest if (gain := joint.gain({*chosen, name})) is not None}
        best = _best(joint, gains, won, least_ms)
        if best is None:
            break
        rungs.append(_rung(joint, best, won, gains[best], [*chosen, best]))
        chosen.append(best)
        won = gains[best]
    left = {name: _marginal(gain, won, joint.step_ms) for name, gain in gains.items() if gain.value > won.value}
    every = joint.gain(_compatible(joint, [*chosen, *rest]))
    after_ms = rungs[-1].after.low if rungs and rungs[-1].after.low is not None else joint.step_ms
    floor_ms = min(after_ms, max(joint.step_ms - ((every and every.high) or 0.0), 0.0))
    said = f"nothing above {worth:.0%} of the step is left".replace("%", " %")
    return Plan(joint.step_ms, tuple(rungs), singles, left, floor_ms, said, unpriced=unpriced)


def _compatible(joint: Joint, names: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for name in names:
        if _allowed(joint, name, kept):
            kept.append(name)
    return kept


def _allowed(joint: Joint, name: str, chosen: Sequence[str]) -> bool:
    """Whether a change can still be made: no other of the plan makes it, excludes it or lacks it."""
    change = joint.offered[name].change
    others = [joint.offered[other].change for other in chosen]
    made = any(name in other.subsumes or name in other.excludes for other in others)
    return not made and not set(change.excludes) & set(chosen) and set(change.needs) <= set(chosen)


def _best(joint: Joint, gains: dict[str, Quantity], won: Quantity, least_ms: float) -> str | None:
    """The change that wins most; the lesser of two that make the same where the greater adds too little."""
    worthy = {name: gain.value for name, gain in gains.items() if gain.value - won.value >= least_ms}
    if not worthy:
        return None
    best = min(worthy, key=lambda name: (-worthy[name], name))
    for lesser in joint.offered[best].change.subsumes:
        if lesser in worthy and worthy[best] - worthy[lesser] < least_ms:
            return lesser
    return best


def _rung(joint: Joint, name: str, won: Quantity, now: Quantity, chosen: Sequence[str]) -> Rung:
    before_ms = joint.step_ms - won.value
    gain = _marginal(now, won, before_ms) if won.value else now
    after = Quantity(before_ms - gain.value, "ms", before_ms - _high(gain), before_ms - (gain.low or 0.0))
    candidate = joint.offered[name]
    codes = tuple(sorted({card.code for card, _ in candidate.findings}))
    return Rung(candidate.change, before_ms, after, gain, now.value, codes, bound_by=joint.bound_by(chosen))


def _marginal(now: Quantity, won: Quantity, before_ms: float) -> Quantity:
    """What is won beyond what was: expected, and where all of both win least and most."""
    ends = [(now.low or 0.0) - (won.low or 0.0), _high(now) - _high(won), now.value - won.value]
    low, high = (min(max(end, 0.0), before_ms) for end in (min(ends), max(ends)))
    return Quantity(min(max(now.value - won.value, 0.0), before_ms), "ms", low, high)


def _high(gain: Quantity) -> float:
    return gain.value if gain.high is None else gain.high


def _sum(one: Quantity, other: Quantity) -> Quantity:
    if not other.value and not other.high:
        return one
    low, high = (one.low or 0.0) + (other.low or 0.0), _high(one) + _high(other)
    return Quantity(one.value + other.value, "ms", low, high)
