"""The contract of a rule: the tables it reads, the limits it compares with, the verdict it gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from timesink.diagnosis.verdicts import Card, Clear, Evidence, Finding, Found, NotApplicable, Undecided, Verdict
from timesink.model.record import dataclass, field

if TYPE_CHECKING:  # the limits of experiments are declared where polars may be absent
    from timesink.model.schema import Table
    from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold of a rule: its default, its unit, why it is that high, and the source of the figure.

    `passes` is what a figure must be, compared with it, for the judge of declared rules (`diagnosis.judge`) to find
    something.
    """

    default: float
    unit: str
    why: str
    source: str
    passes: Literal[">", ">=", "<"] = ">"

    @classmethod
    def ratio(cls, default: float, why: str, source: str, passes: Literal[">", ">=", "<"] = ">") -> Limit:
        """The limit of a share, 0 to 1."""
        return cls(default, "ratio", why, source, passes)

    def is_passed(self, figure: float, limit: float) -> bool:
        """Whether a figure passes the limit, which a run may have set to another figure than the default."""
        return figure < limit if self.passes == "<" else figure >= limit if self.passes == ">=" else figure > limit


HEALTHY: Final = "benchmarks/faults: healthy programs stay under it"
"""The source of a limit that no healthy program of the registry of planted faults passes."""


class Limits:
    """The limits of one rule with a run's overrides applied; `limits["idle_ratio"]` is a plain number."""

    def __init__(self, declared: Mapping[str, Limit], overrides: Mapping[str, float] = MappingProxyType({})) -> None:
        self._declared = declared
        self._overrides = overrides

    def __getitem__(self, name: str) -> float:
        return self._overrides.get(name, self._declared[name].default)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A rule: a code, a name and what judges a trace. Its page and its cases are `rules/<topic>/<name>.md`.

    `code` is three letters and a number, never reused. A rule without a `name` is the only one of its module, which
    holds its page and is called as it is. `needs` are the tables that `check` cannot do without: where one
    is missing, the rule is undecided before `check` runs. `reads` are the tables it uses where they exist. `capture` is
    the command that records the needed tables, `since` the version the rule first appeared in. `symptom` says that
    other causes look like this one too: where claims overlap, its findings take what the others leave. `every_step`
    says that it looks for steps that stand out: they are not left out for it.
    """

    code: str
    check: Callable[[Trace, Limits], Verdict]
    needs: tuple[Table, ...]
    reads: tuple[Table, ...] = ()
    limits: Mapping[str, Limit] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    symptom: bool = False
    every_step: bool = False
    capture: str = "timesink capture nsys -- python train.py"
    since: str = "0.1.0"
    name: str = ""

    @property
    def card(self) -> Card:
        """The rule's identity. The figures of its page are those that this run assumes."""
        from timesink.knowledge.assumptions import fill_figures

        if self.name:
            name, doc = self.name, page_text(self.name)
        else:
            module = sys.modules[self.check.__module__]
            name, doc = module.__name__.rpartition(".")[2].replace("_", "-"), module.__doc__ or ""
        return Card(self.code, name, summary_of(doc), fill_figures(doc), self.since, self.references, self.symptom)

    def verdict(self, trace: Trace, overrides: Mapping[str, float] = MappingProxyType({})) -> Verdict:
        """The verdict on a trace, with the limits named in `overrides` (by their names in this rule) set to those."""
        missing = [table.name for table in self.needs if table not in trace]
        if missing:
            what = "table" if len(missing) == 1 else "tables"
            return Undecided(f"the trace has no {what} {', '.join(missing)}", self.capture)
        return self.check(trace, Limits(self.limits, overrides))


CASES: Final = "\n# Cases\n"
"""The heading in a rule's file between its page and its cases."""


@cache
def page_paths() -> dict[str, Path]:
    """The files of pages and cases, `rules/<topic>/<name>.md`, by the name of their rule."""
    return {path.stem: path for path in Path(__file__).parents[1].joinpath("rules").glob("*/*.md")}


@cache
def page_text(name: str) -> str:
    """The page of the rule of that name, with the names of assumed figures in braces (`assumptions.fill_figures`)."""
    return page_paths()[name].read_text(encoding="utf-8").partition(CASES)[0]


def check_of(module: str, limit: str, verdict: Callable[[Trace, float], Verdict]) -> Callable[[Trace, Limits], Verdict]:
    """The `check` of a module whose verdict takes that one limit."""

    def check(trace: Trace, limits: Limits) -> Verdict:
        return verdict(trace, limits[limit])

    check.__module__ = module
    return check


def summary_of(doc: str) -> str:
    """The first line of a docstring as a phrase: no full stop, a small initial unless it begins an acronym."""
    line = doc.strip().partition("\n")[0].rstrip(".")
    return line if line[1:2].isupper() else line[:1].lower() + line[1:]


def found_or_clear(judged: Iterable[Finding | Evidence]) -> Found | Clear:
    """Found with the findings among what was judged; without one, Clear with what was measured at each place."""
    places = tuple(judged)
    findings = tuple(place for place in places if isinstance(place, Finding))
    return Found(findings) if findings else Clear(tuple(place for place in places if isinstance(place, Evidence)))


def applicable(judged: Iterable[Finding | Evidence], otherwise: str) -> Found | Clear | NotApplicable:
    """The same where there is any place to judge; `otherwise` says why the rule is not applicable without one."""
    places = tuple(judged)
    return found_or_clear(places) if places else NotApplicable(otherwise)
