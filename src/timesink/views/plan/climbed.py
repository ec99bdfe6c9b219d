"""The rungs of a plan that were made, each beside what was foretold of it; and the one that comes next."""

from __future__ import annotations

from collections.abc import Sequence

from timesink.diagnosis.plan.joint import WORTH
from timesink.model.record import dataclass
from timesink.units import NS_PER_MS
from timesink.views.page import Sheet, sheet_of


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


_RUNGS = (
    "rung, change [name], before_ns: step, foretold_ns: foretold, foretold_low_ns: low, foretold_high_ns: high, "
    "measured_ns: measured, outcome [text]"
)


def climbed_sheet(rungs: Sequence[Climbed]) -> Sheet:
    """The rungs as a sheet."""
    note = "one run each: `timesink verify --ledger RUNG` runs both sides in turns and gives a verdict"
    rows = []
    for one in rungs:
        times_ms = (one.before_ms, one.foretold_ms, one.low_ms, one.high_ms, one.measured_ms)
        times_ns = (None if time_ms is None else time_ms * NS_PER_MS for time_ms in times_ms)
        rows.append((one.number, one.change, *times_ns, one.outcome))
    return sheet_of("climbed", "Rungs made, and the next", rows, _RUNGS, note if len(rungs) > 1 else "")
