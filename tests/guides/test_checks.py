"""The five checks of a timeline answer with what the rules found, for planted faults, under both profilers."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked

from timesink.cli.app import run
from timesink.diagnosis.engine import diagnose
from timesink.readers import read

FAULTS = Path(__file__).resolve().parents[2] / "benchmarks/faults/captures"
CHECKS = ("GPU idle gaps", "kernels one after another that could overlap", "small kernels",
          "copies between CPU and GPU", "gaps at collectives")  # fmt: skip
# What a fault is to be found by; every other check of its capture is held to the law below.
PLANTED = {
    "broken_in_pieces": "small kernels", "gelu_written_out": "small kernels", "item_per_layer": "GPU idle gaps",
    "loader_in_main": "GPU idle gaps", "pageable_batch": "copies between CPU and GPU",
    "small_training_step": "GPU idle gaps",
}  # fmt: skip


def checked(trace: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str, str]]:
    capsys.readouterr()
    assert run(["show", "checks", str(trace), "-f", "csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))[1:]
    return {row[0]: (row[1], row[2], row[3]) for row in rows}


@pytest.mark.parametrize("tool", ["torch", "nsys"])
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_by_its_check_and_all_five_answer(
    name: str, tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unpacked(FAULTS / f"{name}.{tool}.tar.xz", tmp_path)
    trace = next(tmp_path.rglob("*high.fault*"))
    answers = checked(trace, capsys)
    assert tuple(answers) == CHECKS
    assert answers[PLANTED[name]][0] == "found"
    found = {card.code for card, _ in diagnose(read(trace)).findings}
    for answer, because, following in answers.values():
        assert answer in ("found", "clear", "undecided") and because
        assert bool(following) == (answer != "clear")
        if answer == "found":
            assert because.partition(":")[0] in found
    assert answers["gaps at collectives"] == ("clear", "the trace holds no communication kernels", "")
