"""A roofline of three numbers: what the post's function says of operations, bytes and time, and what is refused."""

from pathlib import Path

import pytest
from tests.guides.answers import sheets

from timesink.cli.app import run

PEAK, BANDWIDTH = 989.4e12, 3350e9  # the post rounds the first to 990e12
ASK, GPU = ("kernels", "--roofline", "--point"), "H100 SXM5"


@pytest.mark.parametrize(
    ("flops", "moved", "seconds"),
    [
        (2 * 2048 * 4096 * 12288, 168e6, 300e-6),  # a product of many rows
        (2 * 4096 * 4096, 2 * 4096 * 4096, 12e-6),  # of one row
        (1e9, 250e6, 90e-6),  # a norm, 4 operations a byte
        (64e9, 1e9, 400e-6),  # 64 a byte: left of a ridge of 295, whatever a table calls it
        (256e9, 1e9, 400e-6),
        (300e9, 1e9, 400e-6),
    ],
)
def test_a_point_is_where_the_formula_of_the_post_puts_it(
    flops: float, moved: float, seconds: float, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = sheets(capsys, *ASK, f"{flops / 1e9}G,{moved / 1e6}MB,{seconds * 1e6}us,{GPU}")["points"]
    intensity = flops / moved
    ceiling = min(PEAK, BANDWIDTH * intensity)
    assert row["side"] == ("memory" if intensity < PEAK / BANDWIDTH else "compute")
    wanted = {
        "intensity": intensity, "ridge": PEAK / BANDWIDTH, "teraflops_per_s": flops / seconds / 1e12,
        "compute_ratio": flops / seconds / PEAK, "memory_ratio": moved / seconds / BANDWIDTH,
        "ceiling_ratio": flops / seconds / ceiling,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("point", ["1e9,1e6", "1e9,0,1ms", "1e9,1MB,1m", "-1,1,1", "one,1,1", "1e9,1e6,1us,fp8,4"])
def test_what_is_no_operations_bytes_and_time_is_refused(point: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK[:2], f"--point={point},{GPU}"]) == 2
    assert "550e9,268MB,670us,H100 SXM5" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (["1,1,1"], "550e9,268MB,670us,H100 SXM5"),
        (["1,1,1,"], "550e9,268MB,670us,H100 SXM5"),
        (["1,1,1,4"], "H100 SXM5"),
        (["1,1,1,A100 SXM4 80GB,fp8"], "bf16"),
        (["1,1,1,H100 SXM5,half"], "bf16"),
        (["1,1,1,H100 SXM5", "1,1,1,H100 PCIe"], "one GPU"),
        (["1,1,1,H100 SXM5", "1,1,1,H100 SXM5,fp8"], "one format"),
    ],
)
def test_what_no_roof_stands_over_is_refused(points: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*ASK[:2], *(f"--point={point}" for point in points)]) == 2
    assert said in capsys.readouterr().err


def test_a_point_is_under_the_roof_of_its_format(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (sheets(capsys, *ASK, f"1T,1MB,10ms, {GPU}{form}")["points"][0] for form in ("", ", fp8"))
    assert one["compute_ratio"] == pytest.approx(2 * two["compute_ratio"], rel=1e-3)
    rows = sheets(capsys, *ASK, f"1T,1MB,10ms,{GPU}", "--point", f"2T,1MB,10ms,{GPU},fp16")["points"]
    assert [row["compute_ratio"] for row in rows] == pytest.approx([one["compute_ratio"], 2 * one["compute_ratio"]])


def test_a_point_is_of_one_gpu_and_a_report_needs_none(hour: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (ASK[:2], (*ASK, f"1,1,1,{GPU}", str(hour / "roofline"))):
        assert run([*words]) == 2
    assert run([*ASK, f"550e9,268MB,1us,{GPU}"]) == 0
    assert "faster than its roof" in capsys.readouterr().out
