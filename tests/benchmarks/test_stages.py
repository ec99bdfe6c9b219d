"""A real pipeline of two GPUs: what its logs say is what was measured without them, and what its traces say."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.communication.pipelines import OverlapScore, pipeline
from timesink.measures.communication.stage_logs import read_stage_logs
from timesink.readers import read

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/stages/results/h200_x2.tar.xz"
MEASURED_MS = {1: 6.861, 2: 4.453, 4: 4.416}  # an item, without a log and without a profiler


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stages")
    with tarfile.open(RESULTS) as packed:
        packed.extractall(place, filter="data")
    return place


def of(folder: Path, name: str, suffix: str) -> list[Path]:
    return [folder / f"{name}.rank{rank}.{suffix}" for rank in (0, 1)]


@pytest.mark.parametrize("depth", MEASURED_MS)
def test_the_period_of_a_log_is_the_one_measured_without_it(folder: Path, depth: int) -> None:
    logs = read_stage_logs(of(folder, f"depth{depth}", "jsonl"))
    assert logs.overlap.period_ns / 1e6 == pytest.approx(MEASURED_MS[depth], rel=0.015)
    assert logs.score == pytest.approx(0 if depth == 1 else 1, abs=0.01)
    assert logs.facts == {"depth": str(depth)}


def traced(folder: Path, depth: int) -> OverlapScore:
    line = pipeline(read(of(folder, f"depth{depth}", "json"), cache=False))
    assert line is not None
    return line.overlap


@pytest.mark.parametrize("depth", [1, 2])
def test_a_log_and_a_trace_of_the_same_items_agree(folder: Path, depth: int) -> None:
    """The trace has no launch gaps within a stage, so its stages are shorter."""
    logged = read_stage_logs(of(folder, f"traced{depth}", "jsonl"), skip=4).overlap
    seen = traced(folder, depth)
    assert seen.period_ns == pytest.approx(logged.period_ns, rel=0.01)
    longest = {stage.name.split(" (")[0]: stage.time_ns for stage in logged.stages}
    for stage in seen.stages:
        assert 0.965 * longest[stage.name] <= stage.time_ns <= longest[stage.name]


def test_one_item_at_a_time_is_named_and_more_at_a_time_is_not(folder: Path) -> None:
    serial = diagnose(read(of(folder, "depth1", "json"), cache=False))
    _, first = serial.findings[0]
    assert first.bottleneck is Bottleneck.PIPELINE_BUBBLE
    saving = first.recoverable
    assert saving is not None and saving.low is not None and saving.high is not None
    assert saving.low <= MEASURED_MS[1] - MEASURED_MS[2] <= saving.high
    overlapped = diagnose(read(of(folder, "depth2", "json"), cache=False))
    assert Bottleneck.PIPELINE_BUBBLE not in [finding.bottleneck for _, finding in overlapped.findings]
