"""What the trial in the program, its parent and the page hand to each other: plain records, as JSON in files; checks,
whether losses with changes stay with those of the program as it is; and what `timesink fix` made of a program."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from math import hypot, inf, prod, sqrt
from operator import mul
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from timesink.verify.outcomes import Effect


@dataclass(frozen=True, slots=True)
class Period:
    """`marks` make one; where their number differs from one to the next it is 0, and an iteration of the `loop` of the
    function `within`, by its number there, is one."""

    marks: int = 1
    within: str = ""
    loop: int = 0


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What is tried: `names` in order, for `budget_s` seconds after `settle` steps and not beyond `ends_at`, a time of
    the clock; of those `asked` only whether they apply is told. `fixed` is on from the start. Without names nothing is
    tried: `steps` steps are timed, `moved_at` is the one at which weights are looked at again, and, with `capture`,
    some more are recorded into that file, with `stacks` where asked. `worth` is the least share of the step that a
    change must win to be kept. `check` makes a number of the model's results (`MODULE:FUNCTION`). `period` is what an
    earlier run has found a step to be, `step_ms` what it took there. With `order` the program then waits until that
    file is there, whose names are tried next (`TrialOrder`). With `turns`, two pipes, steps are timed in turns with a
    run beside it (`Baton`)."""

    file: str
    names: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    budget_s: float = 120.0
    ends_at: float = inf
    settle: int = 5
    block_s: float = 0.25
    steps: int = 30
    moved_at: int = 0
    timed_s: float = 0.0
    worth: float = 0.02
    capture: str = ""
    stacks: bool = False
    check: str = ""
    period: Period | None = None
    step_ms: float = 0.0
    order: str = ""
    turns: tuple[str, ...] = ()

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> TrialPlan:
        """The plan that `to_json` wrote."""
        given = json.loads(text)
        names = {name: tuple(given[name]) for name in ("names", "asked", "fixed", "turns")}
        return cls(**{**given, **names, "period": Period(**given["period"]) if given["period"] else None})


_SURE_PAIRS: Final = 4
_PROCESSES, _ALONE = 2, 0.1
LATE: Final = "the time was up"
APART: Final = 0.05
"""Of a step, between two ways to measure it: more is told."""


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """What a program that was timed and recorded is to try next, for how long."""

    names: tuple[str, ...]
    asked: tuple[str, ...]
    budget_s: float


@dataclass(slots=True)
class Tried:
    """What became of a change: `refused` says why it did not apply, `failed` what it broke, `left` why it was not
    tried, or not to the end. `beside` are the changes that were on in both kinds of blocks. `ratio` is the step with it
    over the step without, `low` to `high`; `shortest` the same of the shortest blocks. Memory is the most that PyTorch
    had allocated, in bytes; `recompiled` counts graphs that were compiled after the first step with the change."""

    name: str
    beside: tuple[str, ...] = ()
    refused: str = ""
    failed: str = ""
    left: str = ""
    pairs: int = 0
    without_ms: float = 0.0
    with_ms: float = 0.0
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    shortest: float = 1.0
    memory_bytes: int = 0
    base_memory_bytes: int = 0
    warm_up_s: float = 0.0
    recompiled: int = 0

    def seems_to_win(self, worth: float) -> bool:
        """Whether the step is shorter by that share, by the median and by the shortest blocks."""
        return not self.refused and not self.failed and max(self.ratio, self.shortest) <= 1 - worth

    def may_win(self, worth: float) -> bool:
        """Whether it seems to, and the whole range of two pairs or more says shorter."""
        return self.seems_to_win(worth) and self.pairs > 1 and self.high < 1

    def wins(self, worth: float) -> bool:
        """The same by enough pairs."""
        return self.may_win(worth) and self.pairs >= _SURE_PAIRS


@dataclass(slots=True)
class TrialResult:
    """Everything a trial found, written to its file after each change of it. `rungs` are the changes in the order in
    which they were put together, each with the step in ms then; `places` where the program makes what they change, and
    `files` those of its own that it has imported. `moved` says how far each weight went in the steps that were timed.
    `variables` are those of the environment that the program changed before it imported PyTorch. Where results of the
    model stand for `losses`, `first_loss` is the call that the first of them is of. `applied` are the changes that can
    be made, `partial` what is known of the one that is `now_trying`. `paused` is the share of the timed steps' time
    that passed between them, in what does not come in each. `may_stand_beside`: whether it may wait in the middle of
    its steps, with another run of the program beside it.
    """

    rank: int = 0
    phase: str = "settle"
    mark: str = ""
    root: str = ""
    optimizer: str = ""
    base_ms: list[float] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    kept: tuple[str, ...] = ()
    rungs: list[tuple[str, float]] = field(default_factory=list)
    joint: Tried | None = None
    places: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    first_loss: int = 0
    steps_ms: list[float] = field(default_factory=list)
    moved: list[float] = field(default_factory=list)
    memory_bytes: int = 0
    now_trying: str = ""
    variables: list[str] = field(default_factory=list)
    period: Period = field(default_factory=Period)
    applied: tuple[str, ...] = ()
    partial: Tried | None = None
    paused: float = 0.0
    may_stand_beside: bool = False
    batches_made_on_gpu: bool = False

    @property
    def last_looks(self) -> list[Tried]:
        """The latest of what was found of each change: an earlier one was a first impression."""
        return [*{one.name: one for one in self.tried}.values()]

    def running(self, names: tuple[str, ...]) -> Tried | None:
        """What the running program says of these changes together, beside no other."""
        alone = (one for one in reversed(self.tried) if (one.name,) == names and one.pairs and not one.beside)
        is_joint = self.joint is not None and set(self.joint.name.split(" + ")) == set(names)
        return self.joint if is_joint else next(alone, None)


@dataclass(frozen=True, slots=True)
class LossCheck:
    """Losses of the first steps with the changes, beside the base's: how far they are apart in the last quarter,
    as a share, and how far two runs of the base are. `tolerated` is what the changes may move. Where they may change
    which batch comes when, the means of the quarters are compared, and tolerated is three times their standard error.
    """

    steps: int
    apart: float
    base_apart: float
    tolerated: float

    @property
    def room(self) -> float:
        """How far they may be apart: what is tolerated, and twice what two runs of the base are."""
        return self.tolerated + 2 * self.base_apart

    @property
    def holds(self) -> bool:
        """Whether losses stay with those of the base."""
        return self.apart <= self.room


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Fresh processes: milliseconds a step of each, the base's and those with the changes, and their check. `error`
    is that of one ratio of two processes, by how far their own pieces differ; `running` is what the running program
    says of the same changes."""

    base_ms: tuple[float, ...]
    with_ms: tuple[float, ...]
    check: LossCheck | None
    error: float = 0.0
    running: Tried | None = None

    @property
    def mean_base_ms(self) -> float:
        """Milliseconds a step of the program as it is."""
        return fmean(self.base_ms)

    @property
    def mean_with_ms(self) -> float:
        """The same with the changes."""
        return fmean(self.with_ms)

    @property
    def ratio(self) -> float:
        """The step with the changes over the step without."""
        return self.mean_with_ms / self.mean_base_ms

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the most of that ratio, wider where the running program says otherwise: which of the two is
        right nobody knows."""
        least, most = self.of_processes
        if self.running is not None and abs(self.running.ratio - self.ratio) > APART:
            least, most = min(least, self.running.low), max(most, self.running.high)
        return least, most

    @property
    def of_processes(self) -> tuple[float, float]:
        """The same by processes alone: of any with the changes over any without, but for one of three or more, and
        beyond what their pieces leave open. One process of a kind says nothing of how processes differ."""
        fewest = min(len(self.base_ms), len(self.with_ms))
        open_ratio = max(2 * self.error / sqrt(fewest), _ALONE if fewest < _PROCESSES else 0.0)
        spare = 1 if fewest > _PROCESSES else 0
        base, changed = sorted(self.base_ms), sorted(self.with_ms)
        least, most = changed[spare] / base[-1 - spare], changed[-1 - spare] / base[spare]
        return min(least, self.ratio * (1 - open_ratio)), max(most, self.ratio * (1 + open_ratio))

    def wins(self, worth: float) -> bool:
        """Whether the step is shorter by that share, by the whole interval."""
        return self.interval[1] <= 1 - worth


@dataclass(frozen=True, slots=True)
class Foretold:
    """What the plan of a capture says a change wins alone, as a share of the step: `value` between `low` and `high`.

    `place` is `file:line` where that is known; untrusted.
    """

    value: float
    low: float
    high: float
    place: str = ""


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """All that a trial found. `confirmed` holds each set of changes that was run in fresh processes, `kept` last;
    `foretold` what the plan said before, by change. `ended` says what ended it before its time, `signal` by which
    number, if any; `log` is the file with what its runs printed, where one of them failed."""

    result: TrialResult
    seconds: float
    kept: tuple[str, ...] = ()
    confirmed: dict[tuple[str, ...], Confirmed] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    foretold: dict[str, Foretold] = field(default_factory=dict)
    budget_s: float = 0.0
    ended: str = ""
    signal: int = 0
    log: str = ""

    @property
    def counts(self) -> tuple[int, int]:
        """How many of the changes that apply were tried, and how many apply as far as is known."""

        applied = {one.name for one in self.result.tried if (one.pairs or one.failed or one.left) and not one.refused}
        tried = {one.name for one in self.result.tried if one.pairs or one.failed}
        return len(tried), len(applied | tried)

    @property
    def left(self) -> tuple[str, ...]:
        """Changes that may apply and were not tried, what is foretold to win most first."""
        tried = {one.name for one in self.result.tried if one.pairs or one.failed or one.refused}
        names = dict.fromkeys(one.name for one in self.result.tried if one.name not in tried)
        return tuple(sorted(names, key=lambda n: -(self.foretold[n].value if n in self.foretold else 0.0)))


Decided = Literal["kept", "taken back", "offered"]


@dataclass(frozen=True, slots=True)
class Repair:
    """What became of one edit at one line. `why` is the reason of what was decided; `diff` is as `patch -p1` takes it.

    Of one that was run: milliseconds a step before it and after it, the effect with its interval, the check, of one
    that is kept its commit, and of one that ends waits how many there were in a recorded step before it and after it.
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
    check: LossCheck | None = None
    commit: str = ""
    waits: tuple[float, float] | None = None

    @property
    def waits_text(self) -> str:
        """Its waits in words; empty where nobody counted."""
        return f"{self.waits[0]:.3g} waits a step before, {self.waits[1]:.3g} after" if self.waits else ""


@dataclass(frozen=True, slots=True)
class RepairAnswer:
    """All that was made of a program: its edits in order, its step before the first, and the file with what its runs
    printed, where one of them failed."""

    base_ms: float
    repairs: tuple[Repair, ...]
    ended: str
    seconds: float
    log: str = ""

    @property
    def kept(self) -> tuple[Repair, ...]:
        """The edits that hold."""
        return tuple(repair for repair in self.repairs if repair.decided == "kept")

    @property
    def steps_ms(self) -> tuple[float, ...]:
        """The step before the first edit that holds and after each of them, by the pairs that decided it: a machine
        that is slower an hour later is no edit's."""
        ratios = (repair.effect.ratio if repair.effect else 1.0 for repair in self.kept)
        return tuple(self.base_ms * ratio for ratio in accumulate(ratios, mul, initial=1.0))

    @property
    def after_ms(self) -> float:
        """The step after the last edit that holds."""
        return self.steps_ms[-1]

    @property
    def ratios(self) -> tuple[float, float, float]:
        """The step after all edits that hold over the step before them, and from where to where it may be. Each was
        decided by pairs of its own, so what each may be off, as a share of it, adds as squares."""
        effects = [repair.effect for repair in self.kept if repair.effect]
        ratio = prod(effect.ratio for effect in effects)
        down, up = (hypot(*(getattr(one, end) / one.ratio - 1 for one in effects)) for end in ("low", "high"))
        return ratio, ratio * max(1 - down, 0.0), ratio * (1 + up)
