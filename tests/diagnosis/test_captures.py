"""Captures with a known fault, and public ones: true sentences, one price per change, and one screen for each.

Each capture is read and measured once for all three.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.diagnosis.said import false_sentences, told
from tests.diagnosis.screen import faults_of_screen
from tests.diagnosis.test_one_price import same_prices
from tests.profiles import ABSENT, EACH, PROFILES, swept

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.plan.joint import WORTH
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.registry import find
from timesink.diagnosis.verdicts import Clear, Diagnosis, Found, Undecided
from timesink.errors import TimesinkError
from timesink.model.trace import Trace
from timesink.readers import read
from timesink.units import NS_PER_MS

CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "captures"
ARCHIVES = sorted(CAPTURES.glob("*.tar.xz"))
SAMPLE = (
    "adamw_one_by_one", "attention_written_out", "broken_in_pieces", "channels_first", "compiled_gpt_training",
    "fp32_training", "gelu_written_out", "graph_decode", "item_per_layer", "logits_cast_up", "needless_contiguous",
    "odd_width", "outputs_to_host", "pageable_batch", "printed_loss", "streams_in_lockstep",
)  # fmt: skip
# Programs that accumulate gradients, and over how many micro-batches; no other program does.
MICRO_BATCHES = {
    "printed_loss.high": 6, "printed_loss.low": 4, "collected_per_microbatch": 4, "exchanged_per_microbatch": 4,
}  # fmt: skip
READ_ALONE = (".json", ".gz", ".sqlite", ".ncu-rep", ".pickle", ".log", ".csv", ".nsys-rep")
RANKS = PROFILES / "public" / "kineto" / "dlrm_8rank"
PUBLIC = sorted(path for path in PROFILES.rglob("*") if path.suffix in READ_ALONE and path.is_file())


def micro_batches(capture: str) -> int:
    return next((count for name, count in MICRO_BATCHES.items() if capture.startswith(name)), 1)


def captured(archive: Path, folder: Path) -> Iterator[tuple[str, Trace]]:
    """The captures of an archive, by name."""
    unpacked(archive, folder)
    for name, paths in captures_in(folder).items():
        yield name, read(paths[0] if len(paths) == 1 else paths, cache=False)


def check(trace: Trace, accumulated: int = 1) -> Diagnosis:
    """The diagnosis, which says nothing false, and says it on one screen."""
    diagnosis = diagnose(trace)
    false = false_sentences(diagnosis, trace, accumulated)
    assert not false, told(false)
    assert faults_of_screen(diagnosis) == []
    return diagnosis


def one_story(trace: Trace, diagnosis: Diagnosis) -> bool:
    """The plan begins with a change of the first finding, at its price, or says why it does not."""
    made = plan(trace, diagnosis)
    if not diagnosis.findings or not made.rungs:
        return not diagnosis.findings or bool(made.refused or made.floor)
    (card, finding), first = diagnosis.findings[0], made.rungs[0]
    same = card.code in first.findings and finding.recoverable is not None
    apart_ms = abs(first.gain.value - finding.recoverable.value) if same and finding.recoverable else None
    alike = apart_ms is not None and apart_ms < WORTH.default * (made.step_ms or 0.0)
    return alike or any(card.code in note for note in made.notes)


@pytest.mark.parametrize(
    ("program", "tool"), [(program, ("torch", "nsys")[at % 2]) for at, program in enumerate(SAMPLE)]
)
def test_a_planted_fault_is_told_truly_on_one_screen_with_one_price(program: str, tool: str, tmp_path: Path) -> None:
    """First contact defect 3."""
    for name, trace in captured(CAPTURES / f"{program}.{tool}.tar.xz", tmp_path):
        if name.endswith("high.fault"):
            diagnosis = check(trace, micro_batches(name))
            assert same_prices(trace)
            assert one_story(trace, diagnosis)


@pytest.mark.slow
@pytest.mark.parametrize("archive", swept(ARCHIVES), ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_every_capture_is_told_truly_on_one_screen_with_one_price(archive: Path, tmp_path: Path) -> None:
    measured = json.loads((CAPTURES / "measured.json").read_text())
    for name, trace in captured(archive, tmp_path):
        diagnosis = check(trace, micro_batches(name))
        same_prices(trace)
        assert EACH > 1 or one_story(trace, diagnosis)  # a plan takes seconds: of the others in `make sweep`
        steps_ms = measured.get(f"{archive.name.split('.')[0]}/{name.split('.')[1]}", {}).get("fault_ms")
        if steps_ms and (EACH == 1 or name.endswith("high.fault")):
            same_prices(trace.with_unprofiled_step(min(steps_ms) * 1e6))


@pytest.mark.slow
@pytest.mark.skipif(not PUBLIC, reason=ABSENT)
@pytest.mark.parametrize("path", [*PUBLIC, RANKS], ids=lambda path: path.name)
def test_what_is_said_of_a_public_profile_is_true_and_fits_one_screen(path: Path) -> None:
    try:
        trace = read(path, cache=False)
    except TimesinkError:  # what is no profile
        return
    check(trace)


@pytest.mark.parametrize("tool", ["torch", "nsys"])
def test_waits_that_the_profiler_hides_are_undecided_until_the_step_without_it_is_told(
    tool: str, tmp_path: Path
) -> None:
    """Under either profiler this program's host is late at every launch; without one, the loss it reads costs 14 %."""
    wanted = "final_loss_read.high.fault"
    traces = dict(captured(CAPTURES / f"final_loss_read.{tool}.tar.xz", tmp_path))
    hidden = find("host-sync").verdict(traces[wanted], {})
    assert isinstance(hidden, Undecided)
    assert "--unprofiled-step-ms" in hidden.to_decide
    assert isinstance(find("host-sync").verdict(traces[wanted].with_unprofiled_step(0.69 * NS_PER_MS), {}), Found)


def test_threads_of_autograd_that_wait_for_each_other_are_no_matter_of_the_operating_system(tmp_path: Path) -> None:
    for _, trace in captured(CAPTURES / "small_training_step.nsys.tar.xz", tmp_path):
        assert isinstance(find("operating-system").verdict(trace, {}), Clear)
