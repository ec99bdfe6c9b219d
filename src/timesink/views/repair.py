"""What `timesink fix` made of a program, as a page: edits that are kept, taken back, and offered."""

from __future__ import annotations

from timesink.trials.repaired import Repair, RepairAnswer
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.views.figures import LadderChart, LadderRung
from timesink.views.page import Cell, Page, sheet_of

_RUN = (
    "fix [name], where [name], foretold_ratio: foretold, before_ns: before, after_ns: after, gain_ratio: wins [bar], "
    "gain_low_ratio: at least, gain_high_ratio: at most, losses_apart_ratio: losses apart, tolerated_ratio: tolerated, "
    "commit [text], why: why [text]"
)


def repair_page(answer: RepairAnswer, program: str, place: str) -> Page:
    """The page of a repair of `program`, a command line, in `place`, which says where the edits are."""
    kept = answer.kept
    back, offered = ([one for one in answer.repairs if one.decided == what] for what in ("taken back", "offered"))
    offers = ((one.fix, one.where, f"{one.why[:1].upper()}{one.why[1:]}", _edit_of(one)) for one in offered)
    sheets = (
        sheet_of("kept", "Edits that are kept, a commit each", map(_row, kept), _RUN),
        sheet_of("taken_back", "Edits that were made, run, and taken back", map(_row, back), _RUN),
        sheet_of(
            "offered", "Offered, not made", offers, "fix [name], where [name], why: why not made [text], edit [text]"
        ),
    )
    notes = (conclusion(answer), f"{place}.", f"It ended because {answer.ended}.")
    return Page(f"Repair of {program}", tuple(sheet for sheet in sheets if sheet.rows), notes, charts=_charts(answer))


def conclusion(answer: RepairAnswer) -> str:
    """What all that is kept wins, in one sentence."""
    if not answer.kept:
        return "No edit makes the step at least 2 % shorter and leaves its results as they are."
    before, after = (time_text(ms * NS_PER_MS) for ms in (answer.base_ms, answer.after_ms))
    names, won = " + ".join(one.fix for one in answer.kept), share_text(1 - answer.after_ms / answer.base_ms)
    return f"{names}: a step of {before} takes {after} ({won} less)."


def _edit_of(one: Repair) -> str:
    """The lines that go and come, without those around them."""
    lines = [line for line in one.diff.splitlines()[2:] if line[:1] in "+-"]
    return "; ".join(f"{line[0]} {line[1:].strip()}" for line in lines)


def _row(one: Repair) -> tuple[Cell, ...]:
    effect, receipt = one.effect, one.receipt
    times = [None if ms is None else ms * NS_PER_MS for ms in (one.before_ms, one.after_ms)]
    gains = (1 - effect.ratio, 1 - effect.high, 1 - effect.low) if effect else (None, None, None)
    drift = (receipt.apart, receipt.tolerated) if receipt else (None, None)
    foretold = one.foretold.value if one.foretold else None
    return (one.fix, one.where, foretold, *times, *gains, *drift, one.commit or None, one.why)


def _charts(answer: RepairAnswer) -> tuple[LadderChart, ...]:
    steps = [(one.fix, one.before_ms, one.after_ms) for one in answer.kept if one.before_ms and one.after_ms]
    if not steps:
        return ()
    rungs = tuple(LadderRung(fix, *(ms * NS_PER_MS for ms in (b, a, a, a))) for fix, b, a in steps)
    return (LadderChart("The step after each edit", answer.base_ms * NS_PER_MS, rungs, conclusion(answer)),)
