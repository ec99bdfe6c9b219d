"""Real pipelines of two GPUs: logs, traces and what was measured without either agree, and depths are foretold."""

import json
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.communication.depths import depths
from timesink.measures.communication.pipelines import schedule
from timesink.measures.communication.stage_logs import read_stage_logs
from timesink.measures.communication.stage_traces import traced_stages
from timesink.model.trace import Trace
from timesink.readers import read

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks/stages/results"
# milliseconds an item at depth 1, 2 and 4, without a log and without a profiler
MEASURED_MS = {
    "depth1": (6.889, 4.464, 4.425), "few_channels": (7.164, 4.150, 4.057),
    "long_transform": (6.489, 3.994, 3.257), "long_encode": (4.841, 3.357, 3.348),
}  # fmt: skip
STEP_MS = {"serial1": 41.16, "1f1b4": 30.73, "1f1b8": 29.61, "1f1b16": 30.54, "gpipe4": 30.41, "interleaved4": 32.10}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("stages")
    for name in ("h200_x2.tar.xz", "schedules_h200_x2.tar.xz"):
        unpacked(RESULTS / name, place)
    return place


def of(folder: Path, name: str, suffix: str = "json") -> list[Path]:
    return [folder / f"{name}.rank{rank}.{suffix}" for rank in (0, 1)]


def trace(folder: Path, name: str) -> Trace:
    return read(of(folder, name), cache=False)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_log_trace_and_clock_agree(folder: Path, depth: int) -> None:
    logs = read_stage_logs(of(folder, f"depth{depth}", "jsonl"))
    measured_ms = MEASURED_MS["depth1"][depth // 2]
    assert logs.overlap.period_ns / 1e6 == pytest.approx(measured_ms, rel=0.015)
    assert logs.score == pytest.approx(0 if depth == 1 else 1, abs=0.01)
    assert logs.facts == {"depth": str(depth)}
    logged = read_stage_logs(of(folder, f"traced{depth}", "jsonl"), skip=4).overlap
    seen = traced_stages(trace(folder, f"depth{depth}")).overlap
    assert seen.period_ns == pytest.approx(logged.period_ns, rel=0.01)
    assert [stage.name for stage in seen.stages] == [
        "rank 0 (stage0:decode + stage0:encode)",
        "rank 1 (stage1:transform)",
    ]
    for stage, known in zip(seen.stages, logged.stages, strict=True):
        assert stage.time_ns == pytest.approx(known.time_ns, rel=0.01)


@pytest.mark.parametrize("name", MEASURED_MS)
def test_a_trace_of_one_item_at_a_time_foretells_two_and_four(folder: Path, name: str) -> None:
    one, *more = MEASURED_MS[name]
    found = depths(trace(folder, name))
    assert found is not None
    for depth, measured in zip((2, 4), more, strict=True):
        change, foretold = measured / one - 1, found.period_ns(depth) / found.period_ns(1) - 1
        assert foretold == pytest.approx(change, abs=0.05)


@pytest.mark.parametrize(
    ("name", "kind", "micro_batches", "chunks"),
    [("1f1b4", "1F1B", 4, 1), ("1f1b8", "1F1B", 8, 1), ("1f1b16", "1F1B", 16, 1), ("gpipe4", "GPipe", 4, 1),
     ("interleaved4", "interleaved", 4, 2)],
)  # fmt: skip
def test_a_schedule_is_known_by_its_messages_or_ranges_and_its_bubble_is_priced(
    folder: Path, name: str, kind: str, micro_batches: int, chunks: int
) -> None:
    recorded = trace(folder, name)
    plan = schedule(recorded)
    assert plan is not None
    assert (plan.name, plan.micro_batches, plan.chunks, plan.is_serial) == (kind, micro_batches, chunks, False)
    assert plan.ideal_ratio == pytest.approx(1 / (chunks * micro_batches + 1))
    bubble_ns = plan.filling_ns + plan.uneven_ns + plan.excess_ns
    assert bubble_ns == pytest.approx(plan.period_ns - plan.mean_ns, rel=0.01)
    _, finding = next(at for at in diagnose(recorded).findings if at[1].bottleneck is Bottleneck.PIPELINE_BUBBLE)
    assert f"{kind}, {micro_batches} micro-batches" in finding.message
    # 8 micro-batches took 1.1 ms less than 4; 16, and chunks of 4, took longer, and stages differ by less than a layer
    assert finding.recoverable is not None
    assert (finding.recoverable.value > 0) == ((micro_batches, chunks) == (4, 1)), finding.recoverable
    quick = schedule(recorded.with_unprofiled_step(STEP_MS[name] * 1e6))
    assert quick is not None and quick.excess_ns < plan.excess_ns  # a profiler slows small pieces
    following = f"1f1b{2 * micro_batches}"
    if kind == "1F1B" and following in STEP_MS:
        low, _, high = plan.gain_ns(2 * micro_batches, 1.0)
        assert low / 1e6 <= STEP_MS[name] - STEP_MS[following] <= high / 1e6


def test_one_item_at_a_time_is_named_and_more_at_a_time_is_not(folder: Path) -> None:
    _, first = diagnose(trace(folder, "depth1")).findings[0]
    assert first.bottleneck is Bottleneck.PIPELINE_BUBBLE
    saving, won = first.recoverable, MEASURED_MS["depth1"][0] - MEASURED_MS["depth1"][1]
    assert saving is not None and saving.low is not None and saving.high is not None
    assert saving.low <= won <= saving.high and saving.value == pytest.approx(won, rel=0.1)
    overlapped = diagnose(trace(folder, "depth2"))
    assert Bottleneck.PIPELINE_BUBBLE not in [finding.bottleneck for _, finding in overlapped.findings]


def test_a_training_step_of_one_micro_batch_is_priced_as_eight(folder: Path) -> None:
    _, first = diagnose(trace(folder, "serial1")).findings[0]
    assert first.bottleneck is Bottleneck.PIPELINE_BUBBLE and "8 micro-batches" in first.advice
    assert first.recoverable is not None
    assert first.recoverable.value == pytest.approx(STEP_MS["serial1"] - STEP_MS["1f1b8"], rel=0.1)


def test_what_depth_two_bought_has_the_verdict_of_compare(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that is not there is that of each rank: run.rank0.jsonl for run.jsonl."""
    command = [
        "ranks",
        "--pipeline",
        str(folder / "depth1.jsonl"),
        "--against",
        str(folder / "depth2.jsonl"),
        "-f",
        "json",
    ]
    assert run(command) == 0
    period, *_ = json.loads(capsys.readouterr().out)["changes"]
    assert period["verdict"] == "inconclusive (likely faster)"
    assert period["low_ratio"] < -0.36 < period["high_ratio"] < -0.3
    assert run(["ranks", "--pipeline", *map(str, of(folder, "depth2")), "-o", str(folder / "items.svg")]) == 0
    picture = (folder / "items.svg").read_text()
    assert picture.count("<polyline") == 2 and "rank 1 (stage1:transform) 3.5" in picture
