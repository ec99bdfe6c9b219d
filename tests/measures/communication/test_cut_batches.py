"""What the stages of a pipeline take once their batch is cut in more pieces."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.communication.cut_batches import CutStage
from timesink.readers import read

CAPTURES = Path(__file__).resolve().parents[3] / "benchmarks/ranks/captures"


@pytest.mark.parametrize(
    ("length_us", "least_us", "host_us", "pieces", "cut_us"),
    [
        (20, 5, 0, 4, 20),  # pieces of 5 us are as short as they get
        (20, 5, 0, 8, 40),
        (20, 20, 0, 6, 120),  # it leaves multiprocessors idle: a piece takes as long
        (20, 0, 0, 64, 20),  # the optimizer runs once
        (20, 5, 15, 2, 30),  # the CPU launches everything twice
    ],
)
def test_a_stage_takes_longer_once_its_kernels_are_short_or_its_cpu_is_late(
    length_us: float, least_us: float, host_us: float, pieces: int, cut_us: float
) -> None:
    stage = CutStage(20.0, host_us, np.array([float(length_us)]), np.array([float(least_us)]))
    assert stage.cut_ns(pieces) == cut_us


@pytest.mark.parametrize(("folder", "fix_ms"), [("two", 20.24), ("four", 24.72)])
def test_what_eight_micro_batches_bought_was_foretold(folder: str, fix_ms: float, tmp_path: Path) -> None:
    with tarfile.open(CAPTURES / folder / "pipeline.fault.torch.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    _, first = diagnose(read(sorted(tmp_path.glob("*.rank*")))).findings[0]
    assert first.bottleneck is Bottleneck.PIPELINE_BUBBLE and "8 micro-batches" in first.advice
    foretold = float(first.message.split(" micro-batches ")[1].split(" ms")[0])
    assert foretold == pytest.approx(fix_ms, rel=0.08)
