"""OverlapScore from stage times that a program logged itself, and pipelines from traces."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measures.communication.pipeline_runs import logged, scheduled

from timesink.cli.app import run
from timesink.errors import UnreadableTrace
from timesink.measures.communication.pipelines import OverlapScore, PipelineStage
from timesink.measures.communication.stage_logs import Part, read_stage_logs

NAMES = {"A": 8.0, "B": 6.0, "C": 4.0}


def logs(folder: Path, period: float, stages: dict[str, float] = NAMES, items: int = 5) -> list[Path]:
    """One JSONL file a stage, each on a clock of its own."""
    paths = []
    for number, (name, length) in enumerate(stages.items()):
        path = folder / f"{name}.jsonl"
        lines = [
            json.dumps({f"t{name}0": 1000 * number + at * period, f"t{name}1": 1000 * number + at * period + length})
            for at in range(items)
        ]
        path.write_text("\n".join(lines))
        paths.append(path)
    return paths


@pytest.mark.parametrize(
    ("period", "score"),
    [(18.0, 0.0), (8.0, 1.0), (13.0, 0.5), (25.0, 0.0)],  # sum 18, longest 8: (18 - period) / 10
)
def test_the_score_is_hidden_time_over_what_could_be_hidden(period: float, score: float, tmp_path: Path) -> None:
    assert read_stage_logs(logs(tmp_path, period)).overlap.score == pytest.approx(score)


def test_units_and_csv_give_the_same(tmp_path: Path) -> None:
    paths = logs(tmp_path, 10.0)
    rows = [json.loads(line) for line in paths[0].read_text().splitlines()]
    (tmp_path / "A.csv").write_text(
        "item,tA0,tA1\n" + "\n".join(f"{n},{r['tA0']},{r['tA1']}" for n, r in enumerate(rows))
    )
    mixed = read_stage_logs([tmp_path / "A.csv", *paths[1:]], "ms").overlap
    assert (mixed.period_ns, mixed.longest.name, mixed.longest.time_ns) == (10e6, "rank 0 (A)", 8e6)


def test_items_of_different_steps_do_not_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    times = [(0, 0.0), (0, 2.0), (1, 100.0), (1, 102.0), (2, 300.0), (2, 302.0)]
    path.write_text("\n".join(json.dumps({"step": s, "tA0": t, "tA1": t + 1}) for s, t in times))
    assert read_stage_logs([path]).series["period_ns"].to_list() == [2e9, 2e9, 2e9]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"x": 1}\n', "no column"),
        ('{"tA0": 1, "tA1": 2}\nnot json\n', "line 2"),
        ('{"tA0": 3, "tA1": 2}\n' * 4, "ends before it begins"),
        ('{"tA0": 1, "tA1": 2}\n', "too few"),
        ("", "no column"),
    ],
)
def test_a_log_that_says_nothing_is_refused_with_its_reason(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text)
    with pytest.raises(UnreadableTrace, match=says):
        read_stage_logs([path])


def test_the_gate_fails_below_its_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [str(path) for path in logs(tmp_path, 13.0)]
    assert run(["ranks", "--pipeline", *texts, "--min-overlap", "0.4"]) == 0
    assert run(["ranks", "--pipeline", *texts, "--min-overlap", "0.6"]) == 1
    assert run(["ranks", "--pipeline", *texts, "--min-overlap", "0.6", "--exit-zero"]) == 0
    capsys.readouterr()
    assert run(["ranks", "--pipeline", *texts, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["overlap"][0]["overlap_score"] == 0.5


@given(st.lists(st.floats(1.0, 100.0), min_size=2, max_size=6), st.floats(0.0, 1.0))
def test_the_score_is_where_the_period_lies_between_serial_and_ideal(lengths: list[float], share: float) -> None:
    stages = tuple(PipelineStage(str(at), length) for at, length in enumerate(lengths))
    serial, longest = sum(lengths), max(lengths)
    score = OverlapScore(stages, serial - share * (serial - longest)).score
    assert score == pytest.approx(share, abs=1e-6)


def test_the_bubble_of_equal_stages_is_what_megatron_states() -> None:
    # Stages p, micro-batches m of length 1: a GPipe step takes m + p - 1, a share (p - 1) / (m + p - 1) is bubble.
    assert OverlapScore((PipelineStage("0", 8.0), PipelineStage("1", 8.0)), 9.0).bubble_ratio == pytest.approx(1 / 9)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("lengths", [(450, 300), (300, 450), (200, 500, 100), (50, 60, 70, 80), (100, 100, 100, 100)])
@pytest.mark.parametrize("transfer", [0, 7])
def test_stages_of_known_length_have_the_period_score_and_idle_time_of_their_depth(
    lengths: tuple[int, ...], depth: int, transfer: int, tmp_path: Path
) -> None:
    """At depth d a stage is the pace, or the whole way of an item over d; checked once the pipeline is full."""
    run = scheduled([[length] * 20 for length in lengths], depth, transfer)
    way = sum(lengths) + transfer * (len(lengths) - 1)
    logs = read_stage_logs(logged(run, tmp_path, one_clock=True), skip=9)
    series = logs.series
    assert series["period_ns"].mean() == pytest.approx(max(*lengths, way / depth), abs=way / series.height)
    assert series["period_ns"].to_list() == [run.period_ns(item) for item in range(10, 20)]
    assert series["mesh_idle_ns"].to_list() == [run.mesh_idle_ns(item) for item in range(10, 20)]
    assert [stage.time_ns for stage in logs.overlap.stages] == list(lengths)
    if depth == 1:
        assert logs.score == 0
    if way <= depth * max(lengths):
        assert logs.score == 1
    apart = read_stage_logs(logged(run, tmp_path), skip=9).series
    assert apart.drop("mesh_idle_ns").equals(series.drop("mesh_idle_ns"))
    assert apart["mesh_idle_ns"].null_count() == apart.height  # would compare clocks


@given(
    st.lists(st.lists(st.integers(1, 1000), min_size=12, max_size=12), min_size=2, max_size=4),
    st.integers(1, 5), st.integers(0, 50), st.booleans(),
)  # fmt: skip
def test_what_logs_say_follows_from_when_stages_worked(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[list[int]], depth: int, transfer: int, one_clock: bool
) -> None:
    run = scheduled(lengths, depth, transfer)
    logs = read_stage_logs(logged(run, tmp_path_factory.mktemp("logs"), one_clock=one_clock))
    series, count = logs.series, len(lengths)
    stages = np.array([series[f"stage{stage}_ns"] for stage in range(count)])
    assert stages.tolist() == [line[1:] for line in lengths]
    period, serial = series["period_ns"].to_numpy(), stages.sum(axis=0)
    assert period.tolist() == [run.period_ns(item) for item in range(1, 12)]
    idle = [run.mesh_idle_ns(item) for item in range(1, 12)]
    assert series["mesh_idle_ns"].to_list() == (idle if one_clock else [None] * 11)
    for stage, line in enumerate(run.work):  # what a rank works and idles is the time between the ends of its items
        own = np.diff([end for _, end in line]) - [end - begin for begin, end in line[1:]]
        assert series[f"idle{stage}_ns"].to_list() == own.tolist()
    hidden = series["hidden_ns"].to_numpy()
    assert ((hidden >= 0) & (hidden <= series["smaller_ns"].to_numpy())).all()
    assert logs.score is not None
    assert (logs.score == 1) == bool((period <= stages.max(axis=0)).all())
    assert (logs.score == 0) == bool((period >= serial).all())


GUIDE = {"tA0": 0, "tA1": 100, "tSend": 101, "tRecv": 410, "tDecode": 550, "tEmit": 900}


def with_decode(folder: Path, period: int = 450) -> list[Path]:
    """Encode 100 and decode 350 on the first rank, 300 on the second; each item `period` after the one before."""
    first, second = folder / "rank0.jsonl", folder / "rank1.jsonl"
    first.write_text(
        "\n".join(json.dumps({key: time + item * period for key, time in GUIDE.items()}) for item in range(9))
    )
    second.write_text(
        "\n".join(json.dumps({"tB0": 5000 + item * period, "tB1": 5300 + item * period}) for item in range(9))
    )
    return [first, second]


def test_encode_and_decode_of_one_rank_are_one_stage(tmp_path: Path) -> None:
    logs = read_stage_logs(with_decode(tmp_path), "ms")
    assert [(stage.name, stage.time_ns) for stage in logs.overlap.stages] == [
        ("rank 0 (A + decode)", 450e6),
        ("rank 1 (B)", 300e6),
    ]
    assert (logs.score, logs.overlap.period_ns) == (1.0, 450e6)
    assert set(logs.series["away_ns"]) == {9e6}  # 309 between send and receive, 300 of them work of the other rank
    assert set(logs.series["idle0_ns"][:-1]) == {0}  # before the last item leaves there is none to encode
    assert set(logs.series["idle1_ns"]) == {150e6}
    assert read_stage_logs(with_decode(tmp_path, 750), "ms").score == 0.0


def test_parts_may_be_named_by_their_columns_and_transfers_are_no_work(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    rows = [f"{item},{rank},{10 * item},{10 * item + 4},{10 * item + 6}" for item in range(6) for rank in (0, 1)]
    path.write_text("item,rank,t_in,t_out,t_gone\n" + "\n".join(rows))
    parts = [Part("encode", "t_in", "t_out"), Part("send", "t_out", "t_gone")]
    logs = read_stage_logs([path], "ns", parts)
    assert [rank.name for rank in logs.ranks] == ["rank 0 (encode)", "rank 1 (encode)"]
    assert set(logs.series["stage0_ns"]) == {4}
    assert set(logs.series["transfer_ns"]) == {4}  # two of each rank


def test_items_that_a_rank_did_not_log_are_left_out_and_counted(tmp_path: Path) -> None:
    paths = logged(scheduled([[5] * 8, [4] * 8], 2), tmp_path)
    lines = paths[1].read_text().splitlines()
    paths[1].write_text("\n".join(line for line in lines if '"item": 3' not in line))
    logs = read_stage_logs(paths)
    assert (logs.left_out, logs.series["item"].to_list()) == (1, [1, 2, 4, 5, 6, 7])


def test_a_time_beyond_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"tA0": 1, "tA1": 2e300}\n' * 4)
    with pytest.raises(UnreadableTrace, match="centuries"):
        read_stage_logs([path])
