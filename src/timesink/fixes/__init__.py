"""The changes that people make: what one is, the rows by topic, and (`table`) all there are.

Of a change it is said what to type, what it takes, which findings it answers, and how it is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from timesink.fixes.grammar import VERBS, Verb
from timesink.recipes import Effort, Recipe, Words
from timesink.records import Record

if TYPE_CHECKING:
    from timesink.model.trace import Trace
    from timesink.whatif import Change, Target


class Offer(StrEnum):
    """When a plan tries a fix, and what it replays."""

    ASKED = "the changes of the findings that ask for it"
    ALWAYS = "its own replay, whether a finding asks for it or not"
    UNASKED = "the changes of its findings, and its own replay where there are none"


Memory = Literal["", "unknown", "working", "again", "sent"]
"""What a fix takes of the device's memory: nothing, what no capture says, or a field of
`diagnosis.plan.batch.DeviceMemory`."""

Precondition = Callable[["Trace"], str]
"""Why a change cannot be followed, as far as a trace shows that; '' where it can."""
Found = TypeVar("Found")
_LAUNCH_RULES: Final = frozenset({"launch_bound", "tiny_kernels", "host_python"})


class Beside(Record):
    """What a fix is made beside in a plan: the names of `chosen` fixes, of those that it `minds`; whether others leave
    the device less to do (`eased`); and the `rules` that found something in the trace."""

    chosen: frozenset[str]
    eased: bool
    rules: frozenset[str]

    @property
    def launches_count(self) -> bool:
        """Whether launches hold the device up: a rule says so, or other changes have left it less to do."""
        return self.eased or bool(self.rules & _LAUNCH_RULES)


def _as_found(found: Change) -> Change:
    """What was found, where that is a change already."""
    return found


class BenchForm(Record):
    """What a bench (`trials`) measures of a fix in place of assumptions: the `form` in which operators with kernels of
    these `families`, or without any the optimizer, are run; a `call` of the CPU; a `figure` of the machine. Beside it
    the kernels of others are others: what it `makes` of them."""

    form: str = ""
    families: tuple[str, ...] = ()
    call: Literal["", "cast", "fetch", "region"] = ""
    figure: str = ""
    makes: Literal["", "compile", "bf16", "fp16"] = ""


class Fix(Record, eq=False):
    """One change to a program, in the field's words.

    `words` are its name, what to type, and what it takes: a `recipe` where `try` switches it or `fix` writes it. They
    are of PyTorch where that is said in others `elsewhere`; a fix `of_pytorch` is made in no other program. `answers`
    are the rules whose findings it repairs: ``precision`` for all of them, ``precision/tf32`` for those that propose
    the fix of that name. `subsumes` are fixes that it makes as well, `excludes` those that cannot stand beside it,
    `needs` those that must be made before, `after` those that come before it where they win anything. `memory` is what
    it takes of the device's. Its advice is said only where no `preconditions` refuses it.

    `find` is what it would change in a trace, as a measure selects it; `change` makes of each the change that the
    what-if engine replays, and of a target where `aim` does not say what is changed there; `beside` makes the changes
    in a plan, where what else is made matters: the fixes that it `minds`. So a finding, `what-if` and a plan have one
    price. `none` says of a target, or of all, why nothing is changed there.

    `does_more` says that it does more than the findings it repairs ask for, `of_launches` that it changes launches
    themselves, `same_kernels` that the kernels stay those that they are.

    """

    words: Words
    elsewhere: str = ""
    answers: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    subsumes: tuple[str, ...] = ()
    memory: Memory = ""
    find: Callable[[Trace], Iterable[Any]] | None = None
    aim: Callable[..., Iterable[Change]] | None = None
    change: Callable[..., Any] = _as_found
    beside: Callable[[Trace, Beside], Iterable[Change]] | None = None
    minds: tuple[str, ...] = ()
    preconditions: tuple[Precondition, ...] = ()
    bench: BenchForm = BenchForm()
    none: Callable[..., str] = lambda trace, target: "nothing in these steps matches"
    offer: Offer = Offer.ASKED
    does_more: bool = False
    of_launches: bool = False
    same_kernels: bool = False
    of_pytorch: bool = False

    @property
    def name(self) -> str:
        """Its name: of no other."""
        return self.words.name

    @property
    def verb(self) -> Verb | None:
        """What can be said of it where it is typed (`grammar`)."""
        return VERBS.get(self.name)

    @property
    def form(self) -> str:
        """How it is written after `--change`: ``streams [kernel:REGEX] N``."""
        return f"{self.name} {self.verb.takes if self.verb else ''}".rstrip()

    @property
    def title(self) -> str:
        """What to type."""
        return self.words.title

    @property
    def effort(self) -> Effort:
        """What it takes of whoever makes it."""
        return self.words.effort

    @property
    def costs(self) -> str:
        """What it costs, in words."""
        return self.words.costs

    @property
    def recipe(self) -> Recipe | None:
        """How it is switched and edited, if so."""
        return self.words if isinstance(self.words, Recipe) else None

    def replay(self, trace: Trace, beside: Beside | None = None) -> Iterable[Any]:
        """The changes that it makes in a trace, by itself or beside others; mostly one for each device."""
        if beside is not None and self.beside is not None:
            return self.beside(trace, beside)
        return map(self.change, self.find(trace)) if self.find is not None else ()

    def refused(self, trace: Trace) -> str:
        """Why it cannot be followed in the program of a trace, as far as the trace shows that; '' where it can."""
        return next(filter(None, (asked(trace) for asked in self.preconditions)), "")

    def repairs(self, rule: str, fix: str) -> bool:
        """Whether it answers a finding of that rule that proposes the fix of that name."""
        return rule in self.answers or f"{rule}/{fix}" in self.answers


def of(find: Callable[[Trace], Mapping[str, Iterable[Found]]], kind: str) -> Callable[[Trace], Iterable[Found]]:
    """Of what a measure selects by kinds, that of one."""
    return lambda trace: find(trace)[kind]


def aimed(
    select: Callable[[Trace, Target], Iterable[Found]], change: Callable[[Found], Change]
) -> Callable[[Trace, Target], Iterable[Change]]:
    """The change of each part that a target names."""
    return lambda trace, target: map(change, select(trace, target))


def everything(_: Trace) -> tuple[Target, ...]:
    """All that such a change can be made of."""
    from timesink.whatif import EVERYTHING

    return (EVERYTHING,)


def on_rank(changes: Iterable[Change], rank: int) -> tuple[Change, ...]:
    """Those of a rank's devices, and of its host, that change anything."""
    return tuple(
        change
        for change in changes
        if getattr(change, "device", (rank,))[0] == rank and _is_any(getattr(change, "rows", None))
    )


def _is_any(rows: Any) -> bool:
    """Whether there are rows; None is all of them."""
    return rows is None or bool(rows.size)
