"""What a trial measured, as a page: what each change won or why it was not tried, and what is kept together."""

from __future__ import annotations

from timesink.trials.records import TrialAnswer, Tried
from timesink.trials.switches import SWITCHES
from timesink.units import NS_PER_MS
from timesink.views.page import Cell, Field, Page, Sheet

_CHANGES = (
    Field("change", "change", is_name=True),
    Field("beside", "beside"),
    Field("without_ns", "without it", "ns"),
    Field("with_ns", "with it", "ns"),
    Field("gain_ratio", "wins", "ratio", has_bar=True),
    Field("gain_low_ratio", "at least", "ratio"),
    Field("gain_high_ratio", "at most", "ratio"),
    Field("gain_of_shortest_ratio", "shortest blocks", "ratio"),
    Field("memory_bytes", "memory", "bytes"),
    Field("memory_without_bytes", "without", "bytes"),
)
_MAKE = (Field("change", "change", is_name=True), Field("make", "what to type", is_command=True))
_LEFT = (Field("change", "change", is_name=True), Field("why", "why not"))
_FRESH = (
    Field("changes", "changes"),
    Field("base_ns", "as it is", "ns"),
    Field("with_ns", "with them", "ns"),
    Field("gain_ratio", "wins", "ratio"),
    Field("losses_apart_ratio", "losses apart", "ratio"),
    Field("base_apart_ratio", "two runs as it is", "ratio"),
    Field("tolerated_ratio", "tolerated", "ratio"),
)


def trial_page(answer: TrialAnswer, program: str) -> Page:
    """The page of a trial of `program`, a command line."""
    measured = [one for one in answer.result.tried if one.pairs]
    rows = tuple(_row(one) for one in sorted(measured, key=lambda one: one.ratio))
    unmeasured = [(one.name, one.failed or one.refused) for one in answer.result.tried if not one.pairs]
    left = (*((name, _sentence(why)) for name, why in unmeasured), *answer.left_out.items())
    return Page(
        title=f"Trial of {program}",
        sheets=(
            Sheet("changes", "Changes, measured in this program", _CHANGES, rows, "blocks with and without in turns"),
            Sheet("fresh", "In processes of their own", _FRESH, tuple(_fresh(answer))),
            Sheet("make", "To keep them", _MAKE, tuple((name, SWITCHES[name].make) for name in answer.kept)),
            Sheet("left_out", "Changes that are not recommended or do not apply", _LEFT, left),
        ),
        notes=(conclusion(answer),),
    )


def conclusion(answer: TrialAnswer) -> str:
    """What to make, and what the step then takes, in one sentence."""
    if not answer.kept:
        return "Nothing that was tried makes the step at least 2 % shorter and does so again in a fresh process."
    proof = answer.confirmed[answer.kept]
    base_ms, with_ms = (sum(times) / len(times) for times in (proof.base_ms, proof.with_ms))
    return f"{' + '.join(answer.kept)}: {base_ms:.4g} -> {with_ms:.4g} ms a step ({1 - proof.ratio:.1%} less)."


def _sentence(why: str) -> str:
    return why[:1].upper() + why[1:]


def _row(one: Tried) -> tuple[Cell, ...]:
    return (
        one.name,
        ", ".join(one.beside),
        one.without_ms * NS_PER_MS,
        one.with_ms * NS_PER_MS,
        1 - one.ratio,
        1 - one.high,
        1 - one.low,
        1 - one.shortest,
        one.memory_bytes or None,
        one.base_memory_bytes or None,
    )


def _fresh(answer: TrialAnswer) -> list[tuple[Cell, ...]]:
    rows: list[tuple[Cell, ...]] = []
    for names, proof in answer.confirmed.items():
        base_ms, with_ms = (sum(times) / len(times) for times in (proof.base_ms, proof.with_ms))
        receipt = proof.receipt
        drift = (receipt.apart, receipt.base_apart, receipt.tolerated) if receipt else (None, None, None)
        rows.append((" + ".join(names), base_ms * NS_PER_MS, with_ms * NS_PER_MS, 1 - proof.ratio, *drift))
    return rows
