"""OverlapScore from stage times that a program logged itself, and pipelines from traces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.cli.app import run
from timesink.errors import UnreadableTrace
from timesink.measures.communication.pipelines import OverlapScore, PipelineStage, read_stage_logs

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
    assert (mixed.period_ns, mixed.longest.name, mixed.longest.time_ns) == (10e6, "A", 8e6)


def test_items_of_different_steps_do_not_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    times = [(0, 0.0), (0, 2.0), (1, 100.0), (1, 102.0), (2, 300.0), (2, 302.0)]
    path.write_text(
        "\n".join(json.dumps({"step": s, "tA0": t, "tA1": t + 1, "tB0": t, "tB1": t + 1}) for s, t in times)
    )
    assert read_stage_logs([path]).overlap.period_ns == 2e9


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
    assert run(["pipeline", *texts, "--min-overlap", "0.4"]) == 0
    assert run(["pipeline", *texts, "--min-overlap", "0.6"]) == 1
    assert run(["pipeline", *texts, "--min-overlap", "0.6", "--exit-zero"]) == 0
    capsys.readouterr()
    assert run(["pipeline", *texts, "--format", "json"]) == 0
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
