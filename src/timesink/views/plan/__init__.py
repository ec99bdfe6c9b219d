"""The plan of a trace as a page: the ladder of changes, every change alone, and where it ends."""

from __future__ import annotations

from collections.abc import Iterator

from timesink.diagnosis.plan.batch import ASSUMED
from timesink.diagnosis.plan.joint import WORTH
from timesink.diagnosis.plan.ladder import Plan, Rung, plan
from timesink.diagnosis.plan.memory import free_text
from timesink.diagnosis.verdicts import Diagnosis
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.views.figures import LadderChart, LadderRung
from timesink.views.page import Page, sheet_of

__all__ = ["WORTH", "Plan", "Rung", "headline", "page_of", "plan", "plan_page"]

_LADDER = (
    "change [name], before_ns: step, after_ns: then, after_low_ns: low, after_high_ns: high, gain_ratio: wins, "
    "cumulative_ratio: in all, effort [text], bound_by: then bound by [text]"
)
_WHAT = (
    "change [name], what: what to do [text], findings [name], costs [text], memory [text], beside: beside others [text]"
)
_WHERE = "change [name], where [name], module: in [name], kernel [kernel]"
_ALONE = "change [name], gain_ns: wins, low_ns: low, high_ns: high, gain_ratio: of the step"
_BATCHES = (
    "factor: times as large, step_ns: step, items_ns: of as many items, items_low_ns: low, items_high_ns: high, "
    "bound_by: then bound by [text], needed_bytes: more memory"
)


def plan_page(trace: Trace, diagnosis: Diagnosis | None = None, worth: float = WORTH.default) -> Page:
    """The plan of a trace as a page."""
    return page_of(plan(trace, diagnosis, worth), trace.source)


def page_of(made: Plan, source: str) -> Page:
    """A plan as a page."""
    ladder = (
        (
            *(rung.id, *_ns(rung.before_ms, rung.after.value, rung.after.low, rung.after.high or rung.after.value)),
            *(rung.gain.value / rung.of_ms, rung.cumulative_ms / rung.of_ms, rung.fix.effort.value, rung.bound_by),
        )
        for rung in made.rungs
    )
    sheets = [sheet_of("ladder", "What to change, in this order", ladder, _LADDER, made.floor)]
    if made.rungs:
        what = (
            (
                rung.id,
                rung.fix.what_to_type,
                *(text or None for text in (", ".join(rung.findings), rung.fix.costs, rung.memory, _beside(rung))),
            )
            for rung in made.rungs
        )
        sheets.append(sheet_of("what", "What each change is", what, _WHAT))
        where = (
            (rung.id, *(text or None for text in (rung.place.where, rung.place.module, rung.place.kernel)))
            for rung in made.rungs
        )
        sheets.append(sheet_of("where", "Where each change goes", where, _WHERE))
    taken = {rung.id for rung in made.rungs}
    alone = sorted(made.singles.items(), key=lambda item: (-item[1].value, item[0]))
    shown = (item for item in alone if item[1].value >= WORTH.default * (made.step_ms or 0.0) or item[0] in taken)
    wins = (
        (name, *_ns(gain.value, gain.low, gain.high or gain.value), gain.value / (made.step_ms or 1.0))
        for name, gain in shown
    )
    sheets.append(sheet_of("alone", "What each change wins alone", wins if made.step_ms else (), _ALONE))
    if made.batches:
        batches = (
            (
                *(one.factor, *_ns(one.step.value, one.per_item.value, one.per_item.low, one.per_item.most)),
                *(one.bound_by, one.needed_bytes),
            )
            for one in made.batches
        )
        note = f"{ASSUMED}. {_free(made)}"
        sheets.append(sheet_of("batches", "What a larger batch takes then", batches, _BATCHES, note))
    notes = (*made.notes, *(f"{name} has no price: {why}" for name, why in made.unpriced))
    return Page(f"{headline(made)} ({source})", tuple(sheets), notes, charts=_charts(made))


def _ns(*times_ms: float | None) -> Iterator[float]:
    return ((time_ms or 0.0) * NS_PER_MS for time_ms in times_ms)


def _free(made: Plan) -> str:
    text = free_text(made.free_bytes)
    return text[:1].upper() + text[1:]


def _beside(rung: Rung) -> str:
    """What a change makes too, cannot stand beside, and comes after."""
    fix = rung.fix
    said = (("does too", fix.subsumes), ("not beside", fix.excludes), ("after", rung.needs))
    return "; ".join(f"{word} {', '.join(names)}" for word, names in said if names)


def headline(made: Plan) -> str:
    """The plan in one line: ``plan: 3 changes, 186 ms to 56.1 ms``."""
    if made.refused:
        return f"no plan: {made.refused}"
    if not made.rungs or made.step_ms is None:
        return "plan: no change wins 2 % of the step"
    count = "1 change" if len(made.rungs) == 1 else f"{len(made.rungs)} changes"
    last = made.rungs[-1]
    return (
        f"plan: {count}, {_time(made.step_ms)} to {_time(last.after.value)} "
        f"({share_text(last.cumulative_ms / made.step_ms)} of the step saved)"
    )


def _charts(made: Plan) -> tuple[LadderChart, ...]:
    if not made.rungs or made.step_ms is None:
        return ()
    rungs = tuple(
        LadderRung(
            rung.id,
            rung.before_ms * NS_PER_MS,
            rung.after.value * NS_PER_MS,
            (rung.after.low or 0.0) * NS_PER_MS,
            (rung.after.high or rung.after.value) * NS_PER_MS,
        )
        for rung in made.rungs
    )
    return (LadderChart("What is left of the step after each change", made.step_ms * NS_PER_MS, rungs, made.floor),)


def _time(time_ms: float) -> str:
    return time_text(time_ms * NS_PER_MS)
