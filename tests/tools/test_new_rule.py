"""A new rule, as `tools/new_rule.py` makes it, is green but for the places to fill in."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from tests.rules import rule_laws as laws
from tests.rules.cases import read_cases

ROOT = Path(__file__).resolve().parents[2]


def test_a_new_rule_obeys_the_laws_and_the_formatter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = [sys.executable, ROOT / "tools" / "new_rule.py", "ZZZ101", "device-starved"]
    subprocess.run([*tool, "--topic", "new", "--into", tmp_path], check=True, capture_output=True)
    path = tmp_path / "new" / "device_starved.py"
    spec = importlib.util.spec_from_file_location("device_starved", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "device_starved", module)
    spec.loader.exec_module(module)
    rule, cases = module.RULE, read_cases(path.with_name("device_starved.cases.md"))
    assert (rule.card.code, rule.card.name) == ("ZZZ101", "device-starved")
    assert [fault for case in cases for fault in laws.case_faults(rule, case)] == []
    assert [fault for case in cases for fault in laws.undeclared_tables(rule, case)] == []
    assert laws.near_miss_faults(rule, cases) == []
    assert laws.verdict_faults(rule, module, cases) == []
    assert laws.limit_faults(rule.limits) == []
    for asked in (["check"], ["format", "--check"]):
        ruff = [sys.executable, "-m", "ruff", *asked, "--config", ROOT / "pyproject.toml", path]
        subprocess.run(ruff, check=True, capture_output=True)
