"""What a trial measured, as a page: what each change won or why it was not tried, and what is kept together."""

from __future__ import annotations

from timesink.fixes.table import BY_NAME
from timesink.trials.records import TrialAnswer, Tried
from timesink.trials.switches import SWITCHES
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.views.figures import LadderChart, LadderRung
from timesink.views.page import Cell, Page, sheet_of

_CHANGES = (
    "change [name], beside [text], without_ns: without it, with_ns: with it, foretold_ratio: foretold, "
    "gain_ratio: wins [bar], gain_low_ratio: at least, gain_high_ratio: at most, "
    "gain_of_shortest_ratio: shortest blocks, memory_bytes: memory, memory_without_bytes: without"
)
_RUNGS = "change [name], step_ns: step, gain_ratio: wins [bar]"
_FRESH = (
    "changes [text], base_ns: as it is, with_ns: with them, gain_ratio: wins, losses_apart_ratio: losses apart, "
    "base_apart_ratio: two runs as it is, tolerated_ratio: tolerated"
)


def trial_page(answer: TrialAnswer, program: str) -> Page:
    """The page of a trial of `program`, a command line."""
    measured = [one for one in answer.result.tried if one.pairs]
    changes = (_row(answer, one) for one in sorted(measured, key=lambda one: one.ratio))
    unmeasured = [(one.name, one.failed or one.refused) for one in answer.result.tried if not one.pairs]
    left = (*((name, why[:1].upper() + why[1:]) for name, why in unmeasured), *answer.left_out.items())
    make = ((name, BY_NAME[name].what_to_type, answer.result.places.get(SWITCHES[name].where)) for name in answer.kept)
    sheets = (
        sheet_of("changes", "Changes, measured in this program", changes, _CHANGES, "blocks with and without in turns"),
        sheet_of("rungs", "Put together, one after another", _rungs(answer), _RUNGS),
        sheet_of("fresh", "In processes of their own", _fresh(answer), _FRESH),
        sheet_of("make", "To keep them", make, "change [name], make: what to type [text], where: where [name]"),
        sheet_of("left_out", "Not recommended, or does not apply", left, "change [name], why: why not [text]"),
    )
    notes = (conclusion(answer), *_warnings(measured), *_as_it_is(answer))
    return Page(f"Trial of {program}", tuple(sheet for sheet in sheets if sheet.rows), notes, charts=_charts(answer))


def conclusion(answer: TrialAnswer) -> str:
    """What to make, and what the step then takes, in one sentence."""
    if not answer.kept:
        return "Nothing that was tried makes the step at least 2 % shorter and does so again in a fresh process."
    proof = answer.confirmed[answer.kept]
    base, changed = time_text(proof.mean_base_ms * NS_PER_MS), time_text(proof.mean_with_ms * NS_PER_MS)
    return f"{' + '.join(answer.kept)}: a step of {base} takes {changed} ({share_text(1 - proof.ratio)} less)."


def _warnings(measured: list[Tried]) -> list[str]:
    return [
        f"{one.name} compiled {one.recompiled} more graphs after its first step: shapes, values or modes differ "
        "between calls (TORCH_LOGS=recompiles names them)."
        for one in measured
        if one.recompiled
    ]


def _as_it_is(answer: TrialAnswer) -> list[str]:
    """How steady the program was without any change."""
    times = [time_text(ms * NS_PER_MS) for ms in answer.result.base_ms]
    return (
        [f"As it is, a step took {times[0]} when the trial began and {times[-1]} when it ended."] if times[1:] else []
    )


def _row(answer: TrialAnswer, one: Tried) -> tuple[Cell, ...]:
    foretold = answer.foretold.get(one.name) if not one.beside else None
    return (
        one.name,
        ", ".join(one.beside) or None,
        one.without_ms * NS_PER_MS,
        one.with_ms * NS_PER_MS,
        foretold.value if foretold else None,
        1 - one.ratio,
        1 - one.high,
        1 - one.low,
        1 - one.shortest,
        one.memory_bytes or None,
        one.base_memory_bytes or None,
    )


def _steps_ms(answer: TrialAnswer) -> list[tuple[str, float, float]]:
    """The rungs that are still kept: name, the step before and after, in ms."""
    rungs = [(name, step_ms) for name, step_ms in answer.result.rungs if name in answer.result.kept]
    before = [*answer.result.base_ms[:1], *(step_ms for _, step_ms in rungs)]
    return [(name, earlier, step_ms) for (name, step_ms), earlier in zip(rungs, before, strict=False)]


def _rungs(answer: TrialAnswer) -> list[tuple[Cell, ...]]:
    return [(name, after * NS_PER_MS, 1 - after / before) for name, before, after in _steps_ms(answer)]


def _fresh(answer: TrialAnswer) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    proofs = [(" + ".join(names), proof) for names, proof in answer.confirmed.items()]
    for names, proof in proofs:
        receipt = proof.receipt
        drift = (receipt.apart, receipt.base_apart, receipt.tolerated) if receipt else (None, None, None)
        step_ns = (proof.mean_base_ms * NS_PER_MS, proof.mean_with_ms * NS_PER_MS)
        rows.append((names, *step_ns, 1 - proof.ratio, *drift))
    return rows


def _charts(answer: TrialAnswer) -> tuple[LadderChart, ...]:
    steps = _steps_ms(answer)
    if not steps:
        return ()
    rungs = (
        LadderRung(name, *(ms * NS_PER_MS for ms in (before, after, after, after))) for name, before, after in steps
    )
    title = "What is left of the step after each change, measured"
    return (LadderChart(title, steps[0][1] * NS_PER_MS, tuple(rungs), conclusion(answer)),)
