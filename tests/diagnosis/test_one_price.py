"""A change is worth the same whoever asks: the price of a finding is what `plan --change` says of its change."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

import timesink
from timesink.diagnosis.pricing import Priced, price, price_change
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.verdicts import Finding, Found
from timesink.fixes.fix import Fix
from timesink.fixes.words import Asked, parse_change
from timesink.measures.timeline.replay import calibrated_pricers
from timesink.model.trace import Trace
from timesink.views.plan import what_if_page

DEMO = sorted(Path(str(files("timesink.cli").joinpath("demo"))).glob("*.json.gz"))


def found(trace: Trace) -> list[Finding]:
    """All findings that name a change, without sharing."""
    verdicts = [rule.verdict(trace, {}) for rule in all_rules()]
    findings = [finding for verdict in verdicts if isinstance(verdict, Found) for finding in verdict.findings]
    return [finding for finding in findings if finding.change is not None]


def asked(trace: Trace, finding: Finding) -> list[Priced | None]:
    """What the what-if says of a finding's fix: written as text, where it has words."""
    rank, fix = finding.where.rank or 0, finding.fix
    target, direction = (getattr(finding.change, name, "") for name in ("target", "direction"))
    if fix is None or fix.verb is None or getattr(target, "kind", "") == "windows":  # no words
        return [price_change(finding.change, rank, trace)]  # type: ignore[arg-type]
    changes = parse_change(f"{fix.verb.name} d2h" if direction == "d2h" else fix.verb.name).changes(trace, rank)
    here = [
        made for made in changes if getattr(made, "device", (rank, finding.where.device))[1] == finding.where.device
    ]
    return [price_change(made, rank, trace) for made in here or changes]


def same_prices(trace: Trace) -> int:
    """How many findings were held against the what-if."""
    findings = found(trace)
    for finding in findings:
        told, pricer = price(finding, trace), calibrated_pricers(trace).get(finding.where.rank or 0)
        (answer,) = asked(trace, finding)
        if told.by == "bound":  # nothing to replay
            assert answer is None
            continue
        assert answer is not None
        assert (told.by, told.gain.low, told.gain.value) == (answer.by, answer.gain.low, answer.gain.value)
        slowed = pricer is not None and pricer.price(finding.change).refused  # type: ignore[arg-type]
        assert slowed or told.gain.high == answer.gain.high  # a doubtful gain is held to the finding's own claim
    return len(findings)


@pytest.mark.parametrize("path", DEMO, ids=lambda path: path.name)
def test_the_demo_has_one_price_per_change(path: Path) -> None:
    assert same_prices(timesink.read(path)) or "after" in path.name


def test_the_page_shows_what_the_diagnosis_says() -> None:
    trace = timesink.read(DEMO[0])
    diagnosis = timesink.diagnose(trace)
    first = next(finding for _, finding in diagnosis.findings if finding.priced_by == "replay")
    change = next(part for part in found(trace) if part.message == first.message).change
    asked_for = Asked(Fix("it", find=lambda _: (change,)), "it", None, {})
    (prices, *_) = what_if_page(trace, [asked_for], None, False).sheets
    row = dict(zip((column.key for column in prices.columns), prices.rows[0], strict=True))
    assert row["gain_ns"] == price_change(change, 0, trace).gain.value * 1e6  # type: ignore[arg-type,union-attr]
    assert row["priced_by"] == "replay"
