"""One table of fixes: no other place names one, and rows name each other and rules that there are."""

import ast
import re
from pathlib import Path

import click
import pytest
from tests.rules.cases import cases_of
from tests.tables import trace_of

import timesink
from timesink.cli import completion
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.rule import Rule
from timesink.diagnosis.verdicts import Found
from timesink.fixes.grammar import VERBS, WHOLE, change_names
from timesink.fixes.table import BY_NAME, EDITS, FIXES
from timesink.knowledge.step_parts import Bottleneck
from timesink.recipes.table import EDITS as WRITTEN
from timesink.recipes.table import EXCLUDED_BY, RECIPES, SWITCHES

SOURCE = Path(timesink.__file__).parent
NAMES = {name for fix in FIXES for name in (fix.name, *((fix.verb.also,) if fix.verb else ()))}
TELLING = {
    name for name in NAMES if name and not name.isalnum()
}  # tf32 and compile are types and causes elsewhere, too
RULES = {rule.card.name.replace("-", "_") for rule in all_rules()}


def test_no_other_place_names_a_fix() -> None:
    named = {}
    for path in SOURCE.rglob("*.py"):
        texts = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        named[path.relative_to(SOURCE)] = texts & TELLING
    assert {path.parts[0] for path, names in named.items() if names} == {"fixes", "recipes", "trials"}


def test_every_recipe_is_a_row_and_is_made_in_some_way() -> None:
    assert {name: fix.words for name, fix in BY_NAME.items() if fix.recipe} == RECIPES
    assert all(name in SWITCHES or name in WRITTEN for name in RECIPES)


def test_completion_and_pages_name_the_changes_there_are() -> None:
    assert [name for name, _ in completion.switches(click.Context(click.Command("try")), "")] == list(SWITCHES)
    assert [name for name, _ in completion.edits(click.Context(click.Command("fix")), "tf32,")] == [
        f"tf32,{name}" for name in WRITTEN
    ]
    for page in ("try-changes.md", "fix-a-program.md"):
        text = (SOURCE.parents[1] / "docs" / "how-to" / page).read_text(encoding="utf-8")
        asked = re.findall(r"--only ([a-z_0-9,]+)", text)
        assert {name for names in asked for name in names.split(",")} <= set(SWITCHES if "try" in page else WRITTEN)
    told = (SOURCE.parents[1] / "docs" / "explanation" / "edits.md").read_text(encoding="utf-8")
    first_cells = re.findall(r"^\| (`.*?) \|", told, re.MULTILINE)
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == set(WRITTEN)


def test_what_excludes_another_is_excluded_by_it() -> None:
    for name, others in EXCLUDED_BY.items():
        assert others < set(SWITCHES) and all(name in EXCLUDED_BY[other] for other in others)
        assert set(RECIPES[name].excludes) <= others


def test_rows_and_verbs_have_names_of_their_own() -> None:
    assert len(BY_NAME) == len(FIXES)
    others = [fix.verb.also for fix in FIXES if fix.verb and fix.verb.also]
    names = [*BY_NAME, *(fix.name for fix in EDITS), *others, *(cause.value for cause in [*Bottleneck][:-2])]
    assert len(names) == len(set(names)) == len(change_names())


def test_every_name_that_is_typed_is_that_of_a_row_or_a_cause() -> None:
    """The grammar is asked before any row is loaded."""
    rows = {fix.name for fix in (*FIXES, *EDITS)}
    assert (
        {*VERBS, *WHOLE} <= rows <= set(change_names().values()) == rows | {cause.value for cause in [*Bottleneck][:-2]}
    )


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_row_names_other_rows_and_rules_that_there_are(name: str) -> None:
    fix = BY_NAME[name]
    assert {*fix.subsumes, *fix.excludes, *fix.needs, *fix.after} <= set(BY_NAME) - {name}
    for answered in fix.answers:
        rule, _, other = answered.partition("/")
        assert rule in RULES
        assert not other or other in BY_NAME
    assert fix.verb is None or fix.find is not None


@pytest.mark.slow
@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_what_a_finding_proposes_to_change_is_a_row(rule: Rule) -> None:
    for case in cases_of(rule.name):
        verdict = rule.verdict(case.trace, case.limits)
        for finding in verdict.findings if isinstance(verdict, Found) else ():
            assert (finding.change is None) or (finding.fix in FIXES)


@pytest.mark.parametrize(
    ("operators", "is_refused"),
    [
        ("aten::mm", True), ("aten::cudnn_convolution", False), ("aten::convolution_backward", False),
        ("aten::conv1d", False), ("aten::convert_element_type", True), ("", False),
    ],
)  # fmt: skip
def test_convolutions_are_tried_otherwise_where_some_are_recorded(operators: str, is_refused: bool) -> None:
    rows = f"| op | {operators} | 1 | 2 |" if operators else ""
    trace = trace_of(f"| host_ops | name | start_us | end_us |\n{rows}")
    assert bool(BY_NAME["benchmark_convolutions"].refused(trace)) is is_refused
