"""Every assumption lies in its range, says why and whence, and can be replaced for one run."""

import ast
import json
from pathlib import Path

import pytest

from timesink.diagnosis.registry import all_rules
from timesink.errors import UsageError
from timesink.knowledge.assumptions import ALL, SUBJECTS, Assumption, read_replacements, replace_assumptions
from timesink.render.rule_page import assumptions
from timesink.whatif import Case

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ALL)
def test_an_assumption_lies_in_its_range_and_says_why_and_whence(name: str) -> None:
    assumption = ALL[name]
    low, high = sorted((assumption.low, assumption.high))
    assert low <= assumption.value <= high
    assert assumption.unit and assumption.why and assumption.source
    assert not {"chosen", "convention", "judgement", "unchecked"} & set(assumption.source.split())
    assert len(assumption.source.split()) > 1, "a word is no source"
    assert "definition of" not in assumption.source, "what a word means says nothing about where a line is drawn"
    assert assumption.set_on in ("", "tune", "third_tune", "fifth_tune", "seventh_tune", "tenth_tune")


def test_the_rules_that_assumptions_name_exist() -> None:
    named_rules = {code for assumption in ALL.values() for code in assumption.rules.split()}
    assert named_rules <= {rule.code for rule in all_rules()}


def test_every_assumption_that_is_declared_is_asked_for() -> None:
    """That what is asked for is declared, the type checker knows."""
    asked = set()
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        aliases = {
            alias.asname or alias.name: alias.name
            for node in imports
            if node.module == "timesink.knowledge.assumptions"
            for alias in node.names
            if alias.name in SUBJECTS
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr.isupper():
                asked |= {f"{aliases[name]}.{node.attr.lower()}" for name in {node.value.id} & set(aliases)}
    assert asked == set(ALL)


def test_each_assumption_moves_a_diagnosis_or_is_held_by_a_test() -> None:
    swept = json.loads((ROOT / "benchmarks/faults/sweep.json").read_text(encoding="utf-8"))["assumptions"]
    held = json.loads((ROOT / "benchmarks/faults/held.json").read_text(encoding="utf-8"))
    moving = {name for name, moved in swept.items() if moved["changed"]}
    assert set(ALL) - moving - set(held) == set(), "see benchmarks/faults/held.py"
    for path, _, test in (node.partition("::") for node in set(held.values())):
        assert f"def {test}(" in (ROOT / path).read_text(encoding="utf-8")


def share() -> Assumption:
    return Assumption(0.6, 0.35, 0.2, "of its time kept", "why", "source")


def test_the_three_cases_are_the_three_figures() -> None:
    assert [share().at(case) for case in Case] == [0.6, 0.35, 0.2]


@pytest.mark.parametrize(
    ("text", "figures"),
    [("a.kept=0.5:0.4:0.1", (0.5, 0.4, 0.1)), ("a.kept=0.3", (0.6, 0.3, 0.2)), ("a.kept=0.1", (0.6, 0.1, 0.1))],
)
def test_an_assumption_is_replaced_by_name(text: str, figures: tuple[float, float, float]) -> None:
    kept = replace_assumptions({"a.kept": share()}, text)["a.kept"]
    assert (kept.low, kept.value, kept.high) == figures
    assert kept.changed


@pytest.mark.parametrize("text", ["a.kept", "a.kept=", "a.kept=x", "a.kept=1:2", "a.kept=nan"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not an assumption"):
        read_replacements(text)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no assumption 'a\.lost'"):
        replace_assumptions({"a.kept": share()}, "a.lost=1")


def test_a_rule_shows_its_own_assumptions_and_without_a_rule_all_are_shown() -> None:
    own, reasons = assumptions("KRN103").sheets
    assert len(own.rows) == len(reasons.rows)
    assert {"fixes.attention_products", "kernels.softmax_reach"} <= {row[0] for row in own.rows}
    assert "fixes.loading_left" not in {row[0] for row in own.rows}
    assert sum(len(sheet.rows) for sheet in assumptions().sheets) == 2 * len(ALL)
