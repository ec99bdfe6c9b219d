"""What the judge says: figures of this run's assumptions, and in a clear verdict the limit that each place misses.

A rule has one name: its page's, its own and, where a bottleneck is one rule's alone, the bottleneck's.
"""

from collections import Counter
from types import ModuleType

import pytest
from tests.rules.cases import cases_of

from timesink.diagnosis.judge import fill_template
from timesink.diagnosis.registry import all_rules, find, rules_of
from timesink.diagnosis.rule import Rule, page_paths, summary_of
from timesink.diagnosis.verdicts import Bottleneck, Clear, Found
from timesink.knowledge.assumptions import fixes
from timesink.knowledge.figures import fill_figures
from timesink.measures.counters import causes as measured
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu import causes


def test_evidence_and_page_say_the_figure_that_a_run_assumes(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, trace = find("attention-unfused"), cases_of("attention-unfused")[0].trace
    for share in ("15 %", "50 %"):
        verdict = rule.verdict(trace)
        assert isinstance(verdict, Found)
        assert f"{share} of the matmuls' time stay" in verdict.findings[0].evidence[0].how
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
    clear = [verdict for case in cases_of(rule.name) if isinstance(verdict := rule.verdict(case.trace), Clear)]
    assert clear
    assert all(any(fact.limit for fact in verdict.evidence) for verdict in clear if verdict.evidence)


def bottlenecks_of(rule: Rule) -> set[Bottleneck]:
    """The bottlenecks that the rule's cases find."""
    return {bottleneck for case in cases_of(rule.name) for bottleneck in case.expected.bottlenecks}


def test_every_page_belongs_to_a_rule() -> None:
    named = {rule.name for rule in all_rules() if rule.name}
    assert set(page_paths()) == named


def test_a_rule_that_alone_has_its_bottleneck_is_called_as_that_is() -> None:
    rules_of = Counter(bottleneck for rule in all_rules() for bottleneck in bottlenecks_of(rule))
    alone = {
        rule.card.name: bottleneck.replace("_", "-")
        for rule in all_rules()
        for bottleneck in bottlenecks_of(rule)
        if len(bottlenecks_of(rule)) == 1 and rules_of[bottleneck] == 1
    }
    assert len(alone) > 10
    assert {name: bottleneck for name, bottleneck in alone.items() if name != bottleneck} == {}


def test_codes_are_found_in_any_case() -> None:
    assert find("krn103").card.name == "attention-unfused"


def test_a_module_without_rules_is_named() -> None:
    module = ModuleType("timesink.rules.idle.helpers")
    with pytest.raises(
        TypeError, match=r"timesink\.rules\.idle\.helpers has no RULES; begin its name with an underscore"
    ):
        rules_of(module)
    vars(module)["RULES"] = ("a string",)
    with pytest.raises(TypeError, match="has a rule of type str, not Rule"):
        rules_of(module)


def test_a_summary_is_the_first_line_as_a_phrase() -> None:
    assert summary_of("The device waits.\n\nMore.") == "the device waits"
    assert summary_of("DDP's buckets are a copy.") == "DDP's buckets are a copy"
    assert summary_of("") == ""


def test_every_cause_of_a_kernels_time_has_one_rule_that_speaks_for_it() -> None:
    assert {rule.name.replace("-", "_") for rule in causes.RULES} == set(Cause)


def test_what_a_rule_compares_with_by_default_is_what_the_measure_does() -> None:
    declared = {rule.name: {name: limit.default for name, limit in rule.limits.items()} for rule in causes.RULES}
    assert declared["occupancy"]["alone_us"] == declared["latency-bound-kernel"]["alone_us"] == measured.ALONE_US
    assert declared["compute-bound-kernel"]["fp64_ratio"] == measured.SLOW_FP64
