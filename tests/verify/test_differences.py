"""What two captures or two diagnoses do not share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timesink.diagnosis.verdicts import Bottleneck, Card, Diagnosis, Finding, Quantity, StepFigures, Where
from timesink.errors import UsageError
from timesink.verify.compare import finding_changes
from timesink.verify.environment import changes, find_manifest, read_manifest
from timesink.verify.outcomes import Fate


def finding(code: str, ms: float | None, **where: str | int) -> tuple[Card, Finding]:
    recoverable = None if ms is None else Quantity(ms, "ms")
    made = Finding(f"{code} costs", Bottleneck.HOST_SYNC, Where(**where), (), "do", "check", recoverable=recoverable)  # type: ignore[arg-type]
    return Card(code, code.lower(), "", "", "0.1"), made


def diagnosis(*findings: tuple[Card, Finding]) -> Diagnosis:
    return Diagnosis((), StepFigures(0, None, None, None), (), (), findings, Bottleneck.NONE, "")


def fates(before: Diagnosis, after: Diagnosis) -> list[tuple[str, Fate, float | None, float | None]]:
    return [(c.code, c.fate, c.before_ms, c.after_ms) for c in finding_changes(before, after)]


def test_findings_are_gone_new_changed_or_the_same() -> None:
    before = diagnosis(finding("AAA1", 2.0), finding("BBB1", 1.0), finding("CCC1", 1.0))
    after = diagnosis(finding("BBB1", 1.04), finding("CCC1", 1.06), finding("DDD1", 0.5))
    assert fates(before, after) == [
        ("AAA1", Fate.GONE, 2.0, None),
        ("BBB1", Fate.SAME, 1.0, 1.04),
        ("CCC1", Fate.CHANGED, 1.0, 1.06),
        ("DDD1", Fate.NEW, None, 0.5),
    ]


def test_of_two_findings_of_a_code_those_at_one_place_are_matched_first() -> None:
    before = diagnosis(finding("AAA1", 1.0, range="x"), finding("AAA1", 2.0, range="y"))
    after = diagnosis(finding("AAA1", 2.0, range="y"), finding("AAA1", 9.0, range="z"))
    assert {(old, new) for _, _, old, new in fates(before, after)} == {(2.0, 2.0), (1.0, 9.0)}


def test_a_diagnosis_compared_with_itself_has_only_the_same_findings() -> None:
    one = diagnosis(finding("AAA1", 1.0), finding("AAA1", None), finding("BBB1", 0.0))
    assert {fate for _, fate, _, _ in fates(one, one)} == {Fate.SAME}


def test_manifests_differ_by_what_was_changed_and_not_by_when(tmp_path: Path) -> None:
    for name, batch, when in (("a", 8, "09:00"), ("b", 16, "10:00")):
        content = {
            "config": {"batch": batch, "shapes": [1, 2]},
            "started": when,
            "packages": {"torch": "2.11"},
            "pid": batch,
        }
        (tmp_path / f"{name}.json.manifest.json").write_text(json.dumps(content))
    found = [find_manifest(tmp_path / f"{name}.json") for name in "ab"]
    assert changes(*(read_manifest(path) for path in found if path)) == {"config.batch": ("8", "16")}


def test_no_manifest_is_none_and_a_broken_one_is_named(tmp_path: Path) -> None:
    assert find_manifest(tmp_path / "a.json") is None
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UsageError, match="no readable manifest"):
        read_manifest(tmp_path / "manifest.json")
