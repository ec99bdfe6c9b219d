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
