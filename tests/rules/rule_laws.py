"""The laws every rule obeys (DESIGN section 6). Each returns what is wrong, in words; empty means the rule obeys it."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from tests.rules.cases import VERDICTS, Case, Watched, differences

from timesink.diagnosis.judge import DeclaredRule
from timesink.diagnosis.rule import Limit, Rule
from timesink.diagnosis.verdicts import Card, Clear, Found, NotApplicable, Undecided, Verdict
from timesink.measures.timeline.known import known
from timesink.records import replace
from timesink.render.brief import short_advice

HEADINGS = ("What it detects", "Why it matters", "How it is measured", "What to do", "When it misleads")
NEAR = 1.25
ADVICE = 60  # characters that a table has room for
COUNTED = ("", "1", "steps", "calls", "kernels", "copies", "launches", "gaps", "devices", "ranks", "events", "samples")
WORDS = ("very", "significant", "huge", "massive", "extreme", "excessive", "dramatic", "severe", "poor")
DEGREE = re.compile(rf"\b(?:{'|'.join(WORDS)})\w*", re.IGNORECASE)


def module_of(rule: Rule) -> ModuleType:
    module = inspect.getmodule(rule.check)
    assert module is not None
    return module


def page_faults(page: str) -> list[str]:
    """Five headings, in order, each with something under it; every figure in braces is an assumption's."""
    lines = [line.rstrip() for line in page.splitlines()]
    at = [lines.index(f"## {heading}") if f"## {heading}" in lines else -1 for heading in HEADINGS]
    faults = [f"no heading '## {heading}'" for heading, line in zip(HEADINGS, at, strict=True) if line < 0]
    if faults:
        return faults
    if at != sorted(at):
        faults.append(f"the headings stand in another order than {', '.join(HEADINGS)}")
    bounds = zip(HEADINGS, at, [*at[1:], len(lines)], strict=True)
    empty = [head for head, start, end in bounds if not any(re.search(r"\w", line) for line in lines[start + 1 : end])]
    faults += [f"nothing stands under {head!r}" for head in empty]
    unknown = re.findall(r"\{\w+\.\w+[^}]*\}", page)
    return faults + [f"no assumption is called {name}" for name in unknown]


def card_faults(card: Card) -> list[str]:
    faults = []
    if not re.fullmatch(r"[A-Z]{3}[0-9]{3}", card.code):
        faults.append(f"code {card.code!r} is not three letters and three digits")
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", card.name):
        faults.append(f"name {card.name!r} is not lower-case words joined by '-'")
    if not card.summary or card.summary.endswith(".") or "..." in card.summary or "\n" in card.summary:
        faults.append(f"the summary is not one phrase without a full stop: {card.summary!r}")
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?", card.since):
        faults.append(f"since {card.since!r} is not a version")
    return faults


def limit_faults(limits: Mapping[str, Limit]) -> list[str]:
    """Every limit says why it stands there and where the figure comes from."""
    faults = [f"limit {name} has no why" for name, limit in limits.items() if len(limit.why.split()) < 3]
    return faults + [f"limit {name} has no source" for name, limit in limits.items() if not limit.source.strip()]


def verdict_faults(rule: Rule, cases: tuple[Case, ...]) -> list[str]:
    """A case for each verdict the rule can give: those its functions name, and undecided where it needs a table."""
    shown = {case.expected.verdict for case in cases}
    named = vars(module_of(rule)).values() if not rule.name else list(values_named(rule.check))
    can = {kind for kind in VERDICTS.values() if any(value is kind or type(value) is kind for value in named)}
    can |= {Undecided} if rule.needs else set()
    if isinstance(declared := getattr(rule.check, "__self__", None), DeclaredRule):
        can |= {Found, Clear} | ({NotApplicable} if "otherwise" in declared.texts.said else set())
        named = list(values_named(declared.rows))
        can |= {kind for kind in VERDICTS.values() if any(value is kind for value in named)}
    return [f"no case shows {name!r}" for name, kind in VERDICTS.items() if kind in can - shown]


def values_named(function: Callable[..., Any]) -> Iterator[object]:
    """What a function names of its module, a verdict by its kind, and what functions of that module name that it
    calls."""
    if isinstance(function, MethodType):
        return
    codes = [function.__code__, *(part for part in function.__code__.co_consts if isinstance(part, CodeType))]
    for name in {name for code in codes for name in code.co_names} & function.__globals__.keys():
        value = function.__globals__[name]
        yield type(value) if isinstance(value, NotApplicable | Undecided) else value
        if isinstance(value, FunctionType) and value.__module__ == function.__module__ and value is not function:
            yield from values_named(value)


def case_faults(rule: Rule, case: Case) -> list[str]:
    """The verdict is the expected one, and its sentences keep to the house style."""
    unknown = sorted(set(case.limits) - set(rule.limits))
    if unknown:
        return [f"the case sets limits the rule has not: {', '.join(unknown)}"]
    verdict = rule.verdict(case.watched, case.limits)
    return differences(case, verdict) + style_faults(verdict)


def style_faults(verdict: Verdict) -> list[str]:
    if isinstance(verdict, Undecided):
        return [] if verdict.to_decide else ["undecided, and does not say what would decide it"]
    if not isinstance(verdict, Found):
        return []
    faults = []
    for finding in verdict.findings:
        sentences = f"{finding.message} {finding.advice}"
        faults += [f"adjective of degree {word.group()!r} in {sentences!r}" for word in DEGREE.finditer(sentences)]
        if not re.search(r"\d (%|ns|us|ms|s|B|kB|MB|GB|TB|GB/s)\b|\d %", finding.message):
            faults.append(f"no number with a unit in {finding.message!r}")
        if len(first := short_advice(finding.advice)) > ADVICE or first.count("(") != first.count(")"):
            faults.append(f"the first clause of an advice takes one line and is whole: {first!r}")
        if not any(fact.limit for fact in finding.evidence):
            faults.append(f"no evidence names its limit: {finding.message!r}")
        faults += [f"{name} is empty" for name in ("message", "advice", "verify") if not getattr(finding, name).strip()]
    return faults


def undeclared_tables(rule: Rule, case: Case) -> list[str]:
    """Tables that were asked for and are in neither `needs` nor `reads`, once it is decided what is known."""
    tables = Watched(case.trace.tables)
    own = replace(case.trace, tables=tables)  # of which nothing is remembered, whichever law came before
    known(own)
    tables.asked.clear()
    rule.verdict(own, case.limits)
    return sorted(tables.asked - {table.name for table in (*rule.needs, *rule.reads)})


def near_miss_faults(rule: Rule, cases: tuple[Case, ...]) -> list[str]:
    """Each limit has a case on each side of it: one whose verdict changes when the limit is raised by a quarter, and
    one whose verdict changes when it is lowered by as much (counted things: by a quarter or by one)."""
    faults = []
    traces = [case.watched for case in cases]
    usual = [_gist(rule.verdict(trace, case.limits)) for case, trace in zip(cases, traces, strict=True)]
    known = list(zip(cases, traces, usual, strict=True))
    for name, limit in rule.limits.items():
        for word, moved in (("raised", _raised(limit)), ("lowered", _lowered(limit))):
            if not any(
                _gist(rule.verdict(trace, {**case.limits, name: value})) != before
                for case, trace, before in known
                if name not in case.limits
                for value in moved
            ):
                faults.append(f"no case changes its verdict when {name} is {word} from {limit.default:g} to {moved}")
    return faults


def _raised(limit: Limit) -> tuple[float, ...]:
    return (limit.default * NEAR, limit.default + 1) if limit.unit in COUNTED else (limit.default * NEAR,)


def _lowered(limit: Limit) -> tuple[float, ...]:
    return (limit.default / NEAR, limit.default - 1) if limit.unit in COUNTED else (limit.default / NEAR,)


def _gist(verdict: Verdict) -> tuple[object, ...]:
    """What a verdict decides, without its figures."""
    if not isinstance(verdict, Found):
        return (type(verdict),)
    return (Found, *((finding.bottleneck, finding.where) for finding in verdict.findings))
