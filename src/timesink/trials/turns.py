"""Runs of a program with files as before and after an edit, in turns, and what they say of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from timesink.capture.errors import CaptureError, failure
from timesink.errors import UsageError
from timesink.verify.experiment import ExperimentPlan, judge, verify
from timesink.verify.hindrances import Pair
from timesink.verify.limits import FEWEST_PAIRS
from timesink.verify.outcomes import ChangeVerdict, RunRow
from timesink.verify.runs import SIDES, RunSteps, Side, summarise

if TYPE_CHECKING:
    from timesink.trials.records import Repair, TrialResult
    from timesink.trials.run import ProgramRuns

PLAN: Final = ExperimentPlan(looks=(4, 10, 20), warm_up_pairs=0)


@dataclass(slots=True)
class Shown:
    """Runs of the program with files of `folder` as before or after a change (None: without the file), until that
    time. The first one with it is recorded into `capture`, if there is one. `rows` are those in turns; from `pause_s`
    on no more are begun than a first look needs. Both of a pair run `side_by_side` while all runs of them may; the last
    one with the change is `changed`."""

    runs: ProgramRuns
    folder: Path
    files: Mapping[Path, tuple[bytes | None, bytes | None]]
    until_s: float
    capture: Path | None = None
    rows: list[RunRow] = field(default_factory=list)
    pause_s: float = inf
    side_by_side: bool = False
    changed: TrialResult | None = None

    def write(self, side: Side) -> None:
        """Make the files what they are on that side. `UsageError` for one that lies outside of the folder."""
        if outside := [file for file in self.files if not file.resolve().is_relative_to(self.folder.resolve())]:
            raise UsageError(f"{outside[0]} leads out of the copy", remedy="take the link away: it cannot be edited")
        for file, texts in self.files.items():
            file.unlink(missing_ok=True)
            if (text := texts[side == "after"]) is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text)

    def run(self, side: Side, capture: Path | None = None) -> TrialResult:
        """One process. `CaptureError` where no step of it could be timed, or the time is up."""
        if time.monotonic() > self.until_s:
            raise failure("the time was up before it was decided", "give more with --budget")
        self.write(side)
        if capture is not None:
            capture.unlink(missing_ok=True)
        return self._note(side, self.runs.fixed(capture=capture))

    def _note(self, side: Side, result: TrialResult) -> TrialResult:
        self.side_by_side &= result.may_stand_beside
        self.changed = result if side == "after" else self.changed
        return result

    def launch(self, side: Side, number: int) -> RunRow:
        """The same as `verify` asks for it, which counts from 1; what was run before is told again."""
        if number > len(self.rows):
            if number > 2 * PLAN.looks[0] and number % 2 and time.monotonic() > self.pause_s:
                raise Paused
            made = self._both(side) if number % 2 and self.side_by_side else {side: self.run(side)}
            for one, result in made.items():
                steps = RunSteps(tuple(ms / 1e3 for ms in result.steps_ms))
                self.rows.append(summarise(steps, one, len(self.rows) + 1))
        return self.rows[number - 1]

    def _both(self, first: Side) -> dict[Side, TrialResult]:
        """A pair side by side, `first` begun first; where one fails there, whatever the reason, alone."""
        other = SIDES[first == SIDES[0]]
        self.write(first)
        try:
            results = self.runs.side_by_side(lambda: self.write(other))
        except CaptureError:
            if is_over(self.until_s):
                raise
            self.side_by_side = False
            return {first: self.run(first)}
        return {side: self._note(side, result) for side, result in zip((first, other), results, strict=True)}

    def pairs(self) -> tuple[Pair, ...]:
        """The runs in turns that have both sides, before and after."""
        both = zip(self.rows[::2], self.rows[1::2], strict=False)
        return tuple((one, other) if one.side == SIDES[0] else (other, one) for one, other in both)

    def verdict(self) -> tuple[tuple[Pair, ...], ChangeVerdict]:
        """What both in turns say. Where the time is up before the last pair is over, those that are made decide."""
        try:
            verified = verify(PLAN, self.launch)
        except CaptureError:
            if len(self.pairs()) < FEWEST_PAIRS or not is_over(self.until_s):
                raise
            return self.pairs(), judge(self.pairs(), PLAN)
        return verified.pairs, verified.verdict

    def judged(self, repair: Repair) -> tuple[Repair, ChangeVerdict]:
        """The repair with what both in turns say of it."""
        pairs, verdict = self.verdict()
        repair = self._told(repair, pairs, verdict)
        return replace(repair, why=f"{verdict.label}: not shown to win {100 * PLAN.threshold_ratio:g} %"), verdict

    def so_far(self, repair: Repair) -> Repair:
        """The repair with what those pairs say that were made."""
        pairs = self.pairs()
        return self._told(repair, pairs, judge(pairs, PLAN)) if len(pairs) >= FEWEST_PAIRS else repair

    @staticmethod
    def _told(repair: Repair, pairs: Sequence[Pair], verdict: ChangeVerdict) -> Repair:
        before_ms, after_ms = (median([PLAN.time_s(pair[at]) for pair in pairs]) * 1e3 for at in (0, 1))
        if verdict.effect is not None:  # by pair: two medians of a machine that changes may say another thing
            after_ms = before_ms * verdict.effect.ratio
        return replace(repair, before_ms=before_ms, after_ms=after_ms, effect=verdict.effect, pairs=len(pairs))


class Paused(Exception):
    """The share of the time is over that an edit may take before the others were tried."""


def is_over(until_s: float) -> bool:
    """Whether so little time is left that no run was begun, or one was ended for it."""
    return time.monotonic() + 1 >= until_s
