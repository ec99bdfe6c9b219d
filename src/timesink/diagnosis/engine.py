"""The engine applies every rule once and ranks the findings by the time that a fix would win back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from timesink.diagnosis import headline
from timesink.diagnosis.budgets import step_budgets
from timesink.diagnosis.in_short import statements
from timesink.diagnosis.pricing import in_order, price, share_claims, within_claim
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.rule import Rule
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.verdicts import Bottleneck, Card, Diagnosis, Finding, Found, Limit, Note, Quantity, Ruling
from timesink.diagnosis.words import of_mean
from timesink.errors import UsageError, unknown
from timesink.knowledge.assumptions import changed
from timesink.measures.steps.per_step import period_name
from timesink.model.tables import KERNEL_PROFILES
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS

MATERIAL: Final = Limit(
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
) -> Diagnosis:
    """The diagnosis of a trace: one ruling per rule, findings priced and ranked, one sentence as verdict.

    `overrides` maps ``"CODE.limit"`` to a value. `unprofiled_step_ms` is the step time without a profiler, which prices
    of host work are held against. Raises `UsageError` for a limit no rule has.
    """
    if not isinstance(trace, Trace):
        raise UsageError(f"{trace!r:.80} is no trace", remedy=f"read it first: timesink.read({trace!r:.80})")
    rules = all_rules() if rules is None else rules
    if unprofiled_step_ms is not None:
        trace = trace.with_unprofiled_step(unprofiled_step_ms * NS_PER_MS)
    overrides_of = _overrides_by_code(rules, overrides)
    barred = headline.not_diagnosable(trace)
    rulings = tuple(Ruling(rule.card, barred or rule.verdict(trace, overrides_of.get(rule.code, {}))) for rule in rules)
    step_ms = headline.step_ms(trace)
    findings = _ranked_findings(rulings, trace, step_ms)
    bottleneck, statement = _conclusion(findings, step_ms, trace)
    return Diagnosis(
        sources=headline.sources(trace),
        steps=headline.step_figures(trace),
        devices=headline.device_figures(trace),
        rulings=rulings,
        findings=findings,
        bottleneck=bottleneck,
        statement=statement,
        partial="; ".join(trace.damage),
        notes=(*headline.notes(trace), *(Note(sentence) for sentence in changed())),
        budgets=step_budgets(trace),
        profiled_kernels=trace.get(KERNEL_PROFILES).height,
        statements=() if barred else statements(trace),
        facts=trace.facts,
    )


def _ranked_findings(
    rulings: Iterable[Ruling], trace: Trace, step_ms: float | None
) -> tuple[tuple[Card, Finding], ...]:
    """Findings by value, those that claim the same device time sharing it; ties by code and message.

    Roots take their time before symptoms do: a slow launch after a blocking wait is charged to the wait.
    """
    period, is_mean = period_name(trace), of_mean(trace)
    priced = [
        (
            ruling.card,
            replace(finding, recoverable=gain, priced_by=worth.by, period=period, of_ms=step_ms, of_mean=is_mean),
        )
        for ruling in rulings
        if isinstance(ruling.verdict, Found)
        for finding in ruling.verdict.findings
        for worth in (price(finding, trace),)
        for gain in (in_order(within_claim(worth, finding, trace)),)
    ]
    roots_first = sorted(priced, key=lambda entry: (entry[0].symptom, _rank(entry)))
    shared = share_claims(roots_first, trace, step_ms)
    return tuple(sorted(shared, key=lambda entry: (not _may_head(entry[1], step_ms, trace), *_rank(entry))))


def _may_head(finding: Finding, step_ms: float | None, trace: Trace) -> bool:
    """Whether it is worth a change of the usual step: a few slow steps come after all that are."""
    return _is_material(finding, step_ms) and not headline.is_of_few_steps(finding, trace)


def _is_material(finding: Finding, step_ms: float | None) -> bool:
    worth_ms = finding.recoverable.value if finding.recoverable else 0.0
    return step_ms is None or worth_ms >= MATERIAL.default * step_ms


def _rank(entry: tuple[Card, Finding]) -> tuple[float, float, str, str]:
    card, finding = entry
    worth = finding.recoverable or Quantity(0.0, "ms")
    return (-worth.value, -(worth.high or worth.value), card.code, finding.message)


def _conclusion(
    findings: Sequence[tuple[Card, Finding]], step_ms: float | None, trace: Trace
) -> tuple[Bottleneck, str]:
    """The first finding decides, if it is worth at least the material share of a step.

    Where that is one of a few slow steps, nothing in the usual step is worth a change, and the sentence says so.
    """
    if findings:
        _, first = findings[0]
        if _is_material(first, step_ms):
            usual = "the usual step holds nothing worth a change; " if headline.is_of_few_steps(first, trace) else ""
            worth = first.recoverable and first.recoverable.value
            saving = f"; a fix {saving_text(first, interval=False)}" if worth else ""
            return first.bottleneck, f"{usual}{first.message}{saving}"
    return Bottleneck.NONE, headline.no_bottleneck(trace, bool(findings))


def _overrides_by_code(rules: Sequence[Rule], overrides: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """``{"IDL101.idle_ratio": 0.2}`` as ``{"IDL101": {"idle_ratio": 0.2}}``."""
    names = {f"{rule.code}.{name}" for rule in {*rules, *all_rules()} for name in rule.limits}
    for name in sorted(set(overrides) - names):
        raise unknown("limit", name, sorted(names), "timesink rules")
    by_code: dict[str, dict[str, float]] = {}
    for key, value in overrides.items():
        code, _, name = key.partition(".")
        by_code.setdefault(code, {})[name] = value
    return by_code
