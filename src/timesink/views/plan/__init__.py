"""The plan of a trace as a page: the ladder of changes, every change alone, and where it ends."""

from __future__ import annotations

from timesink.diagnosis.plan.batch import ASSUMED, LargerBatch
from timesink.diagnosis.plan.joint import WORTH
from timesink.diagnosis.plan.ladder import Plan, Rung, plan
from timesink.diagnosis.plan.memory import free_text
from timesink.diagnosis.verdicts import Diagnosis, Quantity
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.views.figures import LadderChart, LadderRung
from timesink.views.page import Field, Fields, Page, sheet_of

__all__ = ["WORTH", "Plan", "Rung", "headline", "page_of", "plan", "plan_page"]

_CHANGE = Field("change", "change", is_name=True)
_LADDER: Fields[Rung] = (
    (_CHANGE, lambda rung: rung.id),
    (Field("before_ns", "step", unit="ns"), lambda rung: rung.before_ms * NS_PER_MS),
    (Field("after_ns", "then", unit="ns"), lambda rung: rung.after.value * NS_PER_MS),
    (Field("after_low_ns", "low", unit="ns"), lambda rung: (rung.after.low or 0.0) * NS_PER_MS),
    (Field("after_high_ns", "high", unit="ns"), lambda rung: (rung.after.high or rung.after.value) * NS_PER_MS),
    (Field("gain_ratio", "wins", unit="ratio"), lambda rung: rung.gain.value / rung.of_ms),
    (Field("cumulative_ratio", "in all", unit="ratio"), lambda rung: rung.cumulative_ms / rung.of_ms),
    (Field("effort", "effort"), lambda rung: rung.fix.effort.value),
    Field("bound_by", "then bound by"),
)
_WHAT: Fields[Rung] = (
    (_CHANGE, lambda rung: rung.id),
    (Field("what", "what to do"), lambda rung: rung.fix.what_to_type),
    (Field("findings", "findings", is_name=True), lambda rung: ", ".join(rung.findings) or None),
    (Field("costs", "costs"), lambda rung: rung.fix.costs or None),
    (Field("memory", "memory"), lambda rung: rung.memory or None),
    (Field("beside", "beside others"), lambda rung: _beside(rung) or None),
)

_WHERE: Fields[Rung] = (
    (_CHANGE, lambda rung: rung.id),
    (Field("where", "where", is_name=True), lambda rung: rung.place.where or None),
    (Field("module", "in", is_name=True), lambda rung: rung.place.module or None),
    (Field("kernel", "kernel", is_name=True, is_kernel=True), lambda rung: rung.place.kernel or None),
)

_BATCHES: Fields[LargerBatch] = (
    Field("factor", "times as large", unit="1"),
    (Field("step_ns", "step", unit="ns"), lambda batch: batch.step.value * NS_PER_MS),
    (Field("items_ns", "of as many items", unit="ns"), lambda batch: batch.per_item.value * NS_PER_MS),
    (Field("items_low_ns", "low", unit="ns"), lambda batch: (batch.per_item.low or 0.0) * NS_PER_MS),
    (Field("items_high_ns", "high", unit="ns"), lambda batch: batch.per_item.most * NS_PER_MS),
    Field("bound_by", "then bound by"),
    Field("needed_bytes", "more memory", unit="bytes"),
)


def plan_page(trace: Trace, diagnosis: Diagnosis | None = None, worth: float = WORTH.default) -> Page:
    """The plan of a trace as a page."""
    return page_of(plan(trace, diagnosis, worth), trace.source)


def page_of(made: Plan, source: str) -> Page:
    """A plan as a page."""
    sheets = [sheet_of("ladder", "What to change, in this order", made.rungs, _LADDER, made.floor)]
    if made.rungs:
        sheets.append(sheet_of("what", "What each change is", made.rungs, _WHAT))
        sheets.append(sheet_of("where", "Where each change goes", made.rungs, _WHERE))
    taken = {rung.id for rung in made.rungs}
    alone = sorted(made.singles.items(), key=lambda item: (-item[1].value, item[0]))
    shown = [item for item in alone if item[1].value >= WORTH.default * (made.step_ms or 0.0) or item[0] in taken]
    sheets.append(sheet_of("alone", "What each change wins alone", shown if made.step_ms else (), _alone(made)))
    if made.batches:
        sheets.append(
            sheet_of("batches", "What a larger batch takes then", made.batches, _BATCHES, f"{ASSUMED}. {_free(made)}")
        )
    notes = (*made.notes, *(f"{name} has no price: {why}" for name, why in made.unpriced))
    return Page(f"{headline(made)} ({source})", tuple(sheets), notes, charts=_charts(made))


def _free(made: Plan) -> str:
    text = free_text(made.free_bytes)
    return text[:1].upper() + text[1:]


def _beside(rung: Rung) -> str:
    """What a change makes too, cannot stand beside, and comes after."""
    fix = rung.fix
    said = (("does too", fix.subsumes), ("not beside", fix.excludes), ("after", rung.needs))
    return "; ".join(f"{word} {', '.join(names)}" for word, names in said if names)


def _alone(made: Plan) -> Fields[tuple[str, Quantity]]:
    return (
        (_CHANGE, lambda item: item[0]),
        (Field("gain_ns", "wins", unit="ns"), lambda item: item[1].value * NS_PER_MS),
        (Field("low_ns", "low", unit="ns"), lambda item: (item[1].low or 0.0) * NS_PER_MS),
        (Field("high_ns", "high", unit="ns"), lambda item: (item[1].high or item[1].value) * NS_PER_MS),
        (Field("gain_ratio", "of the step", unit="ratio"), lambda item: item[1].value / (made.step_ms or 1.0)),
    )


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
