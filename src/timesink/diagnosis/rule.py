"""The contract of a rule: what it reads, what it compares with, what it answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from timesink.diagnosis.verdicts import Card, Clear, Evidence, Finding, Found, Limit, Verdict
from timesink.model.schema import Table
from timesink.model.trace import Trace

Result = TypeVar("Result")


class Facts:
    """A trace and the measures taken of it so far: `facts(measure)` computes once and remembers."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._known: dict[Callable[[Trace], Any], Any] = {}

    def __call__(self, measure: Callable[[Trace], Result]) -> Result:
        """The measure of this trace, computed at most once."""
        if measure not in self._known:
            self._known[measure] = measure(self.trace)
        result: Result = self._known[measure]
        return result


class Limits:
    """The limits of one rule with a run's overrides applied; `limits["idle_share"]` is a plain number."""

    def __init__(self, declared: Mapping[str, Limit], overrides: Mapping[str, float] = MappingProxyType({})) -> None:
        self._declared = declared
        self._overrides = overrides

    def __getitem__(self, name: str) -> float:
        return self._overrides.get(name, self._declared[name].default)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """`needs` are the tables `check` cannot do without (a missing one makes the rule undecided before it runs);
    `reads` are those it uses where they exist. `capture` is the command that records the needed tables."""

    card: Card
    needs: tuple[Table, ...]
    check: Callable[[Facts, Limits], Verdict]
    limits: Mapping[str, Limit] = field(default_factory=dict)
    reads: tuple[Table, ...] = ()
    capture: str = "timesink capture nsys -- python train.py"


def found_or_clear(judged: Iterable[tuple[Finding | None, Evidence]]) -> Found | Clear:
    """Found with every finding of the places judged; without one, Clear with what was seen at each."""
    places = tuple(judged)
    found = tuple(finding for finding, _ in places if finding is not None)
    return Found(found) if found else Clear(tuple(evidence for _, evidence in places))
