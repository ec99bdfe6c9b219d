"""The regression test of a guide: {metric: number} of a kernel as plain JSON, held against the same of before."""

import json
from pathlib import Path

import pytest

from timesink.cli.app import run

BASELINE = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": 81.2,
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 60.4,
    "sm__warps_active.avg.pct_of_peak_sustained_active": 45.0,
    "l1tex__t_sector_hit_rate.pct": 70.0,
    "gpu__time_duration.sum": 101_000,
    "smsp__inst_executed.sum": 4_194_304,
}


def gated(folder: Path, capsys: pytest.CaptureFixture[str], **times: float) -> tuple[int, str]:
    """The gate of the baseline against a run whose metrics that contain these words are so many times as large."""
    now = {
        name: value * next((by for word, by in times.items() if word in name), 1.0) for name, value in BASELINE.items()
    }
    for name, metrics in (("base.json", BASELINE), ("now.json", now)):
        (folder / name).write_text(json.dumps(metrics))
    capsys.readouterr()
    code = run(["gate", "--metrics", str(folder / "now.json"), "--metrics-before", str(folder / "base.json")])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "times", "code"),
    [
        ("sm__throughput", 0.94, 1),
        ("sm__throughput", 0.96, 0),
        ("sm__throughput", 1.2, 0),
        ("dram_throughput", 0.9, 1),
        ("warps_active", 0.9, 1),
        ("hit_rate", 0.9, 1),
        ("time_duration", 1.06, 1),
        ("time_duration", 1.04, 0),
        ("time_duration", 0.5, 0),
        ("inst_executed", 1.001, 1),
        ("nothing", 1.0, 0),
    ],
)
def test_a_metric_that_regressed_by_more_than_5_percent_fails(
    word: str, times: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, text = gated(tmp_path, capsys, **{word: times})
    assert found == code, text
    assert ("worse" in text) is (code == 1)


def test_a_metric_that_is_missing_now_never_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The guide's own code takes a missing metric for 0, a fall of 100 %."""
    (tmp_path / "base.json").write_text(json.dumps(BASELINE))
    (tmp_path / "now.json").write_text("{}")
    arguments = ["gate", "--metrics", str(tmp_path / "now.json"), "--metrics-before", str(tmp_path / "base.json")]
    assert run(arguments) != 0
    assert "not measured now" in " ".join(capsys.readouterr().out.split())


TOPIC = {"fps": 24.5, "tokens_per_s": 100, "sm_pct": 89.0, "dram_pct": 60, "achieved_occupancy_pct": 50,
         "bf16_tflop_per_s": 600, "OverlapScore": 0.8}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "times", "better", "code"),
    [*((name, 9.6 / 24.5, None, 1) for name in TOPIC), *((name, 1.01, None, 0) for name in TOPIC),
     *((name, 0.96, None, 0) for name in TOPIC), ("p99_ms", 1.01, None, 1), ("p99_ms", 0.5, None, 0),
     ("goodness", 1.01, None, 1), ("goodness", 0.99, None, 1), ("goodness", 1.01, "higher", 0),
     ("goodness", 0.99, "higher", 1), ("goodness", 0.99, "lower", 0)],
)  # fmt: skip
def test_the_topics_own_names_fail_where_they_fall_and_what_says_no_direction_may_not_differ(
    name: str, times: float, better: str | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value, more = TOPIC.get(name, 10.0), {"better": better} if better else {}
    for file, number in (("base.json", value), ("now.json", value * times)):
        (tmp_path / file).write_text(json.dumps({name: {"value": number, **more}}))
    assert (
        run(["gate", "--metrics", str(tmp_path / "now.json"), "--metrics-before", str(tmp_path / "base.json")]) == code
    )
    said = " ".join(capsys.readouterr().out.split())
    assert code == 0 or ("is better" in said)
