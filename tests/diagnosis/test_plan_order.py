"""Laws of the order of a plan: what is expected counts, what leads on, and the change of the first finding first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from benchmarks.ladders.score import in_order

from timesink.diagnosis.plan import Joint, ladder
from timesink.diagnosis.plan.ladder import best, expected
from timesink.diagnosis.verdicts import Finding, Quantity
from timesink.fixes.table import BY_NAME

STEP_MS = 100.0


def gain(low: float, value: float, high: float) -> Quantity:
    return Quantity(value, "ms", low, high)


TOGETHER = {
    frozenset[str](): 0.0,
    frozenset({"batch"}): 43.0,
    frozenset({"graph"}): 41.0,
    frozenset({"bf16"}): -27.0,
    frozenset({"batch", "graph"}): 45.0,
    frozenset({"batch", "bf16"}): 32.0,
    frozenset({"graph", "bf16"}): 77.0,
    frozenset({"batch", "graph", "bf16"}): 79.0,
}


def together(names: Collection[str]) -> Quantity:
    return gain(*(3 * [TOGETHER[frozenset(names)]]))


def test_what_is_expected_weighs_the_ends_of_an_interval() -> None:
    assert expected(gain(17, 17, 80)) == pytest.approx(0.3 * 17 + 0.4 * 17 + 0.3 * 80)
    assert expected(Quantity(5.0, "ms", 5.0, None)) == pytest.approx(5.0)
    assert expected(None) == 0.0


def test_a_change_that_leads_further_comes_before_one_that_wins_a_little_more() -> None:
    assert in_order(("batch", "graph", "bf16"), together) == ("graph", "bf16", "batch")


def offered(asked: Mapping[str, Finding], singles: Mapping[str, Quantity], roots: Collection[str]) -> Joint:
    """Changes whose gains add up; `asked` says which finding asks for each."""

    def of(name: str) -> Any:
        findings = ((Mock(code="AAA101"), asked[name]),) if name in asked else ()
        return SimpleNamespace(fix=BY_NAME[name], findings=findings, mends_a_cause=name in roots)

    def joined(names: Collection[str]) -> Quantity:
        known = [singles[name] for name in names if name in singles]
        return gain(*(sum(part) for part in zip((0, 0, 0), *((q.low, q.value, q.high) for q in known), strict=True)))

    def likely(names: Collection[str]) -> float:
        return joined(names).value

    return Mock(offered={name: of(name) for name in singles}, gain=joined, likely_ms=likely, step_ms=STEP_MS)


FIRST, OTHER = Mock(recoverable=gain(20, 48, 60)), Mock(recoverable=gain(5, 9, 20))


@pytest.mark.parametrize(
    ("singles", "roots", "wanted"),
    [
        # a change that wins more comes first only where it does so at its least, too
        ({"loader_workers": gain(20, 48, 60), "compile_graph": gain(44, 78, 90)}, {"loader_workers"}, "loader_workers"),
        ({"loader_workers": gain(20, 48, 60), "compile_graph": gain(49, 78, 90)}, {"loader_workers"}, "compile_graph"),
        # what a symptom asks for comes after a cause that wins nearly as much
        ({"tf32": gain(19, 20, 21), "pin_memory": gain(15, 16, 17)}, {"pin_memory"}, "pin_memory"),
        ({"tf32": gain(19, 20, 21), "pin_memory": gain(13, 14, 15)}, {"pin_memory"}, "tf32"),
        # what no finding asks for must win at its least
        ({"padding": gain(1, 30, 60), "tf32": gain(5, 6, 7)}, set(), "tf32"),
        # of two that make the same, the lesser where the greater adds too little
        ({"bf16": gain(20, 21, 22), "tf32": gain(19, 20, 21)}, set(), "tf32"),
        ({"bf16": gain(1, 1.5, 2)}, set(), None),
    ],
)
def test_the_next_change_by_hand(singles: Mapping[str, Quantity], roots: Collection[str], wanted: str | None) -> None:
    asked = {"loader_workers": FIRST, **dict.fromkeys(("compile_graph", "tf32", "pin_memory", "bf16"), OTHER)}
    joint = offered(asked, singles, roots)
    top = FIRST if "loader_workers" in singles else None
    assert best(joint, singles, (), 0.02 * STEP_MS, top) == wanted


@pytest.mark.parametrize(
    ("wins", "counted", "said"),
    [
        (gain(20, 48, 60), 48.0, ""),
        (gain(20, 48, 60), 30.0, "loader_workers wins 48.0 ms, AAA101 is priced at 30.0 ms: the rest is"),
        (gain(20, 30, 60), 48.0, "loader_workers wins 30.0 ms, AAA101 is priced at 48.0 ms: that price leaves out"),
    ],
)
def test_a_plan_says_where_its_price_is_not_the_diagnosis_s(wins: Quantity, counted: float, said: str) -> None:
    finding = Mock(recoverable=gain(counted, counted, counted), fix=None)
    joint = offered({"loader_workers": finding}, {"loader_workers": wins}, ())
    rung = Mock(id="loader_workers", gain=wins)
    found = ladder._beside_diagnosis(joint, [rung], {"loader_workers": wins}, (Mock(code="AAA101"), finding), 2.0)
    told = "".join(found)
    assert told.startswith(said)
    assert bool(told) == bool(said)


def test_a_plan_says_where_its_first_change_is_another_one_for_the_same_finding() -> None:
    finding = Mock(recoverable=gain(30, 30, 30))
    finding.fix.name = "tf32"
    joint = offered({"bf16": finding}, {"bf16": gain(20, 48, 60)}, ())
    rung = Mock(id="bf16", gain=gain(20, 48, 60))
    (told,) = ladder._beside_diagnosis(joint, [rung], {"bf16": rung.gain}, (Mock(code="AAA101"), finding), 2.0)
    assert told == "bf16 wins 48.0 ms, AAA101 is priced at 30.0 ms: that is the price of tf32, which repairs the same"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"loader_workers": gain(20, 48, 60)}, "compile_graph comes before loader_workers, the change for AAA101, "),
        ({"loader_workers": gain(0, 1, 2)}, "loader_workers, for AAA101, the first finding, wins too little"),
        ({}, "AAA101, the first finding, has no change that can be replayed: the plan starts with compile_graph"),
    ],
)
def test_a_plan_says_why_it_does_not_begin_with_the_first_finding(own: Mapping[str, Quantity], said: str) -> None:
    singles = {"compile_graph": gain(49, 78, 90), **own}
    joint = offered({"loader_workers": FIRST, "compile_graph": OTHER}, singles, ())
    rung = Mock(id="compile_graph", gain=singles["compile_graph"])
    (told,) = ladder._beside_diagnosis(joint, [rung], singles, (Mock(code="AAA101"), FIRST), 2.0)
    assert told.startswith(said)


def test_what_may_win_more_is_named_with_its_least() -> None:
    (said,) = ladder._notes((), frozenset(), {"batch_small_calls": Quantity(3.14, "ms", low=0.0, high=5.0)})
    assert said == "batch_small_calls may win another 3.14 ms, perhaps nothing; no finding asks for it"
