"""What to change, in which order, and where it ends: changes that people make, priced together.

Here: what sets of fixes win together, by one replay of all, whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.gains import at_most, beyond_error, in_order, scaled
from timesink.diagnosis.plan.candidate import Candidate, Chosen
from timesink.diagnosis.pricing import (
    claimed_ms_per_step,
    expected_pricer,
    likely_ms,
    most_claimed_ms,
    price,
    price_change,
)
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Claim, Finding, Quantity
from timesink.fixes.measured import MINDED, MeasuredPrices
from timesink.knowledge.assumptions import replay as assumed
from timesink.measures.kernels.attainable import attainable
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps import steps
from timesink.measures.timeline import of_device
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.units import NS_PER_MS
from timesink.whatif import Case, Change, Touches
from timesink.whatif.changes.kernels import ShortenKernels, UnderAutocast, together
from timesink.whatif.edit import Together
from timesink.whatif.pricing import Pricer

WORTH: Final = Limit.ratio(
    0.02,
    "a change that wins less of the step is no step of a plan",
    "run-to-run deviation of step time is about 1 % on one GPU (docs/explanation/accuracy.md)",
)
MOSTLY: Final = Limit.ratio(
    0.5,
    "what kernels attain is said where more than half of their time has a known bound",
    "docs/rules/KRN109.md",
)
NOTHING: Final = Quantity(0.0, "ms", low=0.0, high=0.0)


class Joint:
    """What sets of changes win on a rank, in ms per step, by what was `measured` of them where anything was; each set
    is replayed once. `claimed` are changes of sets that no replay prices; `bounded_ms` is idle time of whose cause
    findings know no more than that it may go: what no finding asks for is not sure to win that."""

    def __init__(
        self,
        trace: Trace,
        rank: int,
        step_ms: float,
        offered: Sequence[Candidate],
        measured: MeasuredPrices | None = None,
        bounded_ms: float = 0.0,
    ) -> None:
        self.trace, self.rank, self.step_ms, self.measured = trace, rank, step_ms, measured
        self.bounded_ms = bounded_ms
        self.offered = {candidate.fix.name: candidate for candidate in offered}
        self.claimed: Chosen = frozenset()
        self._known: dict[tuple[Chosen, bool], Quantity | None] = {}
        self._likely: dict[tuple[Chosen, bool], Quantity | None] = {}
        self._parts: dict[tuple[str, Chosen, bool], tuple[Change, ...]] = {}
        self._merged: dict[tuple[int, ...], ShortenKernels] = {}
        self._priced: dict[tuple[int, ...], Quantity | None] = {}

    def likely_ms(self, chosen: Iterable[str]) -> float:
        """The value of `gain` alone: of one replay, where `gain` takes one for each case and each cost of recording."""
        effective = self.effective(chosen)
        key = effective, self._eased(effective)
        if key not in self._known and key not in self._likely:
            self._likely[key] = self._replayed(*key, self._likely_of)
        worth = self._known[key] if key in self._known else self._likely[key]
        return 0.0 if worth is None else worth.value

    def gain(self, chosen: Iterable[str], eased: bool | None = None) -> Quantity | None:
        """What these changes win together; None where the trace cannot be replayed. Their order is of no account.

        `eased` says whether others have left the device less to do, where that is another than these among themselves.
        """
        effective = self.effective(chosen)
        key = effective, self._eased(effective) if eased is None else eased
        if key not in self._known:
            self._known[key] = self._replayed(*key, self._priced_of)
        return self._known[key]

    @cached_property
    def device(self) -> int:
        """The first device of the rank."""
        own = [device for rank, device in kernel_facts(self.trace).devices if rank == self.rank]
        return min(own, default=0)

    def _eased(self, effective: Chosen) -> bool:
        """Whether one of several changes leaves the device less to do for launches that come as before, or for more of
        them: then it loses by them."""
        others = [name for name in effective if not self.offered[name].fix.of_launches] if len(effective) > 1 else ()
        return any(abs(self.likely_ms({name})) >= WORTH.default * self.step_ms for name in others)

    def alone(self, name: str, least_ms: float) -> Quantity | None:
        """What one change wins, a bound where its finding has one; of one that wins or costs less than so much the
        value alone. None as in `gain`."""
        if self.pricer.unreplayable is None and abs(likely_ms := self.likely_ms({name})) < least_ms:
            return Quantity(likely_ms, "ms")
        gain, is_replayed = self.gain({name}), not self._as_one(self.parts({name}))[1]
        return beyond_error(gain, self.step_ms) if gain is not None and is_replayed else gain

    def effective(self, chosen: Iterable[str]) -> Chosen:
        """The changes without those that others of them make as well."""
        chosen = frozenset(chosen)
        return chosen - {other for one in chosen for other in self.offered[one].fix.subsumes}

    def _replayed(
        self, chosen: Chosen, eased: bool, worth_of: Callable[[Sequence[Change]], Quantity | None]
    ) -> Quantity | None:
        own = [candidate for name, candidate in self.offered.items() if name in chosen]  # in one order, always
        changes = self.parts(chosen, eased)
        unreplayed = [finding for candidate in own for finding in candidate.unreplayed(self.rank)]
        stated = {one.fix.name for one in own if one.unreplayed(self.rank) and not self._made(one, chosen, eased)}
        worth = worth_of(changes) if changes else NOTHING
        if stated and chosen - stated and worth is not None:  # as those without a claim win alone, no more
            worth = self._replayed(chosen - stated, eased, worth_of)
        if worth is None:  # then, as in a diagnosis, a gain is what its findings claim
            unreplayed = [finding for candidate in own for finding in candidate.on_rank(self.rank)]
            if not unreplayed:
                return None
            worth = NOTHING
            self.claimed |= chosen
        if unreplayed:
            others = [finding for candidate in own for _, finding in candidate.findings if finding not in unreplayed]
            apart, whole = (self._stated(unreplayed, beside) for beside in (others, ()))
            worth = in_order(max(_sum(worth, apart), whole, key=lambda gain: gain.value))
            room_ms = self._room_ms(changes, unreplayed)
            worth = at_most(worth, room_ms, room_ms)
        if len(own) == 1 and own[0].claims:
            worth = at_most(worth, most_claimed_ms(own[0].on_rank(self.rank), self.trace), self.step_ms)
        unasked = (part for one in own if not one.findings for part in self._made(one, chosen, eased))
        if self.bounded_ms and any(part.touches is Touches.HOST for part in unasked):
            worth = replace(worth, low=max((worth.low or 0.0) - self.bounded_ms, 0.0))
        return at_most(worth, self.step_ms, self.step_ms)

    def _room_ms(self, changes: Sequence[Change], unreplayed: Sequence[Finding]) -> float:
        """The most that is won where claims without a replay count: the idle time that is left beside the GPU's work
        after the changes, which a wait and a claim have in common, and the work of this rank that is claimed itself."""
        claims = _claimed(unreplayed).items()
        gone = [self._gone(device, part) for device, part in claims if device[0] == self.rank]
        return max(self.step_ms - self._busy_ms((*changes, *gone)), 0.0)

    def _gone(self, device: tuple[int, int], claimed: Intervals) -> Change:
        """The operations of a device that are mostly claimed then take no time; and, as steps of the replay begin at a
        launch, those beside the steps by whose name most within them is claimed."""
        windows = Intervals.of(steps(self.trace).windows.filter(of_device(device)))
        ops = self.trace.get(DEVICE_OPS).with_row_index("row").filter(of_device(device))
        start, end = (ops[name].to_numpy() for name in ("start_ns", "end_ns"))
        part, within = (pl.Series(every.covered_ns(start, end)) for every in (claimed, windows))
        told = ops.select("row", "name", whole=pl.Series(end - start), part=part, within=within)
        is_alike = 2 * pl.col("part").sum().over("name") > pl.col("within").sum().over("name")
        is_gone = (2 * pl.col("part") > pl.col("whole")) | ((pl.col("within") == 0) & is_alike)
        rows = told.filter(is_gone)["row"].cast(pl.Int64).to_numpy()
        return ShortenKernels(device, rows, tuple(np.zeros(rows.size) for _ in Case))

    def _busy_ms(self, changes: Sequence[Change], case: Case = Case.EXPECTED) -> float:
        """The GPU's work of a step after changes. No profiler makes it longer: in a step that was told it takes as long
        as it was recorded, or longer at a lower clock."""
        recorded_ns, told_ns = self.pricer.step_ns, self.step_ms * NS_PER_MS
        slower = min(max(told_ns / max(recorded_ns, 1.0), 1.0), assumed.SLOWEST_CLOCK.value)
        busy_ns = self.pricer.busy_after_ns(Together(tuple(changes)), case) if changes else self.pricer.busy_ns
        return slower * busy_ns / NS_PER_MS

    def least_ms(self, chosen: Iterable[str]) -> float:
        """The GPU's work that is left in a step where these changes do most: no step is shorter. Nothing is known of
        changes that no replay prices."""
        names = self.effective(chosen)
        if any(self.offered[name].unreplayed(self.rank) for name in names) or self.pricer.unreplayable:
            return 0.0
        return min(self._busy_ms(self.parts(names), Case.HOPEFUL), self.step_ms)

    def _priced_of(self, changes: Sequence[Change]) -> Quantity | None:
        """One price of all; where nothing but kernels gets shorter, their time."""
        alike = tuple(map(id, changes))  # `_parts` and findings keep them
        if alike not in self._priced:
            every, shorter = self._as_one(changes)
            replayed = None if shorter else price_change(every, self.rank, self.trace, signed=True)
            self._priced[alike] = self._by_time(shorter) if shorter else replayed and replayed.gain
        return self._priced[alike]

    def _likely_of(self, changes: Sequence[Change]) -> Quantity | None:
        """The value of the same."""
        every, shorter = self._as_one(changes)
        return self._by_time(shorter) if shorter else Quantity(likely_ms(every, self.rank, self.trace), "ms")

    def _as_one(self, changes: Sequence[Change]) -> tuple[Change, list[ShortenKernels]]:
        """All of them as one change; and all, where each only shortens kernels."""
        shorter = [c for c in changes if isinstance(c, ShortenKernels) and c.touches is Touches.DEVICE]
        every = (*self._by_device(shorter), *(change for change in changes if change.touches is not Touches.DEVICE))
        return every[0] if len(every) == 1 else Together(every), shorter if len(shorter) == len(changes) else []

    def _by_time(self, shorter: Sequence[ShortenKernels]) -> Quantity | None:
        """The kernel time that goes on the device that gains most; None where none goes."""
        priced = (price_change(part, self.rank, self.trace) for part in self._by_device(shorter))
        return max((one.gain for one in priced if one), key=lambda gain: gain.value, default=None)

    def _stated(self, findings: Iterable[Finding], beside: Iterable[Finding]) -> Quantity:
        """What rules state or claims bound, each time once, and none that findings `beside` them claim."""
        taken, total = _claimed(beside), NOTHING
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
        return expected_pricer(self.rank, self.trace)

    def parts(self, chosen: Iterable[str], eased: bool | None = None) -> list[Change]:
        """What these changes change, in one order whatever theirs is: casts last, at what launches cost by then."""
        effective = self.effective(chosen)
        eased = self._eased(effective) if eased is None else eased
        own = [candidate for name, candidate in self.offered.items() if name in effective]
        made = [part for one in own for part in self._made(one, effective, eased)]
        return sorted(made, key=lambda part: isinstance(part, UnderAutocast))

    def _made(self, one: Candidate, effective: Chosen, eased: bool) -> tuple[Change, ...]:
        """The parts of one of these changes: the same objects wherever what it minds is the same."""
        minded = effective.intersection(one.fix.minds if self.measured is None else (*one.fix.minds, *MINDED))
        key = one.fix.name, minded, eased
        if key not in self._parts:
            parts = one.parts(self.trace, self.rank, *key[1:])
            self._parts[key] = self.measured.applied(one.fix.name, parts, minded) if self.measured else parts
        return self._parts[key]

    def _by_device(self, changes: Sequence[ShortenKernels]) -> list[ShortenKernels]:
        """One change for the kernels of each device."""
        parts = []
        for device in sorted({change.device for change in changes}):
            own = [change for change in changes if change.device == device]
            key = tuple(map(id, own))
            if key not in self._merged:
                self._merged[key] = own[0] if len(own) == 1 else together(own)
            parts.append(self._merged[key])
        return parts

    def bound_by(self, chosen: Iterable[str]) -> str:
        """What most of the critical path consists of once these changes are made."""
        return self.pricer.bound_by(Together(tuple(self.parts(chosen))))

    def attained(self, chosen: Iterable[str]) -> float | None:
        """The share of the attainable bound that kernels reach: None where most of them have no known bound, or where
        changes make other kernels."""
        known = attainable(self.trace)
        if (known.covered_ratio or 0.0) < MOSTLY.default or not all(
            self.offered[name].fix.same_kernels for name in self.effective(chosen)
        ):
            return None
        return known.attained_ratio


def _claimed(findings: Iterable[Finding]) -> dict[tuple[int, int], Intervals]:
    taken: dict[tuple[int, int], Intervals] = {}
    for finding in findings:
        _take(finding.claim, taken)
    return taken


def _take(claim: Claim, taken: dict[tuple[int, int], Intervals]) -> None:
    for device, part in claim.intervals.items():
        taken[device] = taken.get(device, Intervals.none()) | part


def _sum(one: Quantity, other: Quantity) -> Quantity:
    if not other.value and not other.high:
        return one
    low, high = (one.low or 0.0) + (other.low or 0.0), one.most + other.most
    return Quantity(one.value + other.value, "ms", low, high)
