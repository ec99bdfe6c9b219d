"""The ladder of a program: changes one after another, each priced in the graph that those before it leave.

What several changes win together is one replay with all of them, whatever their order: a rung wins the difference
between two such replays. So the gains of rungs add up to that of all, which is at most the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from timesink.diagnosis import headline
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.candidates import OF_LAUNCHES, Candidate, Chosen, candidates, products_per_step
from timesink.diagnosis.plan.catalogue import PlannedChange
from timesink.diagnosis.pricing import TO_P90, at_most, claimed_ms_per_step, in_order, price, price_change, scaled
from timesink.diagnosis.verdicts import Claim, Diagnosis, Finding, Limit, Quantity
from timesink.knowledge.assumptions import fixes, replay
from timesink.measures.kernels.attainable import attainable
from timesink.measures.timeline.replay import calibrated_pricers, deflated_pricers, least_step_ns, pricers
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass, field
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text
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
NEARLY: Final = Limit(
    default=0.75,
    unit="ratio",
    why="a change that a cause asks for comes first where it wins this much of one that nothing or a symptom asks for",
    source="benchmarks/faults: broken_in_pieces, whose graph breaks win 0.76 of what a CUDA graph of the pieces does",
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
_GRAPHS: Final = ("cuda_graph", "compile_graph")
_NONE: Final = Quantity(0.0, "ms", low=0.0, high=0.0)


@dataclass(frozen=True, slots=True)
class Rung:
    """One change of a plan: the step before and after it, and what it wins of the step before it, in ms.

    `of_ms` is the step today, `cumulative_ms` what this change and those before it win of it. `findings` are the codes
    of the rules that ask for it: none where only the replay says that it wins. `where` is the place of the first:
    untrusted text. `bound_by` is what most of the critical path consists of then.
    """

    change: PlannedChange
    of_ms: float
    before_ms: float
    after: Quantity
    gain: Quantity
    cumulative_ms: float
    findings: tuple[str, ...] = ()
    where: str = ""
    bound_by: str = ""
    needs: tuple[str, ...] = ()
    costs: str = ""

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

    `floor_ms` is the step when all is won that any candidate may win, and `floor` says why the ladder ends. `left` is
    what the changes that are no rungs would still win. `refused` says why there is no ladder, if so; `unpriced` which
    changes have no price, and why.
    """

    step_ms: float | None
    rungs: tuple[Rung, ...] = ()
    singles: Mapping[str, Quantity] = field(default_factory=dict)
    left: Mapping[str, Quantity] = field(default_factory=dict)
    floor_ms: float = 0.0
    floor: str = ""
    refused: str = ""
    unpriced: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


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
        worth = self._of_changes(changes, chosen) if changes else _NONE
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
        best = max((worth.gain for worth in by_time if worth), key=lambda gain: gain.value, default=_NONE)
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
        if chosen & set(_GRAPHS):
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
            for device, part in finding.claim.intervals.items():
                taken[device] = taken.get(device, Intervals.none()) | part
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


def _climbed(joint: Joint, worth: float) -> Plan:
    least_ms = worth * joint.step_ms
    singles = {name: gain for name in joint.offered if (gain := joint.gain({name})) is not None}
    unpriced = tuple((name, "the trace cannot be replayed") for name in joint.offered if name not in singles)
    if unpriced and not any(gain.value for gain in singles.values()):
        return Plan(joint.step_ms, refused="its steps cannot be replayed, and a plan is replays", unpriced=unpriced)
    chosen: list[str] = []
    rungs: list[Rung] = []
    won = _NONE
    while True:
        rest = [name for name in singles if name not in chosen and _allowed(joint, name, chosen)]
        rest = [name for name in rest if not _waits_first(joint, name, chosen, least_ms)]
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
    said = _why_it_ends(joint, chosen, worth)
    return Plan(joint.step_ms, tuple(rungs), singles, left, floor_ms, said, "", unpriced, _notes(joint, rungs))


_MORE: Final = {
    "device": "the device bounds the step then{attained}: more takes another algorithm, better kernels or another GPU",
    "host": "the host bounds the step then: more takes less work on the host, or more work for the device per step",
}


def _why_it_ends(joint: Joint, chosen: Sequence[str], worth: float) -> str:
    attained = joint.attained(chosen)
    words = "" if attained is None else f", with kernels at {share_text(attained)} of what it can attain"
    more = _MORE.get(joint.bound_by(chosen), "").format(attained=words)
    end = f"nothing above {100 * worth:g} % of the step is left among what this capture shows"
    return f"{end}; {more}" if more else end


def _notes(joint: Joint, rungs: Sequence[Rung]) -> tuple[str, ...]:
    """What the prices leave out."""
    notes = []
    if any(not rung.findings for rung in rungs):
        notes.append("a change without findings rests on the replay alone: no rule asks for it in the program of today")
    hungry = [rung.id for rung in rungs if "memory of" in rung.costs or "memory for" in rung.costs]
    if hungry:
        notes.append(f"this capture does not say how much memory is free: not checked for {', '.join(hungry)}")
    return tuple(notes)


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


def _waits_first(joint: Joint, name: str, chosen: Sequence[str], least_ms: float) -> bool:
    """Whether it takes a graph of a step that still waits for the device, which no graph can hold."""
    if name not in _GRAPHS or "remove_sync" in chosen:
        return False
    waits = joint.gain({"remove_sync"})
    return waits is not None and waits.value >= least_ms


def _best(joint: Joint, gains: Mapping[str, Quantity], won: Quantity, least_ms: float) -> str | None:
    """The change that wins most; the lesser of two that make the same where the greater adds too little.

    What no finding asks for must win so much even where it wins least. Before it, and before what only mends a
    symptom, comes a change for a cause that wins nearly as much.
    """
    worthy = {name: gain.value - won.value for name, gain in gains.items() if gain.value - won.value >= least_ms}
    for name in list(worthy):
        if not joint.offered[name].findings and (_marginal(gains[name], won, joint.step_ms).low or 0.0) < least_ms:
            del worthy[name]
    if not worthy:
        return None
    best = min(worthy, key=lambda name: (-worthy[name], name))
    if not joint.offered[best].mends_a_cause:
        causes = [name for name in worthy if joint.offered[name].mends_a_cause]
        best = max([best, *causes], key=lambda name: worthy[name] * (1.0 if name == best else 1.0 / NEARLY.default))
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
    place = next((_place(finding) for _, finding in candidate.findings), "")
    waits = tuple(one for one in ("remove_sync",) if one in chosen and name in _GRAPHS)
    return Rung(
        candidate.change, joint.step_ms, before_ms, after, gain, now.value, codes, place, joint.bound_by(chosen),
        (*candidate.change.needs, *waits), candidate.change.costs,
    )  # fmt: skip


def _place(finding: Finding) -> str:
    """The line, else the operator or range, that a finding names."""
    where = finding.where
    line = f"{where.file}:{where.line}" if where.file and where.line else ""
    return line or where.op or where.range or ""


def _marginal(now: Quantity, won: Quantity, before_ms: float) -> Quantity:
    """What is won beyond what was: expected, where all of both win least and most, and as far off as replays are."""
    value = min(max(now.value - won.value, 0.0), before_ms)
    ends = [(now.low or 0.0) - (won.low or 0.0), _high(now) - _high(won)]
    error_ms = TO_P90 * math.hypot(replay.MODEL_ERROR.value * value, replay.STEP_ERROR.value * before_ms)
    low, high = min(*ends, value - error_ms), max(*ends, value + error_ms)
    return Quantity(value, "ms", max(low, 0.0), min(high, before_ms))


def _high(gain: Quantity) -> float:
    return gain.value if gain.high is None else gain.high


def _sum(one: Quantity, other: Quantity) -> Quantity:
    if not other.value and not other.high:
        return one
    low, high = (one.low or 0.0) + (other.low or 0.0), _high(one) + _high(other)
    return Quantity(one.value + other.value, "ms", low, high)
