"""What the judge says: figures of this run's assumptions, and in a clear verdict the limit that each place misses."""

from __future__ import annotations

import pytest
from tests.rules.cases import read_cases

from timesink.diagnosis.judge import fill_template
from timesink.diagnosis.registry import all_rules, find
from timesink.diagnosis.rule import page_paths
from timesink.diagnosis.verdicts import Clear, Found
from timesink.knowledge.assumptions import fill_figures, fixes


def test_evidence_and_page_say_the_figure_that_a_run_assumes(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, trace = find("attention-unfused"), read_cases(page_paths()["attention-unfused"])[0].trace
    for share in ("15 %", "50 %"):
        verdict = rule.verdict(trace)
        assert isinstance(verdict, Found)
        assert f"{share} of the products' time stay" in verdict.findings[0].evidence[0].how
        assert share in rule.card.doc
        monkeypatch.setattr(fixes.ATTENTION_PRODUCTS, "value", 0.5)
        fill_figures.cache_clear()  # a run assumes one figure from its beginning to its end
    monkeypatch.undo()
    fill_figures.cache_clear()


def test_figures_are_written_as_shares_times_and_fractions() -> None:
    assert fill_figures("{fixes.pointwise_others} {fixes.pointwise_others:words}") == "5 % a twentieth"
    assert fill_figures("{fixes.attention_products:low words} {fixes.tiny_merged:gone}") == "three fifths 25 %"
    assert fill_figures("{kernels.tiny_us} {fixes.optimizer_fixed_us:ms} {fixes.grids_spread:words}") == (
        "10 us 0.15 ms twice"
    )
    with pytest.raises(KeyError):
        fill_figures("{fixes.no_such_figure}")


def test_what_is_in_brackets_is_left_out_where_a_figure_is_missing() -> None:
    assert fill_template("{count} copies[ at {rate:.1f} GB/s][, {idle:time} idle]", {"count": 2, "idle": 3e6}) == (
        "2 copies, 3.00 ms idle"
    )


@pytest.mark.parametrize("code", ["KRN111", "STR101", "KRN112", "KRN113", "CPY101", "MEM101"])
def test_a_clear_verdict_shows_how_far_each_place_is_from_a_limit(code: str) -> None:
    (rule,) = (rule for rule in all_rules() if rule.code == code)
    clear = [
        verdict
        for case in read_cases(page_paths()[rule.name])
        if isinstance(verdict := rule.verdict(case.trace), Clear)
    ]
    assert clear
    assert all(any(fact.limit for fact in verdict.evidence) for verdict in clear if verdict.evidence)
