"""What became of the findings of one diagnosis in another."""

from __future__ import annotations

from timesink.diagnosis.verdicts import Bottleneck, Card, Diagnosis, Finding, Quantity, StepFigures, Where
from timesink.verify.compare import finding_changes
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
