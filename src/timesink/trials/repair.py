"""The loop that closes by itself: the dearest edit of a program is made in a copy, run, proven, and kept or taken back.

What comes first is the edit whose lines take most of the step in a capture, so far as its plan allows; what neither
knows comes after, in the order of the table. An edit is kept where its losses are those of the program before it, and
runs of both in turns show that the step is at least 2 % shorter. Each kept one is a commit that says all that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations
from math import inf
from pathlib import Path
from statistics import median
from typing import Final

from timesink.capture.errors import CaptureError
from timesink.errors import UsageError
from timesink.fixes import Offer
from timesink.fixes.table import BY_NAME
from timesink.recipes import Drift
from timesink.recipes.proof import Unproven
from timesink.recipes.source import Proposal, Source
from timesink.recipes.table import EDITS, RECIPES, proposals, unified
from timesink.trials.apart import ProgramApart
from timesink.trials.checks import TOLERATED, alike_losses, hold_losses, stray_weights
from timesink.trials.records import (
    LATE,
    Decided,
    Foretold,
    LossCheck,
    Repair,
    RepairAnswer,
    TrialResult,
)
from timesink.trials.run import (
    ProgramRuns,
    Tell,
    edits_refused,
    foretell,
    recorded,
    shares_of_lines,
    unheard,
    waits_of_step,
)
from timesink.trials.turns import PLAN, Paused, Shown, is_over
from timesink.trials.workplace import Workplace
from timesink.units import share_text, time_text
from timesink.verify.outcomes import ChangeVerdict, Outcome

_WORTH: Final = PLAN.threshold_ratio
_MOST_BASES: Final = 4  # runs of a program that does not repeat itself


@dataclass(slots=True)
class Repairs:
    """The state of the loop. `standing` are two to four runs of the program with all that is kept, `lines` the share of
    the step that the first of them spent at each line, as `shares_of_lines` says, `waits` how often it waited in one;
    `barred` are edits whose precondition the recording refuses.
    """

    runs: ProgramRuns
    workplace: Workplace
    names: Sequence[str]
    tell: Tell
    standing: list[TrialResult] = field(default_factory=list)
    lines: Mapping[tuple[str, int], float] = field(default_factory=dict)
    waits: float | None = None
    barred: frozenset[str] = frozenset()
    made: list[Repair] = field(default_factory=list)
    offers: list[Repair] = field(default_factory=list)
    _seen: set[_Key] = field(default_factory=set)
    _open: list[_Tried] = field(default_factory=list)

    def run(self, until_s: float) -> str:
        """Make one edit after another until none is left that may win 2 %, or until that time; why it ended."""
        self.runs.until_s = until_s
        try:
            foretold = self._measure([])
        except CaptureError:
            if not self.standing or not is_over(until_s):
                raise
            return "the time was up before an edit was tried: give more with --budget"
        while (now := time.monotonic()) < until_s:
            left = [*self._candidates(foretold)]
            if left:
                tried = self._begun(*left[0], foretold, until_s)
                tried.shown.pause_s = now + (until_s - now) / (len(left) + len(self._open))
            elif self._open:
                tried = min(self._open, key=lambda one: one.ratio)
                self._open.remove(tried)
                tried.shown.pause_s = inf
            else:
                return f"no edit is left that may win {100 * _WORTH:g} %"
            if (repair := self._judge(tried)) is None:
                self._open.append(tried)
                continue
            self._tell_of(repair)
            if repair.decided == "kept":
                # What is open was run beside another base: it is a candidate again.
                self._seen -= {_key(one.source, one.proposal) for one in self._open}
                self._open.clear()
                last = [tried.shown.changed] if tried.shown.changed else []
                try:
                    foretold = self._measure(last)
                except CaptureError:
                    if not is_over(until_s):
                        raise
                    self.standing = [*last, *last]  # what was kept stands
        [*self._candidates(foretold)]  # what is offered is of the files as they stand now
        for tried in self._open:
            known = tried.shown.so_far(tried.repair)
            self._tell_of(replace(known, why=f"{LATE} after {len(tried.shown.rows) // 2} pairs"))
        return LATE

    def _tell_of(self, repair: Repair) -> None:
        self.made.append(repair)
        self.tell(f"{repair.fix} at {repair.where}: {repair.decided}: {repair.why}")

    def next_edit(self) -> Repair | None:
        """The edit that would be made next, else one that only a person can allow; None where there is none."""
        foretold = self._measure([])
        for source, proposal in self._candidates(foretold):
            return replace(self._repair(source, proposal, "offered", ""), foretold=_foretold_of(proposal.fix, foretold))
        return next(iter(self.offers), None)

    def _measure(self, again: list[TrialResult]) -> Mapping[str, Foretold]:
        """Two runs of the program as it stands, the first of them recorded and one perhaps made; what is foretold."""
        self.runs.capture.unlink(missing_ok=True)
        first = self.runs.fixed(capture=self.runs.capture)
        self.standing = [first, *(again or [first])]  # a second run may not end in time
        if not again:
            self.standing[1] = self.runs.fixed()
        here, folder = self.workplace.here, self.workplace.folder
        for file in map(Path, self.standing[0].files if self.workplace.box is None else ()):
            if file.is_relative_to(here) and not file.is_relative_to(folder) and not _links(file):
                raise UsageError(
                    f"the program in the copy still runs {file}",
                    remedy="run it by its file: it is installed, not found",
                )
        trace = recorded(self.runs.capture, self.standing[0])
        self.lines, self.waits = shares_of_lines(trace), waits_of_step(trace)
        made_on_gpu = self.standing[0].batches_made_on_gpu  # which no worker can, and nobody pins
        self.barred = edits_refused(trace) | {name for name in EDITS if made_on_gpu and RECIPES[name].where == "loader"}
        return foretell(trace)

    def _candidates(self, foretold: Mapping[str, Foretold]) -> Iterator[tuple[Source, Proposal]]:
        """What was not judged yet and may win 2 %, the dearest first; what is only offered is noted anew on the way."""
        self.offers = []
        places = (self.workplace.folder, *([] if self.workplace.box is None else [self.workplace.here]))
        files = [f for f in map(Path, self.standing[0].files) if any(map(f.is_relative_to, places)) and not _links(f)]
        on_gpu = bool(self.standing[0].memory_bytes)
        may_win = [n for n in self.names if n not in self.barred and _may_win(n, foretold)]
        names = [n for n in may_win if on_gpu or not EDITS[n].on_gpu]
        found = list(proposals(files, names, self.standing[0].places))
        for source, proposal in sorted(found, key=lambda one: _rank(one[0], one[1], foretold, self.lines)):
            if (key := _key(source, proposal)) in self._seen:
                continue
            if not self._can_be_written(source, proposal):
                self._seen.add(key)
                continue
            doubt = "" if _fits_memory(proposal, foretold) else proposal.unproven
            if source.path not in self.workplace.held:
                doubt = doubt or "git does not hold this file, so it stays as it is"
            if doubt:
                self.offers.append(self._repair(source, proposal, "offered", doubt))
                continue
            yield source, proposal

    def _can_be_written(self, source: Source, proposal: Proposal) -> bool:
        """Whether the tree proves the edit. One that it does not prove is told, and not made."""
        try:
            source.edited(proposal.replacements)
        except Unproven as why:
            self.tell(f"{proposal.fix} at {self.workplace.name(source.path)}:{proposal.line}: not edited: {why}")
            return False
        return True

    def _repair(self, source: Source, proposal: Proposal, decided: Decided, why: str) -> Repair:
        where = f"{self.workplace.name(source.path)}:{proposal.line}"
        return Repair(proposal.fix, where, decided, why, unified(source, source.edited(proposal.replacements)))

    def _begun(self, source: Source, proposal: Proposal, foretold: Mapping[str, Foretold], until_s: float) -> _Tried:
        """An edit that is to be run, until that time."""
        self._seen.add(_key(source, proposal))
        texts = {source.path: (source.encoded(source.text), source.encoded(source.edited(proposal.replacements)))}
        capture = self.runs.capture.with_name("edited.json.gz") if EDITS[proposal.fix].ends_waits else None
        known = _foretold_of(proposal.fix, foretold)
        repair = replace(self._repair(source, proposal, "taken back", ""), foretold=known)
        return _Tried(source, proposal, repair, self.shown(texts, until_s, capture))

    def shown(
        self, texts: Mapping[Path, tuple[bytes | None, bytes | None]], until_s: float, capture: Path | None = None
    ) -> Shown:
        """Runs with files as before and after a change, side by side where the program as it stands may be."""
        may_both = self.standing[0].may_stand_beside and self.runs.beside is not None
        return Shown(self.runs, self.workplace.folder, texts, until_s, capture, side_by_side=may_both)

    def _judge(self, tried: _Tried) -> Repair | None:
        """The edit made, run and proven; the file is as it was before, unless it is kept. None where its time is over
        before it is decided: others come first."""
        shown = tried.shown
        try:
            if not shown.rows:
                tried.repair, holds = self._hold(tried.repair, shown, EDITS[tried.proposal.fix].drift)
                if not holds:
                    return tried.repair
            tried.repair, verdict = shown.judged(tried.repair)
        except Paused:
            return None
        except CaptureError as error:
            why = LATE if is_over(shown.until_s) else f"the program with it fails: {error}"
            return replace(tried.repair, why=why[:300])
        finally:
            shown.write("before")
        if verdict.outcome is not Outcome.FASTER:
            return tried.repair
        shown.write("after")
        kept = replace(tried.repair, decided="kept", why=tried.proposal.reason)
        return replace(kept, commit=self.workplace.keep(commit_message(kept), [tried.source.path]))

    def prove(self, repair: Repair, shown: Shown, drift: str) -> tuple[Repair, ChangeVerdict | None]:
        """Checks first, then both in turns; no verdict where the first run already says no."""
        repair, holds = self._hold(repair, shown, drift)
        return shown.judged(repair) if holds else (repair, None)

    def _hold(self, repair: Repair, shown: Shown, drift: str) -> tuple[Repair, bool]:
        """What its first run says, and whether nothing of that speaks against it."""
        first = shown.run("after", shown.capture)
        check = self._check(shown, first, next(kind for kind in TOLERATED if kind == drift))
        base, again = self.standing[:2]
        bases_ms, after_ms = (min(base.steps_ms), min(again.steps_ms)), min(first.steps_ms)  # what else runs adds only
        before_ms, differ_ms = min(bases_ms), abs(bases_ms[0] - bases_ms[1])
        repair = replace(repair, check=check, waits=self._waits_with(shown, first))
        if repair.waits is not None and repair.waits[1] >= repair.waits[0]:
            return replace(repair, why=f"it leaves as many waits: {repair.waits_text}"), False
        if check is None:
            return replace(repair, why="no loss and no output was seen that results could be held by"), False
        if not check.holds:
            why = f"losses leave those before it: {check.apart:.2g} apart at step {check.steps}"
            return replace(repair, why=why), False
        pairs = permutations(self.standing, 2)
        if all(strays := [stray_weights(one.moved, other.moved, first.moved) for one, other in pairs]):
            return replace(repair, why=strays[0]), False
        if after_ms > (1 - _WORTH) * before_ms:  # two runs against two
            after_ms = min(after_ms, *shown.run("after").steps_ms)
        repair = replace(repair, before_ms=before_ms, after_ms=after_ms)
        if after_ms > (1 - _WORTH / 2) * before_ms + differ_ms:  # by more than two runs of one program differ
            return replace(repair, why="the steps of its first runs were no shorter than those before it"), False
        return repair, True

    def _check(self, shown: Shown, first: TrialResult, drift: Drift) -> LossCheck | None:
        """Its losses held against those of the program before it. Two runs of a program that does not repeat itself may
        lie near each other by chance, and of one whose sums are made in another order each time agree to the last bit:
        where more may say otherwise, they are made, and the widest of their distances is its spread."""
        while True:
            pairs = permutations(self.standing, 2)
            held = [hold_losses(*alike_losses(one, other, first), drift) for one, other in pairs]
            if any(check is None for check in held):
                return None
            best = max(filter(None, held), key=lambda check: check.room - check.apart)
            repeats = best.base_apart <= best.tolerated and best.apart > TOLERATED["rounding"]
            if best.holds or repeats or len(self.standing) == _MOST_BASES:
                return best
            self.standing.append(shown.run("before"))

    def _waits_with(self, shown: Shown, first: TrialResult) -> tuple[float, float] | None:
        """Waits a step before the change and with it, as that run recorded them; None where nobody counted."""
        after = None if shown.capture is None else waits_of_step(recorded(shown.capture, first))
        return None if self.waits is None or after is None else (self.waits, after)


@dataclass(slots=True)
class _Tried:
    """An edit whose runs have begun, or are to."""

    source: Source
    proposal: Proposal
    repair: Repair
    shown: Shown

    @property
    def ratio(self) -> float:
        """About how long a step takes with it, by the runs in turns so far."""
        pairs = self.shown.pairs()
        return median(PLAN.time_s(after) / PLAN.time_s(before) for before, after in pairs) if pairs else 1.0


_Key = tuple[str, str, bytes, tuple[str, ...]]


def _key(source: Source, proposal: Proposal) -> _Key:
    """What an edit is known by, also where other edits moved its line."""
    texts = tuple(one.text for one in proposal.replacements)
    return proposal.fix, source.path.name, source.rows[proposal.line - 1], texts


def _links(file: Path) -> bool:
    return any(part in ("site-packages", "dist-packages") for part in file.parts)


def _may_win(name: str, foretold: Mapping[str, Foretold]) -> bool:
    """Whether a fix may win 2 %: as the plan says of it, or where it says nothing, as of what no rule found."""
    if (known := _foretold_of(name, foretold)) is not None:
        return known.high >= _WORTH
    return not foretold or BY_NAME[name].offer is not Offer.ALWAYS


def _foretold_of(name: str, foretold: Mapping[str, Foretold]) -> Foretold | None:
    return foretold.get(name) or foretold.get(EDITS[name].priced_as)


def _rank(
    source: Source, proposal: Proposal, foretold: Mapping[str, Foretold], lines: Mapping[tuple[str, int], float]
) -> tuple[float, int, int]:
    """The dearest first: the share of the step that its lines take, but no more than the plan allows; where they are of
    no step, or the plan names them, what the plan says. Then the place that it names, and the order of the table."""
    known = _foretold_of(proposal.fix, foretold)
    share = sum(lines.get((source.path.name, row), 0.0) for row in proposal.rows)
    file, _, line = (known.place if known else "").rpartition(":")
    is_there = bool(file) and source.path.name == Path(file).name
    away = abs(int(line) - proposal.line) if is_there and line.isdecimal() else len(source.rows)
    worth = min(share, known.high if known else 1.0)
    if known and (not share or not away):
        worth = max(known.value, worth)
    return (-worth, list(EDITS).index(proposal.fix), away)


def _fits_memory(proposal: Proposal, foretold: Mapping[str, Foretold]) -> bool:
    """Whether the doubt is about memory alone, and a plan, which knows the GPU's, asks for the change."""
    return BY_NAME[proposal.fix].memory == "again" and proposal.fix in foretold and bool(foretold[proposal.fix].place)


def commit_message(repair: Repair) -> str:
    """What was foretold of an edit, measured, and held by checks, below what it is."""
    assert repair.effect is not None and repair.check is not None
    assert repair.before_ms is not None and repair.after_ms is not None
    known, effect, check = repair.foretold, repair.effect, repair.check
    foretold = "nothing: no capture of a GPU prices it"
    if known is not None:
        low, high = share_text(known.low), share_text(known.high)
        foretold = f"{share_text(known.value)} of the step ({low} to {high}), by the plan of a capture"
    steps = f"{time_text(repair.before_ms * 1e6)} to {time_text(repair.after_ms * 1e6)} a step"
    interval = f"{share_text(1 - effect.high)} to {share_text(1 - effect.low)}"
    won = f"{share_text(1 - effect.ratio)} less ({interval}), {repair.pairs} pairs of fresh processes in turns"
    kept = f"losses up to step {check.steps} are {check.apart:.2g} apart ({check.room:.2g} tolerated)"
    title, why = BY_NAME[repair.fix].title, repair.why[:1].upper() + repair.why[1:]
    waits = f"Waits: {repair.waits_text}\n" if repair.waits else ""
    return (
        f"{title} ({repair.where})\n\n{why}.\n\n"
        f"Predicted: {foretold}\nMeasured: {steps}, {won}\nCheck: {kept}\n{waits}Fix: {repair.fix}\n"
    )


def runs_in(
    workplace: Workplace, program: Sequence[str], scratch: Path, more: Sequence[Path] = (), tell: Tell = unheard
) -> ProgramRuns:
    """Runs of the program as it stands in a workplace, where `more` files of it are shown; `scratch` is for records."""
    words, box = workplace.words(program), workplace.box

    def those(records: Path) -> ProgramRuns:
        records.mkdir()
        shown = partial(workplace.shown, more)
        apart = ProgramApart(words, box, records, shown, workplace.seen) if box is not None else None
        return ProgramRuns(words, records, "", workplace.folder, apart, tell)

    runs = those(scratch / "records")
    if box is not None and box.way != "landlock":
        runs.beside = those(scratch / "records" / "beside")
    return runs


@dataclass(frozen=True, slots=True)
class RepairOrder:
    """What is asked of a repair: edits by their fixes (all where empty), and seconds for everything."""

    names: Sequence[str] = ()
    budget_s: float = 600.0
    tell: Tell = unheard


def fix_program(program: Sequence[str], workplace: Workplace, scratch: Path, asked: RepairOrder) -> RepairAnswer:
    """Make the edits that win in a copy of the program, one commit each; `scratch` is for files of runs.

    `CaptureError` where the program fails by itself or makes no step, `UsageError` for what is no edit.
    """
    if absent := [name for name in asked.names if name not in EDITS]:
        raise UsageError(f"{absent[0]!r} is an unknown edit", remedy=f"choose from {', '.join(EDITS)}")
    began = time.monotonic()
    with closing(runs_in(workplace, program, scratch, tell=asked.tell)) as runs:
        state = Repairs(runs, workplace, asked.names or tuple(EDITS), asked.tell)
        ended = state.run(began + asked.budget_s)
    kept = [repair for repair in state.made if repair.decided == "kept"]
    standing_ms = min(median(result.steps_ms) for result in state.standing)
    base_ms = (kept[0].before_ms if kept else None) or standing_ms
    return RepairAnswer(base_ms, (*state.made, *state.offers), ended, time.monotonic() - began, runs.kept_log)
