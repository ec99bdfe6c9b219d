"""`timesink show compile`, and logs beside traces under `timesink diagnose`, as a user runs them."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from timesink.cli.app import run

DATA = Path(__file__).resolve().parents[1] / "data" / "compile"


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """The JSON a command writes; it exits with 0."""
    assert run([*arguments, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "layer_breaks.json"
    path.write_bytes(lzma.decompress((DATA / "layer_breaks.broken.json.xz").read_bytes()))
    return path


def test_a_log_alone_shows_its_breaks_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    page = said(capsys, "compile", str(DATA / "print_break.trace.log"))
    assert {row["name"]: row["value"] for row in page["counts"]} == {
        "graph_breaks": 1,
        "recompilations": 0,
        "late_recompilations": 0,
    }
    (row,) = page["breaks"]
    assert (row["line"], row["function"], row["reason"]) == (60, "work", "Failed to trace builtin operator")


def test_a_trace_alone_shows_regions_and_asks_for_a_log(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    assert run(["compile", str(trace)]) == 0
    text = capsys.readouterr().out
    assert "regions_per_step" in text and "TORCH_TRACE" in text


def test_a_diagnosis_of_trace_and_log_names_the_line_to_change(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    document = said(capsys, "diagnose", str(trace), str(DATA / "layer_breaks.trace.log"))
    first = document["findings"][0]
    assert first["code"] == "CMP101"
    assert "benchmarks/compiling/programs.py:161" in first["advice"]
    assert any(sentence.startswith("compile: graph breaks 2") for sentence in document["statements"])


def test_a_log_alone_can_be_diagnosed(capsys: pytest.CaptureFixture[str]) -> None:
    document = said(capsys, "diagnose", str(DATA / "int_argument.trace.log"))
    assert document["verdict"]["bottleneck"] == "recompilation"
    assert "number == 6" in document["verdict"]["statement"]
