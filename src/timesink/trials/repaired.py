"""What `timesink fix` made of a program: plain records of its edits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from timesink.trials.records import Foretold, Receipt
from timesink.verify.outcomes import Effect

Decided = Literal["kept", "taken back", "offered"]


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of one edit at one line. `why` is the reason of what was decided; `diff` is as `patch -p1` takes it.

    Of one that was run: milliseconds a step before it and after it, the effect with its interval, the receipt, and of
    one that is kept its commit.
    """

    fix: str
    where: str
    decided: Decided
    why: str
    diff: str
    foretold: Foretold | None = None
    before_ms: float | None = None
    after_ms: float | None = None
    effect: Effect | None = None
    pairs: int = 0
    receipt: Receipt | None = None
    commit: str = ""


@dataclass(frozen=True, slots=True)
class RepairAnswer:
    """All that was made of a program: its edits in order, and its step before the first and after the last."""

    base_ms: float
    after_ms: float
    repairs: tuple[Repair, ...]
    ended: str
    seconds: float

    @property
    def kept(self) -> tuple[Repair, ...]:
        """The edits that hold."""
        return tuple(repair for repair in self.repairs if repair.decided == "kept")
