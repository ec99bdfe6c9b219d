"""Programs with one planted fault, captured on two and four H200s: the fault is named, and controls are left alone."""

from functools import cache
from pathlib import Path

import pytest
from benchmarks.ranks import score

from timesink.measures.communication.stage_logs import read_stage_logs
from timesink.measures.communication.waits import collective_waits
from timesink.readers import read

FOLDERS = [score.CAPTURES / name for name in ("two", "four")]
ARCHIVES = [
    pytest.param(
        archive,
        id=f"{folder.name}-{archive.name.split('.tar')[0]}",
        marks=pytest.mark.slow if folder.name == "four" else (),
    )
    for folder in FOLDERS
    for archive in score.captures(folder)
]


scored = cache(score.score)  # two tests ask for some


@pytest.mark.slow
@pytest.mark.parametrize("archive", ARCHIVES)
def test_the_planted_fault_is_among_the_first_two_findings(archive: Path) -> None:
    assert scored(archive).named


# Unprofiled gain of the fix against the price, as a factor: replays across ranks know nothing of smaller micro-batches
# (pipeline) nor of what the profiler itself costs the host (straggler_host).
@pytest.mark.parametrize(
    ("capture", "factor"),
    [
        ("two/straggler_device.fault.torch", 1.35),
        pytest.param("four/straggler_device.fault.torch", 1.15, marks=pytest.mark.slow),
        ("two/serving.fault.torch", 1.15),
        pytest.param("four/serving.fault.torch", 1.15, marks=pytest.mark.slow),
        ("two/pipeline.fault.torch", 1.4),
        pytest.param("four/pipeline.fault.torch", 1.4, marks=pytest.mark.slow),
        ("two/synchronised_exchange.fault.torch", 1.4),
    ],
)
def test_prices_are_near_what_the_fix_won(capture: str, factor: float) -> None:
    got = scored(score.CAPTURES / f"{capture}.tar.xz")
    assert got.predicted_ms is not None
    assert got.measured_ms / factor <= got.predicted_ms <= got.measured_ms * factor


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_ranks_of_one_host_are_seen_to_share_its_clock(tool: str, tmp_path: Path) -> None:
    archive = score.CAPTURES / f"two/healthy_ddp.fault.{tool}.tar.xz"
    clocks = collective_waits(read(score.unpacked(archive, tmp_path), cache=False)).clocks
    assert len(clocks.clocks) == 1
    assert clocks.assumed_shared is (tool == "torch")
    assert clocks.shared_clock_ok


@pytest.mark.parametrize(("variant", "low", "high"), [("fault", 0.0, 0.05), ("fix", 0.85, 1.0)])
def test_logged_stages_overlap_only_in_the_fix(variant: str, low: float, high: float, tmp_path: Path) -> None:
    score.unpacked(score.CAPTURES / f"two/serving.{variant}.torch.tar.xz", tmp_path)
    overlap = read_stage_logs(sorted(tmp_path.glob("*.jsonl"))).overlap
    assert overlap.score is not None
    assert low <= overlap.score <= high
