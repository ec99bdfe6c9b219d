"""The rungs of a plan that were made, each beside what was foretold of it; and the one that comes next."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.diagnosis.plan.joint import WORTH
from timesink.model.record import dataclass
from timesink.units import NS_PER_MS
from timesink.views.page import Field, Fields, Sheet, sheet_of


@dataclass(frozen=True, slots=True)
class Climbed:
    """One rung: the step before it, what was foretold of the step after it, and what was measured, in ms; None where it
    was not made yet."""

    number: int
    change: str
    before_ms: float
    low_ms: float
    foretold_ms: float
    high_ms: float
    measured_ms: float | None

    @property
    def outcome(self) -> str:
        """Whether the measured step lies where it was foretold, or within `WORTH` of it: as far as single runs tell."""
        if self.measured_ms is None:
            return "next"
        room_ms = WORTH.default * self.before_ms
        if self.measured_ms >= self.before_ms - room_ms and self.foretold_ms < self.before_ms - room_ms:
            return "won nothing"
        if self.measured_ms > self.high_ms + room_ms:
            return "less than foretold"
        return "more than foretold" if self.measured_ms < self.low_ms - room_ms else "as foretold"


_RUNGS: Fields[Climbed] = (
    (Field("rung", "rung", unit="1"), lambda one: one.number),
    Field("change", "change", is_name=True),
    (Field("before_ns", "step", unit="ns"), lambda one: one.before_ms * NS_PER_MS),
    (Field("foretold_ns", "foretold", unit="ns"), lambda one: one.foretold_ms * NS_PER_MS),
    (Field("foretold_low_ns", "low", unit="ns"), lambda one: one.low_ms * NS_PER_MS),
    (Field("foretold_high_ns", "high", unit="ns"), lambda one: one.high_ms * NS_PER_MS),
    (
        Field("measured_ns", "measured", unit="ns"),
        lambda one: None if one.measured_ms is None else one.measured_ms * NS_PER_MS,
    ),
    Field("outcome", "outcome"),
)


def climbed_sheet(rungs: Sequence[Climbed]) -> Sheet:
    """The rungs as a sheet."""
    note = "one run each: `timesink verify --ledger RUNG` runs both sides in turns and gives a verdict"
    return sheet_of("climbed", "Rungs made, and the next", rungs, _RUNGS, note if len(rungs) > 1 else "")
