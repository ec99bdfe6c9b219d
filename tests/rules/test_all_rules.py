"""One test over all rules: a new rule is held to these laws without a line of test code (DESIGN section 6)."""

import pytest
from tests.rules import rule_laws as laws
from tests.rules.cases import Case, cases_of

from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.rule import Rule

RULES = [pytest.param(rule, id=f"{rule.card.code}-{rule.card.name}") for rule in all_rules()]
CASES = [
    pytest.param(rule, case, id=f"{rule.card.code}-{case.title}")
    for rule in all_rules()
    for case in cases_of(rule.name)
]


def test_codes_and_names_are_unique() -> None:
    codes = [rule.card.code for rule in all_rules()]
    names = [rule.card.name for rule in all_rules()]
    assert len(set(codes)) == len(codes)
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("rule", RULES)
def test_the_page_has_the_five_headings_and_all_its_figures(rule: Rule) -> None:
    assert laws.page_faults(rule.card.doc) == []


@pytest.mark.parametrize("rule", RULES)
def test_the_card_identifies_the_rule(rule: Rule) -> None:
    assert laws.card_faults(rule.card) == []


@pytest.mark.parametrize("rule", RULES)
def test_every_limit_has_why_and_source(rule: Rule) -> None:
    assert laws.limit_faults(rule.limits) == []


@pytest.mark.parametrize("rule", RULES)
def test_there_is_a_case_for_each_verdict(rule: Rule) -> None:
    assert laws.verdict_faults(rule, cases_of(rule.name)) == []


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_every_limit_has_a_near_miss_on_each_side(rule: Rule) -> None:
    assert laws.near_miss_faults(rule, cases_of(rule.name)) == []


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_each_case_gets_the_verdict_it_states(rule: Rule, case: Case) -> None:
    assert laws.case_faults(rule, case) == []


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "case"), CASES)
def test_no_table_is_read_that_is_not_declared(rule: Rule, case: Case) -> None:
    assert laws.undeclared_tables(rule, case) == []
