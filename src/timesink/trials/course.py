"""The course of a trial: the program as it is, cheap switches in one process, compilers in another, then proof.

The first run is recorded: its capture's plan says which change to try first, in the second. What wins is run in fresh
processes in turns with the program as it is: these decide, and losses are held against each other. The budget is for
all of it. At its end, at an interrupt and at an error of the program, what was measured stands.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Final

from timesink.capture.errors import CaptureError, failure
from timesink.errors import UsageError
from timesink.recipes.table import EXCLUDED_BY, RECIPES, SWITCHES
from timesink.sandbox.runs import Sandbox
from timesink.trials.agent import TIME_WAS_UP
from timesink.trials.apart import ProgramApart
from timesink.trials.checks import TOLERATED, alike_losses, hold_losses
from timesink.trials.records import (
    LATE,
    Confirmed,
    Foretold,
    TrialAnswer,
    TrialOrder,
    TrialPlan,
    TrialResult,
    Tried,
)
from timesink.trials.run import ProgramRuns, Tell, TimeIsUp, foretell, recorded, unheard
from timesink.units import share_text
from timesink.untrusted.whole_file import write_whole

_DEAR_S: Final = 10.0
"""A change that costs so much to try has a process of its own."""
_CHANCE, _CHANCE_OF_DEAR = 0.8, 0.4  # that what is foretold of a change, or of one that compiles, comes true
_KNOWABLE: Final = 0.5  # a replay knows no gain beyond this share: it does not know what hides behind what goes away
_UNTOLD: Final = 0.02
_TIMED, _CHEAP, _DEAR, _FORETELLING, _PROOF_LEAST = 0.1, 0.4, 0.35, 0.1, 0.2
"""Shares of the budget: timing one run, cheap switches, compilers, what is foretold, the least for proof."""
_FORKED_S, _FORKED = 2.0, 0.25  # what a later run takes, by what the first one took until it was recorded
_PROOF: Final = 3.2  # of those are kept back for proof, or so much of the budget:
_PROOF_SHARE: Final = 0.4
_MOST_TURNS: Final = 5
_PROOF_OF_DEAR: Final = 0.12  # of the budget: fresh processes load what was compiled
_END_S, _END_SHARE = 2.0, 0.04  # of the budget kept back for the page
_ROUND_S, _LEAST_ROUND_S = 20.0, 4.0
_USUAL: Final = 0.6  # of what a run and a compiler may cost they often take
_PATIENT_STEPS, _LEAST_PATIENCE_S = 60, 20.0
ENDED_FIRST: Final = "the program ended before it was measured"


class _Ended(BaseException):
    """The user has ended the trial by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def try_changes(
    program: Sequence[str], *, names: Sequence[str] = (), budget_s: float = 180.0, check: str = "",
    tell: Tell = unheard, box: Sandbox | None = None,
) -> TrialAnswer:  # fmt: skip
    """Try each change of `names` (all where empty) on a program, and confirm what wins together.

    Where there is a `box`, each run is made in it. `budget_s` is for everything. `CaptureError` where the program fails
    by itself or no step is seen in it, `UsageError` for what is no change.
    """
    if absent := [name for name in names if name not in SWITCHES]:
        raise UsageError(f"{absent[0]!r} cannot be tried", remedy=f"choose from {', '.join(SWITCHES)}")
    with (
        TemporaryDirectory(prefix="timesink-try-") as folder,
        closing(_runs(program, Path(folder).resolve(), check, tell, box)) as runs,
    ):
        return _Course(runs, tuple(names or SWITCHES), budget_s).run()


def _runs(program: Sequence[str], folder: Path, check: str, tell: Tell, box: Sandbox | None) -> ProgramRuns:
    apart = ProgramApart(program, box, folder) if box is not None else None
    return ProgramRuns(program, folder, check, apart=apart, tell=tell)


@contextmanager
def _signals() -> Iterator[None]:
    """An interrupt or a request to end comes as `_Ended`, once; a second one has its usual effect."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for kind, usual in before.items():
            signal.signal(kind, usual)
        raise _Ended(number)

    before = {kind: signal.signal(kind, end) for kind in kinds}
    try:
        yield
    finally:
        for kind, usual in before.items():
            signal.signal(kind, usual)


@dataclass(slots=True)
class _Course:
    """One trial: what is known so far."""

    runs: ProgramRuns
    names: tuple[str, ...]
    budget_s: float
    found: TrialResult = field(default_factory=TrialResult)
    foretold: dict[str, Foretold] = field(default_factory=dict)
    confirmed: dict[tuple[str, ...], Confirmed] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    began_s: float = 0.0
    ordered_s: float = 0.0
    forked_s: float = 0.0
    foretelling: threading.Thread | None = None
    told_by_s: float = 0.0
    changed: list[TrialResult] = field(default_factory=list)
    worth: float = TrialPlan("").worth

    @property
    def left_s(self) -> float:
        """Seconds until nothing runs any more."""
        return self.runs.until_s - time.monotonic()

    @property
    def for_proof_s(self) -> float:
        """Seconds that are kept back for fresh processes; for one, while nothing that was tried may win."""
        may_win = not self.found.tried or _winners(self.found.last_looks, self.worth)
        return min((_PROOF if may_win else 1.0) * self.forked_s, _PROOF_SHARE * self.budget_s)

    def run(self) -> TrialAnswer:
        """All of it, however it ends. `CaptureError` where nothing at all was measured."""
        self.began_s = time.monotonic()
        self.runs.until_s = self.began_s + self.budget_s - min(_END_S, _END_SHARE * self.budget_s)
        ended, number = "", 0
        with _signals():
            try:
                self._measure()
            except TimeIsUp:
                ended = "the budget was over"
            except CaptureError as error:
                ended = error.message
                if not self.runs.base:
                    raise
            except _Ended as signalled:
                number = signalled.number
                ended = f"it was ended by {signal.Signals(number).name}"
        if self.runs.unfinished is not None:
            self._take(self.runs.unfinished, ended, is_cut=True)
        if not self.runs.base and not self.found.mark:
            raise failure(f"nothing was measured: {ended}", "give more with --budget")
        self._settle()
        seconds = time.monotonic() - self.began_s
        known = (self.kept, self.confirmed, self.left_out, self.foretold)
        return TrialAnswer(self.found, seconds, *known, self.budget_s, ended, number, self.runs.kept_log)

    def _measure(self) -> None:
        ends_at = time.time() + self.left_s - _PROOF_LEAST * self.budget_s
        plan = TrialPlan("", budget_s=_TIMED * self.budget_s, ends_at=ends_at)
        patience_s = max(self.budget_s / 2, _LEAST_PATIENCE_S)
        broke = self.runs.first(plan, patience_s)
        self.ordered_s = time.monotonic()
        self.forked_s = _FORKED_S + _FORKED * (self.ordered_s - self.began_s)
        self._take(self.runs.base[0], broke, is_cut=broke == LATE)
        self.foretelling = threading.Thread(target=self._foretell, args=(self.runs.base[0],), daemon=True)
        self.told_by_s = self.ordered_s + _FORETELLING * self.budget_s
        self.foretelling.start()
        result, broke = self.runs.ordered(plan, self._order, patience_s)
        self._take(result, broke, is_cut=broke == LATE)
        self._try_cheap()
        self.found.kept = self.found.kept or _winners(self.found.last_looks, self.worth)
        refused = {one.name for one in self.found.tried if one.refused or one.failed}
        self._try_dear([name for name in self._split()[1] if name not in refused])
        self._prove()
        self._go_on()

    def _split(self) -> tuple[list[str], list[str]]:
        """The names in order, those that compile apart."""
        order = sorted(self.names, key=lambda name: -_promise(name, self.foretold))
        dear = [name for name in order if SWITCHES[name].cost_s >= _DEAR_S]
        return [name for name in order if name not in dear], dear

    def _order(self, _: TrialResult) -> None:
        """The program waits: say what to try, once that is foretold or the time for it is over."""
        now_s = time.monotonic()
        if self.ordered_s:  # the first time
            self.forked_s, self.ordered_s = now_s - self.ordered_s, 0.0
        foretells = self.foretelling is not None and self.foretelling.is_alive()
        if self.runs.order.exists() or (foretells and now_s < self.told_by_s):
            return
        cheap, dear = self._split()
        spare_s = self.left_s - self.for_proof_s
        wanted_s = min(self.forked_s + sum(SWITCHES[name].cost_s for name in dear), _DEAR * self.budget_s)
        budget_s = max(spare_s - wanted_s, _ROUND_S) if dear and cheap else spare_s
        order = TrialOrder(tuple(cheap), tuple(dear), max(min(budget_s, spare_s), _CHEAP * self.left_s))
        write_whole(self.runs.order, json.dumps(asdict(order)))

    def _foretell(self, base: TrialResult) -> None:
        self.foretold = foretell(recorded(self.runs.capture, base))

    def _try_cheap(self) -> None:
        """What the first process has left, because a change ended it, it hung or the program was over, in new ones."""
        budget_s = self.left_s - self.for_proof_s
        while (left := self._untried(self._split()[0])) and budget_s > self.forked_s:
            plan = TrialPlan("", tuple(left), budget_s=budget_s, ends_at=time.time() + budget_s, step_ms=self._step_ms)
            known = len(self.found.tried)
            result, broke = self.runs.once(plan, self._patience_s)
            self._take(result, broke, is_cut=broke == LATE)
            if result.phase == "done" or len(self.found.tried) == known:
                break
            budget_s = self.left_s - self.for_proof_s

    def _untried(self, names: Sequence[str]) -> list[str]:
        tried = {one.name for one in self.found.tried}
        return [name for name in names if name not in tried]

    @property
    def _patience_s(self) -> float:
        """Seconds in which a result must change: blocks of steps last as long as their steps."""
        return max(_PATIENT_STEPS * self._step_ms / 1e3, _LEAST_PATIENCE_S)

    @property
    def _step_ms(self) -> float:
        """Of the program as it is, as it was timed first."""
        return fmean(self.runs.base[0].steps_ms) if self.runs.base else 0.0

    def _try_dear(self, names: Sequence[str]) -> None:
        """Compilers beside what is kept, in a process of their own that ends with its share of the time: what one has
        compiled the next one finds. Those that a broken one leaves have another."""
        left = [name for name in names if not EXCLUDED_BY.get(name, frozenset()) & set(self.found.kept)]
        while left:
            share_s = self.left_s - max(self.for_proof_s, _PROOF_OF_DEAR * self.budget_s)
            if share_s < _USUAL * (self.forked_s + min(SWITCHES[name].cost_s for name in left)):
                why = f"{TIME_WAS_UP}: {max(share_s, 0):.0f} s were left for it"
                self.found.tried += [Tried(name, left=why) for name in left]
                return
            before, kept = self.found, self.found.kept
            plan = TrialPlan(
                "", tuple(left), fixed=kept, budget_s=share_s, ends_at=time.time() + share_s, step_ms=self._step_ms
            )
            result, broke = self.runs.once(plan, patience_s=share_s)
            is_late, is_over = broke == LATE, not broke and result.phase != "done"
            why = f"{TIME_WAS_UP}: it had {share_s:.0f} s" if is_late else broke
            self._take(result, ENDED_FIRST if is_over else why, is_cut=is_late or is_over)
            won = [name for name in result.kept if name in left]
            self.found.kept = (*kept, *won)
            self.found.base_ms = before.base_ms or self.found.base_ms
            if won and result.rungs:
                self.found.rungs = [*before.rungs, *result.rungs]
            known = {one.name for one in self.found.tried}
            left = [name for name in left if name not in known] if not won and len(known) > len(before.tried) else []

    def _take(self, result: TrialResult, broke: str, *, is_cut: bool) -> None:
        """Add what one process found to what is known. What it was at when it was ended is a change that was cut short,
        or where the process broke, one that failed."""
        tried = [*self.found.tried, *result.tried]
        at = result.now_trying
        if broke and at and not any(one.name == at and one.pairs for one in result.tried):
            partial = result.partial if result.partial is not None and result.partial.name == at else Tried(at)
            tried.append(replace(partial, left=broke) if is_cut else Tried(at, partial.beside, failed=broke))
        elif not broke and result.partial is not None and result.partial.pairs > 1:  # the program was over
            tried.append(replace(result.partial, left=""))
        last = result if result.base_ms or not self.found.base_ms else self.found
        self.found = replace(
            last,
            tried=tried,
            applied=tuple(dict.fromkeys((*self.found.applied, *result.applied))),
            places=result.places or self.found.places,
            kept=result.kept or self.found.kept,
            paused=max(self.found.paused, result.paused),
            joint=result.joint or self.found.joint,
            rungs=result.rungs or self.found.rungs,
        )

    def _go_on(self) -> None:
        """With what time the proof has left: changes that were not tried, and the proof of what they win."""
        tried = {one.name for one in self.found.tried if not one.left}
        names = [name for name in self.names if name not in tried and SWITCHES[name].cost_s < _DEAR_S]
        share_s = self.left_s - (self.forked_s if self.kept else 0.0)
        if not names or share_s < self.forked_s + _LEAST_ROUND_S:
            return
        before = self.kept
        self.found.tried = [one for one in self.found.tried if one.name not in names]
        plan = TrialPlan(
            "", tuple(names), fixed=before, budget_s=share_s, ends_at=time.time() + share_s, step_ms=self._step_ms
        )
        result, broke = self.runs.once(plan, self._patience_s)
        won = [name for name in result.kept if name not in before]
        self._take(result, broke, is_cut=broke == LATE)
        self.found.kept = (*before, *won) or _winners(self.found.last_looks, self.worth)
        if set(self.found.kept) - {*before, *self.left_out}:
            self._prove()

    def _prove(self) -> None:
        """Fresh processes in turns, of what is kept; a change that moves losses goes, and the others run anew."""
        self.kept = self.found.kept or _winners(self.found.last_looks, self.worth)
        while self.kept:
            self.changed = []
            for turn in range(_MOST_TURNS):
                began_s = time.monotonic()
                self.changed.append(self.runs.fixed(self.kept, budget_s=_TIMED * self.budget_s))
                self.forked_s = time.monotonic() - began_s
                if len(self.runs.base) < turn + 2 and (turn < 2 or self.left_s > 2.2 * self.forked_s):
                    self.runs.fixed(budget_s=_TIMED * self.budget_s)
                proof = self._compare()
                if proof is None or (turn and proof.wins(self.worth)) or self.left_s < 1.2 * self.forked_s:
                    break
            if proof is None:
                self.left_out |= dict.fromkeys(self.kept, "a fresh process with all that won made no step")
                self.kept = ()
                return
            if proof.check is None or proof.check.holds:
                return
            blamed = max(self.kept, key=lambda name: TOLERATED[RECIPES[name].drift])
            apart = f"{proof.check.apart:.2g} apart at step {proof.check.steps}"
            self.left_out[blamed] = f"losses leave those of the base: {apart}"
            self.kept = tuple(name for name in self.kept if name != blamed)

    def _compare(self) -> Confirmed | None:
        """The runs of the base beside those with these changes, as far as they were made."""
        base, changed = ([one for one in runs if one.steps_ms] for runs in (self.runs.base, self.changed))
        if not base or not changed:
            return None
        worst = max((RECIPES[name].drift for name in self.kept), key=list(TOLERATED).index)
        check = None
        if len(base) > 1:
            check = hold_losses(*alike_losses(base[0], base[1], changed[0]), worst)
        base_ms, with_ms = (tuple(fmean(one.steps_ms) for one in runs) for runs in (base, changed))
        error = sqrt(sum(_error(one.steps_ms) ** 2 for one in (base[-1], changed[-1])))
        proof = Confirmed(base_ms, with_ms, check, error, self.found.running(self.kept))
        self.confirmed[self.kept] = proof
        return proof

    def _settle(self) -> None:
        """What stands once nothing runs any more."""
        if self.kept and self.kept not in self.confirmed and self.changed:
            self._compare()
        proof = self.confirmed.get(self.kept)
        if self.kept and proof is not None and not proof.wins(self.worth):
            told = "it was not shown to win again in fresh processes"
            if proof.of_processes[1] <= 1 - self.worth:
                won = share_text(1 - proof.ratio)
                told = f"fresh processes say {won}, which is too far from it to tell what it wins"
            self.left_out |= dict.fromkeys(self.kept, told)
            self.kept = ()
        elif proof is None:
            self.kept = ()
        seen = {one.name for one in self.found.tried}
        untried = [name for name in self.names if name not in seen]
        self.found.tried += [Tried(name, left=TIME_WAS_UP) for name in untried]


def _error(steps_ms: Sequence[float]) -> float:
    """Of the mean of pieces, as a share of it."""
    return stdev(steps_ms) / sqrt(len(steps_ms)) / fmean(steps_ms) if len(steps_ms) > 1 else 0.0


def _promise(name: str, foretold: Mapping[str, Foretold]) -> float:
    """What to try first: what is foretold of a change (or little, where nothing is) times the chance that it comes
    true, per second of trying."""
    gain, cost_s = min(foretold[name].value, _KNOWABLE) if name in foretold else _UNTOLD, SWITCHES[name].cost_s
    return max(gain, 0.0) * (_CHANCE_OF_DEAR if cost_s >= _DEAR_S else _CHANCE) / cost_s


def _winners(looks: Sequence[Tried], worth: float) -> tuple[str, ...]:
    """What fresh processes are to decide where the running program had no time to put changes together: those that win
    there by the last look at each, the best first, one of those that exclude each other."""
    kept: list[str] = []
    for one in sorted(looks, key=lambda one: one.ratio):
        is_single = " + " not in one.name
        if is_single and one.may_win(worth) and not EXCLUDED_BY.get(one.name, frozenset()) & set(kept):
            kept.append(one.name)
    return tuple(kept)
