"""A change is worth the same whoever asks: the price of a finding is what `timesink what-if` says of its change."""

from __future__ import annotations

import json
import tarfile
from importlib.resources import files
from pathlib import Path

import pytest
from tests.profiles import swept

import timesink
from timesink.diagnosis.pricing import Priced, price, price_change
from timesink.diagnosis.registry import all_rules
from timesink.diagnosis.verdicts import Finding, Found
from timesink.errors import UsageError
from timesink.measures.kernels.fixes import changes_of
from timesink.measures.timeline.replay import calibrated_pricers
from timesink.model.trace import Trace
from timesink.views.what_if import what_if_page
from timesink.whatif.changes import Change, parse_change
from timesink.whatif.changes.kernels import KernelFix

CAPTURES = Path(__file__).parents[2] / "benchmarks" / "faults" / "captures"
PROGRAMS = (
    "adamw_one_by_one",
    "attention_written_out",
    "broken_in_pieces",
    "channels_first",
    "fp32_training",
    "gelu_written_out",
    "item_per_layer",
    "logits_cast_up",
    "needless_contiguous",
    "odd_width",
    "streams_in_lockstep",
    "pageable_batch",
    "outputs_to_host",
)
ARCHIVES = sorted(CAPTURES.glob("*.tar.xz"))
DEMO = sorted(Path(str(files("timesink.cli").joinpath("demo"))).glob("*.json.gz"))


def found(trace: Trace) -> list[Finding]:
    """All findings that name a change, without sharing."""
    verdicts = [rule.verdict(trace, {}) for rule in all_rules()]
    findings = [finding for verdict in verdicts if isinstance(verdict, Found) for finding in verdict.findings]
    return [finding for finding in findings if finding.change is not None]


def asked(trace: Trace, finding: Finding) -> list[Priced | None]:
    """What the what-if says of a finding's change: written as text, where the change can be."""
    assert finding.change is not None
    rank, change = finding.where.rank or 0, finding.change
    try:
        parsed: Change | KernelFix = parse_change(change.label)
    except UsageError:  # host time by windows, and one operator at its bound, have no words
        parsed = change  # type: ignore[assignment]
    changes = changes_of(trace, parsed, rank) if isinstance(parsed, KernelFix) else (parsed,)
    here = [
        made for made in changes if getattr(made, "device", (rank, finding.where.device))[1] == finding.where.device
    ]
    return [price_change(made, rank, trace) for made in here or changes]


def same(trace: Trace) -> int:
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
    assert same(timesink.read(path)) or "after" in path.name


def same_in(archive: Path, part: str, into: Path) -> int:
    """How many findings of the captures that have `part` in their name were held against the what-if."""
    measured = json.loads((CAPTURES / "measured.json").read_text())
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")
    held = 0
    for path in sorted(path for path in into.rglob("*") if path.is_file() and part in f"{path.name}."):
        trace, severity = timesink.read(path), path.name.split(".")[1]
        held += same(trace)
        told = measured.get(f"{archive.name.split('.')[0]}/{severity}", {}).get("fault_ms")
        held += same(trace.with_unprofiled_step(min(told) * 1e6)) if told else 0
    return held


@pytest.mark.parametrize("tool", ["torch", "nsys"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_planted_fault_has_one_price_per_change(program: str, tool: str, tmp_path: Path) -> None:
    assert same_in(CAPTURES / f"{program}.{tool}.tar.xz", ".high.fault.", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(ARCHIVES), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_every_finding_of_every_capture_has_one_price(archive: Path, tmp_path: Path) -> None:
    assert same_in(archive, "", tmp_path) >= 0


def test_the_page_shows_what_the_diagnosis_says() -> None:
    trace = timesink.read(DEMO[0])
    diagnosis = timesink.diagnose(trace)
    first = next(finding for _, finding in diagnosis.findings if finding.priced_by == "replay")
    change = next(part for part in found(trace) if part.message == first.message).change
    (prices, *_) = what_if_page(trace, [change], None, False).sheets  # type: ignore[list-item]
    row = dict(zip((column.key for column in prices.columns), prices.rows[0], strict=True))
    assert row["gain_ns"] == price_change(change, 0, trace).gain.value * 1e6  # type: ignore[arg-type,union-attr]
    assert row["priced_by"] == "replay"
