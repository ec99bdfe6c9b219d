"""A rule has one name: its page's, its own and, where a bottleneck is one rule's alone, the bottleneck's."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest
from tests.rules import rule_laws as laws
from tests.rules.cases import read_cases

from timesink.diagnosis.registry import FORMER_NAMES, all_rules, find, former_name_note, rules_of
from timesink.diagnosis.rule import Rule, page_paths, summary_of
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.counters.waste import Cause
from timesink.rules.ncu import _family, causes


def bottlenecks_of(rule: Rule) -> set[Bottleneck]:
    """The bottlenecks that the rule's cases find."""
    return {bottleneck for case in read_cases(laws.cases_path(rule)) for bottleneck in case.expected.bottlenecks}


def test_every_page_belongs_to_a_rule() -> None:
    named = {rule.name for rule in all_rules() if rule.name}
    cases = {name for name in page_paths() if name.endswith(".cases")}
    assert set(page_paths()) - cases == named


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


def test_former_names_and_codes_are_found_and_former_names_are_noted() -> None:
    names = {rule.card.name for rule in all_rules()}
    assert set(FORMER_NAMES.values()) <= names
    assert not set(FORMER_NAMES) & names
    for former, name in FORMER_NAMES.items():
        assert find(former).card.name == name
        assert former_name_note(f" {former.upper()}") == f"the rule {former} is now called {name}"
    assert find("krn103").card.name == "attention-unfused"
    assert former_name_note("attention-unfused") is None


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
    assert len(causes.RULES) == len(Cause)
    assert set(_family._OWNED) == set(Cause)
