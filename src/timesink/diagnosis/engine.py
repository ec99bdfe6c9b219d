"""The engine applies every rule once and ranks what they found by the time a fix would win back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from timesink.diagnosis import headline
from timesink.diagnosis.pricing import Pricer, replay_price, shared
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.rule import Facts, Limits, Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Card,
    Diagnosis,
    Finding,
    Found,
    Limit,
    Quantity,
    Ruling,
    Undecided,
    Verdict,
)
from timesink.errors import UsageError
from timesink.measures.steps.per_step import period_name
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS

MATERIAL = Limit(
    default=0.01,
    unit="ratio",
    why="a finding worth less than one step in a hundred is reported, but is not the bottleneck",
    source="run-to-run deviation of step time is about 1 % on one GPU (docs/explanation/accuracy.md)",
)


def diagnose(
    trace: Trace,
    rules: Sequence[Rule] | None = None,
    overrides: Mapping[str, float] = MappingProxyType({}),
    unprofiled_step_ms: float | None = None,
    price: Pricer | None = None,
) -> Diagnosis:
    """The diagnosis of a trace: one ruling per rule, findings priced and ranked, one sentence as verdict.

    `overrides` maps ``"CODE.limit"`` to a value. `unprofiled_step_ms` is the step time without a profiler, which prices
    of host work are held against. Raises `UsageError` for a limit no rule has.
    """
    rules = all_rules() if rules is None else rules
    if unprofiled_step_ms is not None:
        trace = trace.with_unprofiled_step(unprofiled_step_ms * NS_PER_MS)
    known = _known_limits(rules, overrides)
    facts = Facts(trace)
    rulings = tuple(Ruling(rule.card, _verdict(rule, facts, known.get(rule.card.code, {}))) for rule in rules)
    step_ms = headline.step_ms(facts)
    findings = _ranked(rulings, facts, price or replay_price, step_ms)
    bottleneck, statement = _conclusion(findings, step_ms, facts)
    return Diagnosis(
        sources=headline.sources(trace),
        steps=headline.step_figures(facts),
        devices=headline.device_figures(facts),
        rulings=rulings,
        findings=findings,
        bottleneck=bottleneck,
        statement=statement,
        notes=headline.notes(facts),
        statements=headline.statements(facts),
    )


def _verdict(rule: Rule, facts: Facts, overrides: Mapping[str, float]) -> Verdict:
    missing = [table.name for table in rule.needs if table not in facts.trace]
    if missing:
        what = "table" if len(missing) == 1 else "tables"
        return Undecided(f"the trace has no {what} {', '.join(missing)}", rule.capture)
    return rule.check(facts, Limits(rule.limits, overrides))


def _ranked(
    rulings: Iterable[Ruling], facts: Facts, price: Pricer, step_ms: float | None
) -> tuple[tuple[Card, Finding], ...]:
    """Findings by value, those that claim the same device time sharing it; ties by code and message.

    Roots take their time before symptoms do, so that a slow launch after a blocking wait is the wait's.
    """
    period = period_name(facts.trace)
    found = [
        (ruling.card, replace(finding, recoverable=price(finding, facts), period=period))
        for ruling in rulings
        if isinstance(ruling.verdict, Found)
        for finding in ruling.verdict.findings
    ]
    roots_first = sorted(found, key=lambda entry: (entry[0].symptom, _rank(entry)))
    return tuple(sorted(shared(roots_first, facts, step_ms), key=_rank))


def _rank(entry: tuple[Card, Finding]) -> tuple[float, float, str, str]:
    card, finding = entry
    worth = finding.recoverable or Quantity(0.0, "ms")
    return (-worth.value, -(worth.high or worth.value), card.code, finding.message)


def _conclusion(
    findings: Sequence[tuple[Card, Finding]], step_ms: float | None, facts: Facts
) -> tuple[Bottleneck, str]:
    """The first finding decides, if it is worth at least the material share of a step."""
    if findings:
        _, first = findings[0]
        worth = first.recoverable.value if first.recoverable else 0.0
        if step_ms is None or worth >= MATERIAL.default * step_ms:
            return first.bottleneck, first.message
    return Bottleneck.NONE, headline.no_bottleneck(facts, bool(findings))


def _known_limits(rules: Sequence[Rule], overrides: Mapping[str, float]) -> dict[str, dict[str, float]]:
    known = {f"{rule.card.code}.{name}" for rule in rules for name in rule.limits}
    unknown = sorted(set(overrides) - known)
    if unknown:
        raise UsageError(
            f"no rule has the limit {', '.join(unknown)}", remedy=f"choose from: {', '.join(sorted(known))}"
        )
    by_code: dict[str, dict[str, float]] = {}
    for key, value in overrides.items():
        code, _, name = key.partition(".")
        by_code.setdefault(code, {})[name] = value
    return by_code
