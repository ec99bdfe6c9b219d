"""The plan of a trace as a page: the ladder of changes, each change alone, where it ends, and rungs that were made;
the prices of changes that somebody names, with what limits the step then and the paths behind the numbers.
"""

from collections.abc import Iterator, Mapping, Sequence

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.headline import step_ms
from timesink.diagnosis.plan import WORTH, ladder
from timesink.diagnosis.plan.batch import ASSUMED, free_text
from timesink.diagnosis.plan.ladder import Plan, Rung
from timesink.diagnosis.pricing import price_change
from timesink.diagnosis.verdicts import Diagnosis
from timesink.diagnosis.words import guessed_steps
from timesink.errors import UsageError
from timesink.fixes.measured import MeasuredPrices
from timesink.fixes.table import EDITS, FIXES, OF_A_LAYER, Asked, parse_change
from timesink.measures.steps.slow_steps import of_usual_steps
from timesink.measures.timeline.known import trains
from timesink.measures.timeline.replay import calibrated_pricers
from timesink.model.trace import Trace
from timesink.recipes.table import SWITCHES
from timesink.records import Record, replace
from timesink.trials.shares import kept_prices
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.views import Cell, Page, Sheet, declare, listed
from timesink.views.figures import LadderChart
from timesink.whatif import Change
from timesink.whatif.edit import Together
from timesink.whatif.pricing import Pricer

__all__ = ["WORTH", "Plan", "Rung", "headline", "page_of", "plan", "plan_page"]


def plan(
    trace: Trace,
    diagnosis: Diagnosis | None = None,
    worth: float = WORTH.default,
    measured: MeasuredPrices | None = None,
) -> Plan:
    """The ladder by what was measured of its prices; where nothing was now, by the file of a machine with the trace's
    GPU, if there is one."""
    diagnosis = diagnosis or diagnose(trace)
    return ladder.plan(trace, diagnosis, worth, measured or kept_prices(trace, diagnosis))


def plan_page(
    trace: Trace,
    diagnosis: Diagnosis | None = None,
    worth: float = WORTH.default,
    measured: MeasuredPrices | None = None,
) -> Page:
    """The plan of a trace as a page; of a program that only infers, with four usual changes to a layer and the sum."""
    made = plan(trace, diagnosis, worth, measured)
    trace = of_usual_steps(trace)
    page, ranks = page_of(made, trace.source), calibrated_pricers(trace)
    if made.refused or not ranks or trains(trace):
        return page
    rank = min(ranks)
    named = [_Made(one, one.changes(trace, rank)) for one in map(parse_change, OF_A_LAYER)]
    rows = tuple(
        _row(trace, rank, asked.label if asked else "all four", gain if by else None, by, remark)
        for asked, gain, by, remark in _priced(trace, rank, named)
    )
    return replace(
        page, sheets=(*page.sheets, Sheet("layer", "Four usual changes to a layer", _PRICES, rows, _OVERLAP))
    )


def _measured_sheet(made: Plan, measured: MeasuredPrices) -> Sheet:
    """Where each price comes from, and what the bench says of those that were measured."""
    forms = {form.fix: form for form in measured.forms}
    rows: list[tuple[Cell, ...]] = []
    for name in made.singles:
        form = forms.get(name)
        if form is not None:
            share = min(form.traced_ns / form.altered_ns, 1.0) if form.altered_ns else None
            times = form.traced_ns, form.bench_ns or None, form.changed_ns, form.scale
            rows.append((name, form.origin, share, *times))
        elif name in {rung.id for rung in made.rungs}:
            rows.append((name, measured.origin(name), None, None, None, None, None))
    notes = [f"nothing was measured: {measured.refused}"] if measured.refused else list(measured.notes)
    named = [f"{name.partition('.')[2]} {value:.3g}" for name, (_, value, _) in measured.figures.items()]
    named += [f"a {name} {call.expected:.3g} us" for name, call in measured.calls.items()]
    if named:
        notes.append(f"of this machine: {', '.join(named)}")
    return listed("plan.measured", rows, "; ".join(notes))


def page_of(made: Plan, source: str) -> Page:
    """A plan as a page, with where each price comes from if anything was measured."""
    rungs = (
        (
            *(rung.id, *_ns(rung.before_ms, rung.after.value, rung.after.low, rung.after.high or rung.after.value)),
            *(rung.gain.value / rung.of_ms, rung.cumulative_ms / rung.of_ms, rung.fix.effort.value, rung.bound_by),
        )
        for rung in made.rungs
    )
    sheets = [listed("plan.ladder", rungs, made.floor)]
    if made.rungs:
        what = (
            (
                rung.id,
                rung.fix.title,
                *(text or None for text in (", ".join(rung.findings), rung.fix.costs, rung.memory, _beside(rung))),
            )
            for rung in made.rungs
        )
        sheets.append(listed("plan.what", what))
        where = (
            (rung.id, *(text or None for text in (rung.place.where, rung.place.module, rung.place.kernel)))
            for rung in made.rungs
        )
        sheets.append(listed("plan.where", where))
    taken = {rung.id for rung in made.rungs}
    alone = sorted(made.singles.items(), key=lambda item: (-item[1].value, item[0]))
    least_ms = WORTH.default * (made.step_ms or 0.0)
    shown = (  # a rung that does nothing before those it follows has no price alone
        item for item in alone if item[1].value >= least_ms or (item[0] in taken and item[1].most)
    )
    wins = (
        (name, *_ns(gain.value, gain.low, gain.high or gain.value), gain.value / (made.step_ms or 1.0))
        for name, gain in shown
    )
    sheets.append(listed("plan.alone", wins if made.step_ms else ()))
    if made.batches:
        batches = (
            (
                *(one.factor, *_ns(one.step.value, one.per_item.value, one.per_item.low, one.per_item.most)),
                *(one.bound_by, one.needed_bytes),
            )
            for one in made.batches
        )
        note = f"{ASSUMED}. {_free(made)}"
        sheets.append(listed("plan.batches", batches, note))
    if made.measured is not None:
        sheets.append(_measured_sheet(made, made.measured))
    notes = (*made.notes, *(f"{name} has no price: {why}" for name, why in made.unpriced))
    return Page(f"{headline(made)} · {source.rpartition('/')[2]}", tuple(sheets), notes, charts=_charts(made))


def _ns(*times_ms: float | None) -> Iterator[float]:
    return ((time_ms or 0.0) * NS_PER_MS for time_ms in times_ms)


def _free(made: Plan) -> str:
    text = free_text(made.free_bytes)
    return text[:1].upper() + text[1:]


def _beside(rung: Rung) -> str:
    """What a change makes too, cannot stand beside, and comes after."""
    fix = rung.fix
    said = (("includes", fix.subsumes), ("not beside", fix.excludes), ("after", rung.needs))
    return "; ".join(f"{word} {', '.join(names)}" for word, names in said if names)


def headline(made: Plan) -> str:
    """The plan in one line: ``plan: 3 changes, 186 ms to 56.1 ms``; what a bound alone prices is won at most."""
    if made.refused:
        return f"no plan: {made.refused}"
    if not made.rungs or made.step_ms is None:
        return "plan: no change wins 2 % of the step"
    count = "1 change" if len(made.rungs) == 1 else f"{len(made.rungs)} changes"
    last = made.rungs[-1]
    at_most = "at most " if any(rung.after.value == rung.after.low for rung in made.rungs) else ""
    return (
        f"plan: {count}, {_time(made.step_ms)} to {_time(last.after.value)} "
        f"({at_most}{share_text(last.cumulative_ms / made.step_ms)} of the step saved)"
    )


def _charts(made: Plan) -> tuple[LadderChart, ...]:
    if not made.rungs or made.step_ms is None:
        return ()
    rungs = (
        (rung.id, rung.before_ms, rung.after.value, rung.after.low or 0.0, rung.after.high or rung.after.value)
        for rung in made.rungs
    )
    return (LadderChart.of("What is left of the step after each change", made.step_ms, rungs, made.floor),)


def _time(time_ms: float) -> str:
    return time_text(time_ms * NS_PER_MS)


class Climbed(Record):
    """One rung: the step before it, what was foretold of the step after it, and what was measured, in ms; None where it
    was not made yet."""

    number: int
    change: str
    before_ms: float
    low_ms: float
    foretold_ms: float
    high_ms: float
    measured_ms: float | None

    @property
    def outcome(self) -> str:
        """Whether the measured step lies where it was foretold, or within `WORTH` of it: as far as single runs tell."""
        if self.measured_ms is None:
            return "next"
        room_ms = WORTH.default * self.before_ms
        if self.measured_ms >= self.before_ms - room_ms and self.foretold_ms < self.before_ms - room_ms:
            return "won nothing"
        if self.measured_ms > self.high_ms + room_ms:
            return "less than predicted"
        return "more than predicted" if self.measured_ms < self.low_ms - room_ms else "as predicted"


def climbed_sheet(rungs: Sequence[Climbed]) -> Sheet:
    """The rungs as a sheet."""
    note = "one run each: `timesink verify --ledger RUNG` runs both sides in turns and gives a verdict"
    rows = []
    for one in rungs:
        times_ms = (one.before_ms, one.foretold_ms, one.low_ms, one.high_ms, one.measured_ms)
        times_ns = (None if time_ms is None else time_ms * NS_PER_MS for time_ms in times_ms)
        rows.append((one.number, one.change, *times_ns, one.outcome))
    return listed("plan.climbed", rows, note if len(rungs) > 1 else "")


_NOTHING: tuple[float, ...] = (0.0, 0.0, 0.0)
_NEXT_ROWS = 5  # as many as people try


def grammar_page() -> Page:
    """What can be changed."""
    fixes = [fix for fix in (*FIXES, *EDITS) if fix.title or fix.verb]
    rows = ((fix.name, fix.form, fix.verb.prices if fix.verb else fix.title) for fix in fixes)
    return Page("Changes that can be priced", (listed("plan.changes", rows),))


def what_if_page(trace: Trace, changes: Sequence[Asked]) -> Page:
    """Prices per rank, of each change and of all together. `UsageError` where no step was found."""
    whole, trace = trace, of_usual_steps(trace)
    ranks = calibrated_pricers(trace)
    if not ranks:
        raise UsageError(
            f"no complete step was found in {trace.source}, and a price is per step",
            remedy="mark steps with prof.step() or an NVTX range, and record at least three",
        )
    names, diagnosis = {one.fix.name for one in changes if one.is_whole}, diagnose(whole)
    alone = ladder.alone(whole, diagnosis, names, kept_prices(whole, diagnosis)) if names else {}
    made = {rank: [_made(trace, rank, asked, alone) for asked in changes] for rank in ranks}
    together = {rank: Together(tuple(part for one in named for part in one.changes)) for rank, named in made.items()}
    sheets = (_prices(trace, made), _next_path(ranks, together))
    return Page(f"What if, in {trace.source}", sheets, tuple(filter(None, (guessed_steps(trace),))))


class _Made(Record, eq=False):
    """A change on a rank: what it changes there, and what a plan says that it wins, where it is one of the plan's."""

    asked: Asked
    changes: Sequence[Change]
    alone: ladder.Alone | None = None


def _made(trace: Trace, rank: int, asked: Asked, alone: Mapping[str, ladder.Alone]) -> _Made:
    one = alone.get(asked.fix.name) if asked.is_whole else None
    if one is None or one.rank != rank or (asked.fix.find and not one.gain.most):  # a plan leaves out what it minds
        return _Made(asked, asked.changes(trace, rank))
    return _Made(asked, one.changes, one)


def _none(trace: Trace, made: _Made) -> str:
    """Why nothing is priced of it."""
    asked = made.asked
    if made.alone is not None:
        return "by itself it wins nothing here"
    if asked.target is not None or asked.fix.find is not None:
        return asked.fix.none(trace, asked.target)
    if asked.fix.name in SWITCHES:
        return f"no replay tells: timesink try --only {asked.fix.name} -- python train.py"
    changes = [fix.name for fix in FIXES if any(rule.partition("/")[0] == asked.fix.name for rule in fix.answers)]
    return f"a cause; its changes: {', '.join(changes)}" if changes else "no finding asks for it here"


def _prices(trace: Trace, made: Mapping[int, Sequence[_Made]]) -> Sheet:
    rows = []
    for rank, named in sorted(made.items()):
        every = "all together: " + ", ".join(one.asked.label for one in named)
        for asked, gain, by, remark in _priced(trace, rank, named):
            rows.append(_row(trace, rank, asked.label if asked else every, gain, by, remark))
    several = any(len(named) > 1 for named in made.values())
    return Sheet("prices", "What each change wins per step", _PRICES, tuple(rows), _OVERLAP if several else "")


_PRICES = declare(
    "rank, change [name], step_ns: step, new_step_ns: new step, gain_ns: gain, low_ns: low, high_ns: high, "
    "priced_by [text], remark [text]"
)
_OVERLAP = "gains of several changes overlap, so only the last row adds them up"
_Gain = tuple[float, ...] | None


def _row(trace: Trace, rank: int, label: str, gain: _Gain, by: str, remark: str) -> tuple[Cell, ...]:
    step_ns = (step_ms(trace) or 0.0) * NS_PER_MS
    known = (step_ns - gain[0], *gain) if gain else (None,) * 4  # one per column
    return (rank, label, step_ns, *known, by, remark)


def _priced(trace: Trace, rank: int, named: Sequence[_Made]) -> Iterator[tuple[Asked | None, _Gain, str, str]]:
    """What `_gain` says of each change, and of several last of all together, which is no change that was asked for."""
    pricer, best = calibrated_pricers(trace)[rank], _NOTHING
    every = (Together(tuple(change for one in named for change in one.changes)),)
    for one in [*named, None] if len(named) > 1 else named:
        gain, by, remark = _gain(trace, pricer, rank, one.changes if one else every)
        if one is not None and one.alone is not None and (one.alone.gain.value or one.alone.gain.most):
            worth = one.alone.gain
            gain = (worth.value * NS_PER_MS, (worth.low or 0.0) * NS_PER_MS, worth.most * NS_PER_MS)
            by = by or one.alone.by
        is_unpriced = by == remark == "" and gain == _NOTHING
        if is_unpriced:
            remark = _none(trace, one) if one else "nothing in these steps matches"
        if one is None:  # no less than the best of them, which may have been priced without a replay
            gain = gain and tuple(map(max, gain, best))
        best = tuple(map(max, gain or _NOTHING, best))
        if is_unpriced and gain == _NOTHING and not (one and one.alone):  # not known, which is no 0
            gain = None
        yield one.asked if one else None, gain, by, remark


def _gain(trace: Trace, pricer: Pricer, rank: int, changes: Sequence[Change]) -> tuple[_Gain, str, str]:
    """What a change wins (gain, low and high in ns, None where the trace cannot be replayed), how that was found, and a
    remark. Of a fix on several devices, what it wins on the one where that is most."""
    priced = [worth for change in changes if (worth := price_change(change, rank, trace)) is not None]
    replays = [pricer.price(change) for change in changes]
    if not any(replay.matched for replay in replays):
        return _NOTHING, "", ""
    if not priced:
        return None, "", f"refused: {replays[0].refused}"
    most, replay = max(priced, key=lambda worth: worth.gain.value), replays[0]
    gain = most.gain.value, most.gain.low or 0.0, most.gain.high or most.gain.value
    doubt = f"doubtful: {replay.refused}" if replay.refused else f"bounded: {replay.bounded}" if replay.bounded else ""
    return tuple(ms * NS_PER_MS for ms in gain), most.by, doubt if most.by == "replay" else ""


def _next_path(ranks: Mapping[int, Pricer], changes: Mapping[int, Change]) -> Sheet:
    rows = (
        (rank, share.ns, share.kind, share.name or None)
        for rank, pricer in sorted(ranks.items())
        for share in pricer.path(changes[rank])[:_NEXT_ROWS]
    )
    return listed("plan.next", rows)
