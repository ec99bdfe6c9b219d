"""A program that waits for loader workers gains no more than it waits, and no estimate makes its step longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.gate.sentences import false_sentences

from timesink.diagnosis.engine import diagnose
from timesink.measures.timeline.replay import estimated_step_ns, pricers
from timesink.readers import read

CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "captures"


@pytest.mark.parametrize(
    "program",
    [
        "eighth/unpacked_by_two_workers", "eighth/unpacked_in_time", "too_few_workers", "workers_started_anew",
        "loader_keeping_up",
    ],
)  # fmt: skip
def test_no_more_is_saved_than_is_waited_for(program: str, tmp_path: Path) -> None:
    unpacked(CAPTURES / f"{program}.torch.tar.xz", tmp_path)
    for paths in captures_in(tmp_path).values():
        trace = read(paths, cache=False)
        assert false_sentences(diagnose(trace), trace) == []
        low_ns, expected_ns, high_ns = estimated_step_ns(trace) or (0.0, 0.0, 0.0)
        assert low_ns <= expected_ns <= high_ns <= pricers(trace)[0].step_ns
