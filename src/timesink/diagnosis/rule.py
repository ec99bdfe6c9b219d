"""The contract of a rule: the tables it reads, the limits it compares with, the verdict it gives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from timesink.diagnosis.verdicts import Card, Clear, Evidence, Finding, Found, NotApplicable, Undecided, Verdict
from timesink.model.record import dataclass, field

if TYPE_CHECKING:  # the limits of experiments are declared where polars may be absent
    from timesink.model.schema import Table
    from timesink.model.trace import Trace


@dataclass(frozen=True, slots=True)
class Limit:
    """A threshold of a rule: its default, its unit, why it is that high, and the source of the figure."""

    default: float
    unit: str
    why: str
    source: str

    @classmethod
    def ratio(cls, default: float, why: str, source: str) -> Limit:
        """The limit of a share, 0 to 1."""
        return cls(default, "ratio", why, source)


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
    """A rule is declared by a module of its own, from which its name and its page are derived (see `card`).

    `code` is three letters and a number, never reused. `needs` are the tables that `check` cannot do without: where one
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

    @property
    def card(self) -> Card:
        """The rule's identity, taken from the module of `check`: its file's stem and its docstring."""
        module = sys.modules[self.check.__module__]
        return Card(
            code=self.code,
            name=module.__name__.rpartition(".")[2].replace("_", "-"),
            summary=summary_of(module.__doc__ or ""),
            doc=module.__doc__ or "",
            since=self.since,
            references=self.references,
            symptom=self.symptom,
        )

    def verdict(self, trace: Trace, overrides: Mapping[str, float] = MappingProxyType({})) -> Verdict:
        """The verdict on a trace, with the limits named in `overrides` (by their names in this rule) set to those."""
        missing = [table.name for table in self.needs if table not in trace]
        if missing:
            what = "table" if len(missing) == 1 else "tables"
            return Undecided(f"the trace has no {what} {', '.join(missing)}", self.capture)
        return self.check(trace, Limits(self.limits, overrides))


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
