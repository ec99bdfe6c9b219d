"""A real capture with a known truth, scored from archive to figure."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import pytest
from benchmarks.faults import adopt, score
from benchmarks.faults.scoring import Observation, figures
from benchmarks.faults.trim import trim_torch

import timesink

DEMO = Path(timesink.__file__).parent / "cli" / "demo"
# Unprofiled step of the demo program, whose batches are sorted on the host (fault) or kept on the GPU (fix).
MEASURED = {"batch_prepared_in_line/high": {"fault_ms": [10.6], "fix_ms": [8.7], "receipts_equal": [True]}}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's two captures, trimmed to six steps and packed as the suite packs its own."""
    folder = tmp_path_factory.mktemp("captures")
    with tarfile.open(folder / "batch_prepared_in_line.torch.tar.xz", "w:xz", preset=0) as archive:
        for demo, variant in (("gpt_before", "fault"), ("gpt_after", "fix")):
            raw, small = folder / f"{demo}.json", folder / f"batch_prepared_in_line.high.{variant}.json"
            raw.write_bytes(gzip.decompress((DEMO / f"{demo}.json.gz").read_bytes()))
            trim_torch(raw, small, steps=6)
            archive.add(small, arcname=small.name)
    return folder


@pytest.fixture
def captures(packed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(adopt, "CAPTURES", packed)
    return packed


def test_a_capture_is_diagnosed_and_held_against_the_measured_gain(captures: Path) -> None:
    fault, fix = score.archive_observed(score.Job("batch_prepared_in_line", "torch", MEASURED))
    assert (fault.variant, fix.variant) == ("fault", "fix")
    assert fault.gain == pytest.approx(1.9 / 10.6)
    for item, unprofiled_ms in ((fault, 10.6), (fix, 8.7)):
        trace = timesink.read(captures / f"batch_prepared_in_line.high.{item.variant}.json")
        diagnosis = timesink.diagnose(trace, unprofiled_step_ms=unprofiled_ms)
        assert item.verdict == diagnosis.bottleneck
        assert [name for name, _ in item.findings] == [finding.bottleneck for _, finding in diagnosis.findings]
        assert all(0 <= share < 1 for _, share in item.findings)
    assert fault.foretold is not None
    assert 0 <= fault.foretold.low <= fault.foretold.value <= fault.foretold.high < 1
    assert (figures([fault, fix]).costly, figures([fault, fix]).priced) == (1, 1)
    assert all(0 <= price <= 1 for price in fault.formulas.values())


def test_a_case_without_equal_receipts_is_not_scored(captures: Path) -> None:
    unequal = {"batch_prepared_in_line/high": {**MEASURED["batch_prepared_in_line/high"], "receipts_equal": [False]}}
    assert score.archive_observed(score.Job("batch_prepared_in_line", "torch", unequal)) == []


def test_files_of_ranks_are_one_capture(tmp_path: Path) -> None:
    names = ("a.high.fault.rank0.json", "a.high.fault.rank1.json", "a.high.fix.json", "rank1.low.fault.sqlite")
    for name in names:
        (tmp_path / name).touch()
    found = {capture: [path.name for path in paths] for capture, paths in score.captures_in(tmp_path).items()}
    assert found == {
        "a.high.fault": list(names[:2]), "a.high.fix": [names[2]], "rank1.low.fault": [names[3]]
    }  # fmt: skip


def seen(split: str, tool: str) -> Observation:
    return Observation("a", "high", "fault", tool, split, owed="host_sync", gain=0.2, verdict="host_sync")


def test_totals_are_printed_for_every_split_and_for_all_of_them() -> None:
    tune, fresh, other = seen("tune", "torch"), seen("fresh", "torch"), seen("fresh", "nsys")
    assert list(score.groups([fresh, tune, other])) == [
        ("tune", "torch", [tune]),
        ("fresh", "torch", [fresh]),
        ("fresh", "nsys", [other]),
        ("all", "torch", [fresh, tune]),
        ("all", "nsys", [other]),
    ]


def test_the_third_set_is_printed_apart() -> None:
    parts = [seen(split, "torch") for split in ("third_evaluate", "third_tune", "tune")]
    assert [(split, len(part)) for split, _, part in score.groups(parts)] == [
        ("tune", 1), ("third_tune", 1), ("third_evaluate", 1), ("all", 3)
    ]  # fmt: skip


def test_one_split_alone_is_its_own_total() -> None:
    only = [seen("fresh", "torch")]
    assert list(score.groups(only)) == [("fresh", "torch", only)]
