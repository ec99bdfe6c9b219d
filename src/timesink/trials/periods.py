"""The period of a program whose steps are nested: so many marks make one, or one iteration of a loop around them.

A program may update its weights several times after each walk through an environment, or evaluate after every tenth
step. What it repeats is the whole. Loops around the first marks are counted for a moment. The outermost that comes
round again and takes time of its own between its marks is the period's.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from statistics import fmean, median
from time import perf_counter
from types import FrameType
from typing import Final, NamedTuple

from timesink.capture.agent.loops import RECURS, CodeLoop, LoopCounter, enclosing_loops, loops_of
from timesink.trials.records import Period

_OWN: Final = 0.05  # of a period passes between its last mark and the next one's first, or marks are periods
_LEAST_S, _MOST_S, _LEAST_MARKS = 1.5, 6.0, 8
_PATIENT: Final = 0.12  # of the time that a trial has, to see a loop recur that came round once
_LONGEST: Final = 1 / 40  # of that time: of a longer period too few could be timed
_PAUSE, _PAUSE_S, _TELLING = 5.0, 0.25, 3  # times the usual step, and seconds; so many gaps tell the usual one
_LONG: Final = 3.0  # times what most gaps take


class Round(NamedTuple):
    """An iteration of a loop: when it ended, and how many marks there were so far."""

    s: float
    marks: int


class Pauses:
    """What comes between steps and is none of them: evaluations, files that are saved."""

    def __init__(self) -> None:
        self._usual_s = inf
        self._found = 0
        self._paused_s = self._passed_s = 0.0

    def note(self, gaps_s: Sequence[float]) -> bool:
        """Seconds from each step's end to the next one's: whether one of them holds a pause."""
        if len(gaps_s) >= _TELLING or self._usual_s == inf:
            self._usual_s = median(gaps_s)
        paused_s = [gap - self._usual_s for gap in gaps_s if gap > max(_PAUSE * self._usual_s, _PAUSE_S)]
        self._found += len(paused_s)
        self._paused_s += sum(paused_s)
        self._passed_s += sum(gaps_s)
        return bool(paused_s)

    @property
    def share(self) -> float:
        """Of the time that passed, once two were seen: of one alone nobody knows how often it comes."""
        return self._paused_s / self._passed_s if self._found > 1 else 0.0


class Periods:
    """Counts marks, and tells at which of them a period ends; a period is one mark until `find` or `set` say else."""

    def __init__(self, given_s: float = 180.0) -> None:
        self.period = Period()
        self._patience_s, self._longest_s = max(_PATIENT * given_s, _MOST_S), _LONGEST * given_s
        self._times_s: list[float] = []
        self._loops: list[CodeLoop] = []
        self._rounds: dict[CodeLoop, list[Round]] = {}
        self._counter: LoopCounter | None = None
        self._made = 0
        self._is_round = False

    def ends(self) -> bool:
        """At a mark: whether a period ends here."""
        if not self.period.marks:
            ended, self._is_round = self._is_round, False
            return ended
        self._made += 1
        return self._made % self.period.marks == 0

    def set(self, period: Period, frame: FrameType) -> None:
        """Take a period that another run has found; `frame` is that of a mark."""
        self.period = period
        if not period.marks:
            around = [loop for loop in enclosing_loops(frame) if loop.code.co_qualname == period.within]
            wanted = [loop for loop in around if loops_of(loop.code).index(loop) == period.loop]
            if wanted and self._begin(wanted):
                return
            self.period = Period()

    def observe(self, frame: FrameType) -> None:
        """From this mark on, note marks and the loops around it."""
        self._loops = enclosing_loops(frame)
        self._begin(self._loops)
        self.note()

    def _begin(self, loops: Sequence[CodeLoop]) -> bool:
        self._rounds = {loop: [] for loop in loops}
        self._counter = LoopCounter(loops, self._came_round)
        return self._counter.begin()

    def _came_round(self, loop: CodeLoop) -> None:
        self._is_round = True
        self._rounds[loop].append(Round(perf_counter(), len(self._times_s)))

    def note(self) -> None:
        """A mark, while they are observed."""
        self._times_s.append(perf_counter())

    @property
    def is_seen(self) -> bool:
        """Whether marks were observed for long enough: a loop around another one came round, or does not in time."""
        passed_s, marks = self._times_s[-1] - self._times_s[0], len(self._times_s)
        if passed_s < _LEAST_S or marks < _LEAST_MARKS:
            return passed_s > 2 * _MOST_S
        waits = [len(self._rounds[loop]) for loop in self._loops[:-1] if len(self._rounds[loop]) <= RECURS]
        recurs_s = (RECURS + 1) * passed_s / max((rounds for rounds in waits if rounds), default=1)
        return not waits or passed_s > (self._patience_s if any(waits) and recurs_s < self._patience_s else _MOST_S)

    def end(self) -> None:
        """Look no more."""
        if self._counter is not None:
            self._counter.end()

    def find(self) -> None:
        """Settle the period by what was observed, and go on from there."""
        gaps_s = [later - earlier for earlier, later in pairwise(self._times_s)]
        for loop in self._loops:
            rounds = self._rounds[loop]
            is_short = len(rounds) > RECURS and rounds[-1].s - rounds[0].s < self._longest_s * (len(rounds) - 1)
            if is_short and (counts := _marks_of(rounds, gaps_s)):
                usual, times = Counter(counts).most_common(1)[0]
                if times == len(counts):
                    self.period = Period(usual)
                else:
                    self.period = Period(0, loop.code.co_qualname, loops_of(loop.code).index(loop))
                break
        else:
            marks = regular(gaps_s)
            self.period = Period(marks if marks * fmean(gaps_s or [0.0]) < self._longest_s else 1)
        if self._counter is not None and self.period.marks:
            self._counter.end()
        elif self._counter is not None:
            self._counter.keep(loop)
        self._is_round, self._made = False, 0


def _marks_of(rounds: Sequence[Round], gaps_s: Sequence[float]) -> list[int]:
    """How many marks each whole iteration held; nothing where it holds one, or takes no time of its own beside them."""
    counts = [later.marks - earlier.marks for earlier, later in pairwise(rounds)]
    if min(counts) < 1 or max(counts) == 1:
        return []
    first = {earlier.marks for earlier in rounds}  # the mark that comes next is the first of an iteration
    between = [gap for at, gap in enumerate(gaps_s, 1) if at in first]
    within = [gap for at, gap in enumerate(gaps_s, 1) if at not in first]
    whole_s = (rounds[-1].s - rounds[0].s) / len(counts)
    own_s = fmean(between) - fmean(within) if between and within else 0.0
    return counts if own_s > _OWN * whole_s else []


def regular(gaps_s: Sequence[float]) -> int:
    """How many marks there are from one long gap to the next, where these come at the same distance and matter; else
    1."""
    if len(gaps_s) < _LEAST_MARKS:
        return 1
    ordinary = sorted(gaps_s)[len(gaps_s) // 4]
    long = [at for at, gap in enumerate(gaps_s) if gap > _LONG * ordinary]
    away = {later - earlier for earlier, later in pairwise(long)}
    spent = sum(gaps_s[at] - ordinary for at in long)
    is_regular = len(away) == 1 and len(long) > RECURS and spent > _OWN * sum(gaps_s)
    return away.pop() if is_regular else 1
