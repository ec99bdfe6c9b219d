"""Recipes: how each change is made, switched in a running program or written into its source.

Imports nothing but the standard library, for part of it runs inside the program that is tried. A file of this folder is
one topic: its functions, and below them the recipes that they make. The folder is the registry (`table`): a recipe that
no row of `fixes` names is a change of which no trace foretells anything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from timesink.recipes.program import RunningProgram
from timesink.recipes.source import Proposal, Source

Drift = Literal["exact", "other batches", "rounding", "lower precision"]
"""How far a change may move results: not at all, as other batches of the same data do, by rounding, or by precision."""
Place = Literal["model", "optimizer", "loader", ""]
"""What the program makes at the line where a change is written; '' where that is no such line."""
Undo = Callable[[], object]
Finder = Callable[[Source, int], Iterable[Proposal]]
"""The places of a file at which an edit may be made, about the line (from 1) where the program made what it edits."""


class Effort(StrEnum):
    """What a change takes of whoever makes it."""

    FLAG = "a flag"
    LINES = "a few lines"
    REWRITE = "a rewrite"
    UNKNOWN = "see the advice"


@dataclass(frozen=True, slots=True)
class Words:
    """A change in words: its name, what to type, and what it takes and costs of the program.

    `title` is empty where what to type depends on the finding, whose advice says it.
    """

    name: str
    title: str = ""
    effort: Effort = Effort.UNKNOWN
    costs: str = ""


@dataclass(frozen=True, slots=True)
class Switch:
    """How a change is switched on in a running program: `turn_on` makes it, and returns what undoes it. Where it does
    not apply it raises `Refusal` with the reason.

    `warm_up` steps are not timed after it is first on, and `settle` steps whenever it is on again. `cost_s`: about what
    it takes to try it. `loader`: the arguments of a loader that it is, with which a fresh process makes its first one.
    `each_step` is called before each step with it.
    """

    turn_on: Callable[[RunningProgram], Undo]
    warm_up: int = 2
    settle: int = 1
    cost_s: float = 3.0
    loader: Mapping[str, Any] = field(default_factory=dict)
    each_step: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe(Words):
    """A change that can be made: by a switch, by edits of the source, or both.

    `where` is what of the program is edited to keep it; an edit without it looks the whole file through. It cannot be
    on beside those that it `excludes`. `on_gpu`: without a GPU an edit changes nothing.
    `ends_waits`: an edit that leaves as many waits a step as there were is not kept. `priced_as` is the change of whose
    price it takes a part, where no plan prices it.
    """

    drift: Drift
    where: Place = ""
    excludes: tuple[str, ...] = ()
    switch: Switch | None = None
    edits: tuple[Finder, ...] = ()
    on_gpu: bool = False
    ends_waits: bool = False
    priced_as: str = ""
