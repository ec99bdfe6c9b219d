"""A scaffolded rule obeys every law but the words left to fill in."""

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.rules import rule_laws as laws
from tests.rules.cases import Case, read_cases

from timesink.diagnosis.registry import rules_of
from timesink.diagnosis.rule import Rule, page_paths

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(ROOT / "tools" / name), *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def scaffolded(into: Path) -> tuple[Rule, tuple[Case, ...]]:
    """A new rule as the tool writes it, and its cases."""
    done = tool("new_rule.py", "ZZZ999", "never-used", "--topic", "example", "--into", str(into))
    assert done.returncode == 0, done.stderr
    rules = into / "src" / "timesink" / "rules"
    page = rules / "example" / "never-used.md"
    page_paths()["never-used"] = page
    spec = importlib.util.spec_from_file_location("example", rules / "example.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    del page_paths()["never-used"]
    (rule,) = rules_of(module)
    return rule, read_cases(into / "tests" / "rules" / "example" / page.name)


def test_a_new_rule_runs_and_passes_its_cases(tmp_path: Path) -> None:
    rule, cases = scaffolded(tmp_path)
    kinds = [type(rule.verdict(case.trace)) for case in cases]
    assert kinds == [case.expected.verdict for case in cases]
    assert laws.verdict_faults(rule, cases) == []
    assert laws.near_miss_faults(rule, cases) == []
    assert [name for case in cases for name in laws.undeclared_tables(rule, case)] == []


def test_a_new_rule_is_formatted_and_linted(tmp_path: Path) -> None:
    scaffolded(tmp_path)
    for asked in (["check"], ["format", "--check"]):
        words = [sys.executable, "-m", "ruff", *asked, "--config", str(ROOT / "pyproject.toml"), str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_what_is_left_to_fill_in_does_not_pass_for_done(tmp_path: Path) -> None:
    rule, _ = scaffolded(tmp_path)
    assert len(laws.card_faults(rule.card)) == 1
    assert len(laws.limit_faults(rule.limits)) == 1
    assert len(laws.page_faults(rule.card.doc)) == len(laws.HEADINGS)


def test_a_code_is_never_given_twice(tmp_path: Path) -> None:
    assert tool("new_rule.py", "ZZZ999", "first", "--topic", "example", "--into", str(tmp_path)).returncode == 0
    done = tool("new_rule.py", "ZZZ999", "second", "--topic", "example", "--into", str(tmp_path))
    assert done.returncode == 2
    assert "already there" in done.stderr
