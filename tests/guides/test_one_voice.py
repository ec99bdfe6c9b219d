"""A run is spoken of in one voice: its manifest, its facts and its OverlapScore are the same in every answer."""

import json
import re
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked
from tests.capture.test_facts import captured

from timesink.cli.app import run

STAGES = Path(__file__).resolve().parents[2] / "benchmarks/stages/results/h200_x2.tar.xz"
SCORE = re.compile(r"OverlapScore\s+([\d.]+)")
PAIRS = ("depth1", "depth2", "depth4", "few_channels", "long_encode", "long_transform")


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces and logs of a pipeline of two ranks, recorded on two H200."""
    folder = tmp_path_factory.mktemp("stages")
    unpacked(STAGES, folder)
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """What a command prints, its lines joined."""
    capsys.readouterr()
    assert run([str(word) for word in words]) in (0, 1)
    return " ".join(capsys.readouterr().out.split())


def ranks_of(folder: Path, name: str, suffix: str = "json") -> list[Path]:
    return [folder / f"{name}.rank{rank}.{suffix}" for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("command", [("show", "statement"), ("diagnose", "-v"), ("plan",)])
def test_facts_and_the_step_without_a_profiler_are_those_of_the_manifest(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = captured(tmp_path)
    text = said(capsys, *command, trace)
    assert "10.6 ms" in text  # timed without a profiler; as profiled it is 12.3 ms
    if command != ("plan",):
        assert "resolution=512" in text


def test_a_statement_never_calls_the_profiled_step_the_throughput(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "show", "statement", captured(tmp_path))
    assert "throughput: the median step takes 10.6 ms, 758 samples/s (12 steps without a profiler" in text
    assert "12.3 ms, " not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_an_overlap_score_is_the_same_wherever_it_is_printed(
    name: str, staged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = ranks_of(staged, name)
    answers = [
        said(capsys, *command, *traces)
        for command in (("ranks", "--pipeline"), ("show", "statement"), ("diagnose", "-v"), ("ranks",))
    ]
    scores = {float(score) for text in answers for score in SCORE.findall(text.partition("FAILED")[0])}
    assert len(scores) == 1, scores


@pytest.mark.parametrize(("name", "score"), [("depth1", "0.00"), ("depth2", "1.00"), ("depth4", "1.00")])
def test_logs_of_stages_are_stated(name: str, score: str, staged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "show", "statement", *ranks_of(staged, name, "jsonl"))
    assert f"at depth={name.removeprefix('depth')} (" in text
    assert "items/s" in text
    assert SCORE.findall(text) == [score]


def test_a_change_of_depth_is_stated_from_logs(staged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "show", "statement", *ranks_of(staged, "depth2", "jsonl"), "--against", staged / "depth1.jsonl")
    assert text.startswith("pipeline: period 4.45 ms at depth=2 (225 items/s) is the longest stage")
    assert "6.91 ms before (-35.6 %; one run each)" in text


def test_columns_of_the_guide_in_csv_are_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """tA0, tA1, tDecode, tEmit on rank 0 and tB0, tB1 on rank 1, in seconds: stages of 320 and 450 ms."""
    rows = [(number, 0.45 * number) for number in range(12)]
    first, second = tmp_path / "rank0.csv", tmp_path / "rank1.csv"
    first.write_text(
        "item,tA0,tA1,tDecode,tEmit\n"
        + "".join(f"{number},{at},{at + 0.1},{at + 0.2},{at + 0.42}\n" for number, at in rows)
    )
    second.write_text("item,tB0,tB1\n" + "".join(f"{number},{at},{at + 0.45}\n" for number, at in rows))
    text = said(capsys, "show", "statement", first, second)
    assert "period 450 ms (2.22 items/s) is the longest stage (rank 1" in text
    assert SCORE.findall(text) == ["1.00"]


def test_shares_are_of_the_step_and_not_of_its_busy_time(staged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "show", "statement", *ranks_of(staged, "depth1")).partition("throughput")[0]
    shares = [float(share) for share in re.findall(r"([\d.]+) %", text)]
    assert "of the mean step of 7.09 ms" in text
    assert "idle 0.92 %" in text
    assert sum(shares) == pytest.approx(100, abs=0.3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("send", "annotation"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "nccl:all_reduce"),
        ("ncclDevKernel_Broadcast_RING_LL", "nccl:broadcast"),
        ("ncclDevKernel_AllGather_RING_LL", "nccl:all_gather"),
        ("ncclKernel_AllReduce_RING_LL_Sum_half", "nccl:all_reduce"),
    ],
)
@pytest.mark.parametrize("ranges", ["pp:stage{}:", "stage {} ", "PP:{}F"])
def test_stages_that_ranges_name_are_a_pipeline_whatever_moves_the_data(
    send: str, annotation: str, ranges: str, staged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The stages of depth 1 run one after another, and nothing says send or receive."""
    if ranges == "PP:{}F" and not annotation.startswith("nccl:all_reduce"):
        pytest.skip("one vendor of ranges is enough for the other ways to move data")
    for path in ranks_of(staged, "depth1"):
        trace = json.loads(path.read_text())
        for event in trace["traceEvents"]:
            name = str(event.get("name"))
            if "SendRecv" in name:
                event["name"] = send
            elif re.match(r"nccl:(send|recv)|c10d::(send|recv)", name) or name == "record_param_comms":
                event["name"], event["args"] = annotation, {}
            elif stage := re.match(r"pp:stage(\d):", name):
                part = name[stage.end() :] if not ranges.startswith("PP") else "0"
                event["name"] = f"{ranges.format(stage[1])}{part}"
        (tmp_path / path.name).write_text(json.dumps(trace))
    traces = ranks_of(tmp_path, "depth1")
    assert "pipeline bubble" in said(capsys, "diagnose", *traces).partition("·")[0]
    assert SCORE.findall(said(capsys, "show", "statement", *traces)) == ["0.00"]
