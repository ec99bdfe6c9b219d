"""A told step longer than the recorded one: what is claimed took longer in it, and the sentence says so."""

import re
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.gate.sentences import false_sentences

from timesink.diagnosis.engine import diagnose
from timesink.measures.steps.per_step import period_ns
from timesink.measures.timeline import device_timeline
from timesink.readers import read

CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "captures"


@pytest.mark.slow
@pytest.mark.parametrize("longer", [1.0, 1.004, 1.03, 1.1, 1.4])
@pytest.mark.parametrize(
    "program",
    [
        "needless_contiguous.torch", "cast_and_back.torch", "trained_without_autocast.nsys", "channels_first.nsys",
        "experts_sliced_in_turn.torch", "norm_written_out.torch", "cache_emptied.nsys", "checkpoint_in_line.torch",
        "item_per_layer.torch", "broken_in_pieces.torch", "constant_sent_again.nsys", "samples_sent_one_by_one.nsys",
    ],
)  # fmt: skip
def test_a_sentence_tells_the_clock_of_its_price(program: str, longer: float, tmp_path: Path) -> None:
    unpacked(CAPTURES / f"{program}.tar.xz", tmp_path)
    _, paths = next(iter(captures_in(tmp_path).items()))
    trace = read(paths, cache=False)
    recorded_ns = period_ns(trace, min(device_timeline(trace).by_device))
    diagnosis = diagnose(trace.with_unprofiled_step(recorded_ns * longer))
    assert false_sentences(diagnosis, trace.with_unprofiled_step(recorded_ns * longer)) == []
    for _, finding in diagnosis.findings:
        said = re.search(r"; [\d.]+ (?:us|ms) (in|at the clock of) the step without the profiler$", finding.message)
        assert said is None or (longer > 1.0 and (finding.priced_by == "kernel_time") == (said[1] != "in"))


@pytest.mark.parametrize("program", ["needless_contiguous.torch", "channels_first.nsys", "norm_written_out.torch"])
def test_no_clock_is_told_of_a_step_that_was_not(program: str, tmp_path: Path) -> None:
    unpacked(CAPTURES / f"{program}.tar.xz", tmp_path)
    for paths in captures_in(tmp_path).values():
        assert not any("at the clock" in one.message for _, one in diagnose(read(paths, cache=False)).findings)
