"""What the stages of a pipeline take once their batch is cut in more pieces."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from benchmarks.faults.pack import unpacked
from pytest import MonkeyPatch

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.communication import depths as of
from timesink.measures.communication.depths import CutStage, layer_ns
from timesink.measures.communication.pipelines import Schedule
from timesink.model.trace import Trace
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


@pytest.mark.parametrize(
    ("trains", "items", "stages", "families", "taken_us"),
    [
        (True, 4, (50.0, 90.0), ["gemm", "pointwise", "gemm"], 3 * 4 * 60 / 2),
        (False, 4, (50.0, 90.0), ["gemm", "pointwise", "gemm"], 4 * 60 / 2),
        (False, 1, (50.0, 90.0), ["attention", "gemm", "convolution"], 60 / 3),
        (True, 8, (50.0, 90.0), ["gemm", "pointwise", "communication"], 3 * 8 * 30),
        (True, 8, (50.0, 90.0), ["pointwise", "pointwise", "pointwise"], 0),
        (True, 4, (90.0, 50.0), ["gemm", "pointwise", "gemm"], 3 * 4 * 7),  # the longest stage is rank 0
    ],
)
def test_the_smallest_layer_of_a_stage_is_a_product_and_its_way_back(
    trains: bool, items: int, stages: tuple[float, ...], families: list[str], taken_us: float, monkeypatch: MonkeyPatch
) -> None:
    """Rank 1 runs kernels of 10, 20 and 30 us; rank 0 one product of 7 us."""
    frame = pl.DataFrame(
        {"rank": [0, 1, 1, 1], "device": 0, "length": [7, 10, 20, 30], "family": ["gemm", *families], "blocks": 1}
    )
    monkeypatch.setattr(of, "kernel_facts", lambda _: SimpleNamespace(frame=frame))
    monkeypatch.setattr(of, "multiprocessors", lambda _: {(1, 0): 132})
    monkeypatch.setattr(of, "trains", lambda _: trains)
    plan = Schedule(stages, 100.0, items, 1, "", items)
    assert layer_ns(Trace("test", {}), SimpleNamespace(ranks=(0, 1)), plan) == taken_us  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pieces", "runs", "family", "found"),
    [
        (12, [11, 11], "pointwise", True),  # adds the gradients of a piece to those before
        (12, [44, 44], "pointwise", True),  # of four weights
        (12, [12, 12], "pointwise", False),  # of each piece
        (12, [1, 1], "foreach", False),  # of each step
        (12, [11, 12], "pointwise", False),
        (12, [11, 0], "pointwise", False),
        (12, [132, 132], "pointwise", False),  # either
        (3, [2, 4], "pointwise", True),
        (2, [1, 3], "pointwise", False),  # of each step, or of the second piece
        (1, [7, 7], "pointwise", False),
        (49, [48, 48], "gemm", False),  # there are 48 pieces
    ],
)
def test_what_runs_for_all_pieces_but_the_first_adds_up(pieces: int, runs: list[int], family: str, found: bool) -> None:
    """In two steps of 1,000 ns from 1,000 on; before and after them it runs as it likes."""
    starts = [1, 2, 3, 3_500, *(1_000 * (step + 1) + at for step, count in enumerate(runs) for at in range(count))]
    own = pl.DataFrame({"start_ns": starts}).with_columns(name=pl.lit(4), blocks=pl.lit(9), family=pl.lit(family))
    other = own.with_columns(name=pl.lit(5)).head(2)
    steps = pl.DataFrame({"start_ns": [1_000, 2_000], "end_ns": [2_000, 3_000]})
    assert of._adds_up(pl.concat([own, other]), steps, pieces).to_list() == [found] * own.height + [False] * 2


@pytest.mark.parametrize(("folder", "fix_ms"), [("two", 20.24), ("four", 24.72)])
def test_what_eight_micro_batches_bought_was_foretold(folder: str, fix_ms: float, tmp_path: Path) -> None:
    unpacked(CAPTURES / folder / "pipeline.fault.torch.tar.xz", tmp_path)
    _, first = diagnose(read(sorted(tmp_path.glob("*.rank*")))).findings[0]
    assert first.bottleneck is Bottleneck.PIPELINE_BUBBLE and "8 micro-batches" in first.advice
    foretold = float(first.message.split(" micro-batches ")[1].split(" ms")[0])
    assert foretold == pytest.approx(fix_ms, rel=0.08)
