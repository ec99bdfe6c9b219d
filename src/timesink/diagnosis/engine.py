"""The engine applies every rule once and ranks the findings by the time that a fix would win back.

Parts of a diagnosis run on two threads: compiled passes and queries let the interpreter go, and each rule is on its
own. What is measured is remembered per trace, and who asks for a measure that another thread takes waits for it; so the
answer is the same as that of one thread, which asks in order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from string import digits
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from timesink._native import give_back, usual_threads
from timesink.diagnosis import headline
from timesink.diagnosis.all_clear import without_finding
from timesink.diagnosis.budgets import step_budgets
from timesink.diagnosis.gains import beyond_error, in_order
from timesink.diagnosis.in_short import statements
from timesink.diagnosis.pricing import longer_text, price, within_claim, worth_ms
from timesink.diagnosis.registry import all_rules, find
from timesink.diagnosis.rule import Limit, Rule
from timesink.diagnosis.rule_names import check_limits
from timesink.diagnosis.saving import saving_text
from timesink.diagnosis.sharing import share_claims
from timesink.diagnosis.undiagnosable import unclaimed
from timesink.diagnosis.verdicts import Card, Diagnosis, Finding, Found, Note, Quantity, Ruling, Undecided
from timesink.diagnosis.words import as_started, which_step
from timesink.errors import UsageError
from timesink.knowledge.assumptions import changed
from timesink.knowledge.step_parts import Bottleneck
from timesink.knowledge.vendors import NVIDIA, Vendor, as_of
from timesink.measures.counters import kernel_counters
from timesink.measures.ranks.telling import telling
from timesink.measures.steps.per_step import longest_period_ns, period_name, step_windows
from timesink.measures.steps.slow_steps import usual_steps
from timesink.measures.timeline.known import known
from timesink.model.arrays import WEIGHTY
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import MEASURES_AHEAD, Trace, release, remembered
from timesink.records import replace
from timesink.units import NS_PER_MS

MATERIAL: Final = Limit.ratio(
    0.01,
    "a finding worth less than one step in a hundred is reported, but is not the bottleneck",
    "run-to-run deviation of step time is about 1 % on one GPU (docs/explanation/accuracy.md)",
)

BOUND: Final = Limit.ratio(
    0.1,
    "of a gain that may be nothing no part is sure: from a tenth of the step on it is the headline, as a bound",
    "benchmarks/faults: kernels of healthy ranks take up to 6 % of a step longer beside communication",
)


def diagnose(
    trace: Trace,
    rules: Sequence[Rule] | None = None,
    overrides: Mapping[str, float] = MappingProxyType({}),
    unprofiled_step_ms: float | None = None,
) -> Diagnosis:
    """The diagnosis of a trace: one ruling per rule, findings priced and ranked, one sentence as verdict.

    `overrides` maps ``"CODE.limit"`` to a value. `unprofiled_step_ms` is the step time without a profiler, which prices
    of host work are held against. Of a job of many ranks a few are looked into, which a note names. Raises `UsageError`
    for a limit no rule has.
    """
    if not isinstance(trace, Trace):
        raise UsageError(f"{trace!r:.80} is not a trace", remedy=f"read it first: timesink.read({trace!r:.80})")
    rules = all_rules() if rules is None else rules
    if unprofiled_step_ms is not None:
        trace = trace.with_unprofiled_step(unprofiled_step_ms * NS_PER_MS)
    overrides_of, whole, trace = _overrides_by_code(rules, overrides), trace, telling(trace)
    with second_thread(trace) as thread:
        for measure in MEASURES_AHEAD:
            begun(thread, partial(measure, trace))
        barred = headline.not_diagnosable(trace)
        usual = None if barred else usual_steps(trace)
        if thread is None and _is_long(trace) and not barred:
            for measure in MEASURES_AHEAD:  # what takes most memory, before there is more to remember
                measure(trace)

        def ruling(rule: Rule) -> tuple[Ruling, Trace]:
            return _ruling(rule, trace, usual, overrides_of.get(rule.code, {}), barred)

        judged = _judged(rules, ruling, trace, thread)
        budgets = begun(thread, lambda: () if barred else step_budgets(trace))
        said = begun(thread, lambda: () if barred else statements(trace))
        ranked = _ranked_findings(judged, trace, usual, thread)
    vendor = known(trace).vendor
    findings = tuple((found.card, _told(found.finding, vendor)) for found in ranked)
    rulings, parts = tuple(ruling for ruling, _ in judged), budgets()
    looked_at = not barred and len(rules) == len(all_rules())
    bottleneck, statement = _conclusion(ranked, trace, usual, rulings)
    return Diagnosis(
        sources=headline.sources(whole),
        steps=headline.step_figures(trace),
        devices=headline.device_figures(trace),
        rulings=rulings,
        findings=findings,
        bottleneck=bottleneck,
        statement=statement,
        partial="; ".join(trace.damage),
        notes=(
            *(unclaimed(trace, parts, [finding for _, finding in findings]) if looked_at else ()),
            *headline.notes(trace, whole),
            *headline.steps_apart(usual),
            *(Note(sentence) for sentence in _left_open(rulings)),
            *(Note(sentence) for sentence in changed()),
        ),
        budgets=parts,
        profiled_kernels=sum(kernel.launches for kernel in kernel_counters(trace)),
        statements=said(),
        facts=trace.facts,
    )


def ruling_of(name: str, trace: Trace) -> Ruling:
    """The ruling of the rule of that name in a diagnosis of the trace."""
    trace = telling(trace)
    barred = headline.not_diagnosable(trace)
    return _ruling(find(name), trace, None if barred else usual_steps(trace), {}, barred)[0]


def _left_open(rulings: Iterable[Ruling]) -> Iterator[str]:
    """What no rule could decide though it may be worth a change, and what decides it."""
    for ruling in rulings:
        left = ruling.verdict
        if isinstance(left, Undecided) and left.most_ratio >= MATERIAL.default:
            yield f"{ruling.card.name} is undecided: {left.why}. To decide: {left.to_decide}"


def _judged(
    rules: Sequence[Rule], ruling: Callable[[Rule], tuple[Ruling, Trace]], trace: Trace, thread: Executor | None
) -> list[tuple[Ruling, Trace]]:
    """The ruling of each rule, in their order; with a second thread each takes the next rule that nobody has begun."""
    if thread is not None:
        return [judge() for judge in [begun(thread, partial(ruling, rule)) for rule in rules]]
    if not _is_long(trace):
        return [*map(ruling, rules)]
    judged = []
    for topic, of_topic in groupby(rules, key=lambda rule: rule.code.rstrip(digits)):
        for rule in of_topic:
            judged.append(ruling(rule))
            give_back()
        release(topic, trace)
    return judged


def _is_long(trace: Trace) -> bool:
    """Whether there are so many rows that those weigh which rules of later topics hardly ask for."""
    return trace.get(DEVICE_OPS).height > WEIGHTY


def _ruling(
    rule: Rule, trace: Trace, usual: Trace | None, overrides: Mapping[str, float], barred: Undecided | None
) -> tuple[Ruling, Trace]:
    """What a rule says, and of which steps: of the `usual` ones, but of all where it finds something in those alone."""
    if barred:
        return Ruling(rule.card, barred), trace
    own = trace if usual is None or rule.every_step else usual
    verdict = rule.verdict(own, overrides)
    if own is usual and not isinstance(verdict, Found):
        apart = rule.verdict(trace, overrides)
        if isinstance(apart, Found):
            return Ruling(rule.card, apart), trace
    if isinstance(verdict, Undecided):
        verdict = replace(verdict, to_decide=as_started(trace, verdict.to_decide))
    return Ruling(rule.card, verdict), own


class _Ranked(NamedTuple):
    """A finding; `is_apart` says that it is not of the usual step."""

    card: Card
    finding: Finding
    is_apart: bool


def _ranked_findings(
    judged: Iterable[tuple[Ruling, Trace]], trace: Trace, usual: Trace | None, thread: Executor | None
) -> tuple[_Ranked, ...]:
    """Findings by value, those that claim the same device time sharing it; ties by code and message.

    Roots take their time before symptoms do: a slow launch after a blocking wait is charged to the wait. What only
    a few slow steps have comes after all that is worth a change of the usual step.
    """
    has_usual = usual is not None
    found = [
        (ruling.card, finding, own, begun(thread, partial(_priced, finding, own, trace, usual)))
        for ruling, own in judged
        if isinstance(ruling.verdict, Found)
        for finding in ruling.verdict.findings
    ]
    priced = [
        _Ranked(card, price(), (has_usual and own is trace) or headline.is_of_few_steps(finding, own))
        for card, finding, own, price in found
    ]

    def order(one: _Ranked) -> tuple[Any, ...]:
        return (has_usual and one.is_apart, one.card.symptom, _rank(one))

    def before_its_parts(one: _Ranked) -> tuple[Any, ...]:
        parts = [part for part in priced if _is_part(part, one.finding)] if one.finding.cause else []
        return min(order(one), *map(order, parts)) if parts else order(one), not parts

    roots_first = sorted(priced, key=before_its_parts)
    shared = share_claims([one[:2] for one in roots_first], trace, headline.step_ms(trace))
    ranked = [_Ranked(*own, one.is_apart) for one, own in zip(roots_first, shared, strict=True)]
    return tuple(sorted(ranked, key=lambda one: (one.is_apart or not _is_material(one.finding), *_rank(one))))


def _is_part(one: _Ranked, whole: Finding) -> bool:
    return one.card.name == whole.cause and one.finding.where.rank == whole.where.rank


def _priced(finding: Finding, own: Trace, whole: Trace, usual: Trace | None) -> Finding:
    """The finding with its price; of the usual steps it claims nothing in those that are apart. One that is of all
    steps beside usual ones is a share of their mean, by that name."""
    worth = price(finding, own)
    gain = in_order(within_claim(worth, finding, own))
    if worth.by == "replay":
        gain = beyond_error(gain, _step_of(own)["of_ms"] or 0.0)
    claim = finding.claim
    if own is not whole:
        parts = {device: part - _apart(device, own, whole) for device, part in claim.intervals.items()}
        claim = replace(claim, intervals=parts)
    message = finding.message + longer_text(finding, worth._replace(gain=gain), own)
    found = replace(finding, message=message, claim=claim, recoverable=gain, priced_by=worth.by, **_step_of(own))
    if usual is not None and own is not usual:
        found = replace(found, which="mean", of_ms=longest_period_ns(own) / NS_PER_MS)
    return _of_one_whole(found)


def _of_one_whole(found: Finding) -> Finding:
    """The finding less its shares of the recorded step, where what a fix saves is one of the step without the profiler:
    those of two wholes do not stand in one answer."""
    message = found.message
    for part in found.parts if found.which == "unprofiled" else ():
        message = message.replace(part, part.alone)
    return replace(found, message=message)


def _apart(device: tuple[int, int], usual: Trace, whole: Trace) -> Intervals:
    """When a device was in steps that are not of the usual ones."""
    every, kept = (Intervals.union_of(*step_windows(trace, device)) for trace in (whole, usual))
    return every - kept


@remembered
def _step_of(trace: Trace) -> Mapping[str, Any]:
    """What a finding says of the step that its gain is a share of."""
    step_ms = headline.step_ms(trace)
    return {"period": period_name(trace), "of_ms": step_ms, "which": which_step(trace, step_ms)}


def _is_material(finding: Finding) -> bool:
    """Whether it is worth a change: by what is expected, or, where that is nothing, by how much it may be."""
    gain = finding.recoverable or Quantity(0.0, "ms")
    of_ms = finding.of_ms or 0.0
    return not of_ms or (gain.value >= MATERIAL.default * of_ms if gain.value else gain.most >= BOUND.default * of_ms)


def _told(finding: Finding, vendor: Vendor) -> Finding:
    """The finding as it is shown: its advice names tools of the GPU's maker, and the time that recording costs ranks
    it, and is no saving."""
    if vendor is not NVIDIA:
        finding = replace(finding, advice=as_of(vendor, finding.advice))
    is_artefact = finding.bottleneck is Bottleneck.PROFILER_OVERHEAD
    return replace(finding, recoverable=None, priced_by=None) if is_artefact else finding


def _may_save(finding: Finding) -> bool:
    return bool(finding.recoverable and finding.of_ms and finding.recoverable.most >= MATERIAL.default * finding.of_ms)


def _rank(entry: _Ranked) -> tuple[float, float, str, str]:
    card, finding, _ = entry
    worth = finding.recoverable or Quantity(0.0, "ms")
    return (-worth_ms(finding) * finding.behind, -worth.most, card.code, finding.message)


def _conclusion(
    ranked: Sequence[_Ranked], trace: Trace, usual: Trace | None, rulings: Sequence[Ruling] = ()
) -> tuple[Bottleneck, str]:
    """The first finding decides, if it is worth at least the material share of a step.

    Where that is one of a few slow steps, nothing in the usual step is worth a change, and the sentence says so. Of two
    steps nobody knows which is the usual one: only what both have is said.
    """
    first_said, reading = headline.preface(trace, usual), headline.said_of_reading(trace)
    if ranked and _is_material(ranked[0].finding) and not (first_said and ranked[0].is_apart):
        _, first, is_apart = ranked[0]
        if too_little := headline.too_little(trace, first):
            return Bottleneck.UNDECIDED, too_little
        apart = f"typical steps are fine; {_held(first, trace)}: " if is_apart else ""
        worth = _told(first, known(trace).vendor).recoverable
        saving = f". A fix {saving_text(first, interval=False, after=first.message)}" if worth and worth.most else ""
        unknown = headline.unfilled(trace, [one.finding for one in ranked])
        last_said = "".join(f". {said}" for said in (unknown, reading) if said)
        once = headline.told_once(usual or trace, first)
        return first.bottleneck, _behind(first_said, f"{apart}{first.message}{once}{saving}{last_said}")
    bounds = [(card, found) for card, found, is_apart in ranked if not is_apart and _may_save(found)]
    verdict, said = without_finding(usual or trace, bool(ranked), bounds, rulings)
    return (
        Bottleneck.UNDECIDED if headline.is_mostly_outside(trace) else verdict,
        _behind(f"{reading}. " if reading else first_said, said),
    )


def _behind(first: str, text: str) -> str:
    return f"{first}{text[:1].upper()}{text[1:]}" if first else text


def _held(finding: Finding, trace: Trace) -> str:
    held, of = headline.steps_held(finding, trace)
    return f"{held} of {of} {'is' if held == 1 else 'are'} not"


def _overrides_by_code(rules: Sequence[Rule], overrides: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """``{"IDL101.idle_ratio": 0.2}`` as ``{"IDL101": {"idle_ratio": 0.2}}``."""
    check_limits(overrides, frozenset(f"{rule.code}.{name}" for rule in rules for name in rule.limits))
    by_code: dict[str, dict[str, float]] = {}
    for key, value in overrides.items():
        code, _, name = key.partition(".")
        by_code.setdefault(code, {})[name] = value
    return by_code


# Rows of tables. Of fewer, Python's own part is most of a diagnosis, and of that one thread runs at a time; of more,
# two measures at once need more memory than the time is worth.
_WORTH: Final = range(150_000, 12_000_000)
Result = TypeVar("Result")


@contextmanager
def second_thread(trace: Trace) -> Iterator[Executor | None]:
    """A thread beside this one for parts of the trace's diagnosis; None where that does not pay, or there is no second
    core. What it has not begun when an error ends the diagnosis it never begins.
    """
    rows = sum(frame.height for frame in trace.tables.values())
    if rows not in _WORTH or usual_threads() < 2:
        yield None
        return
    thread = ThreadPoolExecutor(1, "timesink-rules")
    try:
        yield thread
    finally:
        thread.shutdown(cancel_futures=True)


def begun(thread: Executor | None, work: Callable[[], Result]) -> Callable[[], Result]:
    """What gives the result of the work: of the thread, if that has begun it by then, else done when asked for."""
    if thread is None:
        return work
    coming = thread.submit(work)
    return lambda: work() if coming.cancel() else coming.result()
