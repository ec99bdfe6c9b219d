"""A loop with a plan goes from rung to rung: what was foretold stands in the ledger before the capture that follows."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.capture.test_loop import DATA

import timesink.capture
import timesink.cli.loop
import timesink.trials.course
from timesink.capture.errors import failure
from timesink.capture.manifest import Capture
from timesink.cli.loop import LoopOptions, loop
from timesink.errors import UsageError
from timesink.trials.records import Confirmed, TrialAnswer, TrialResult, Tried
from timesink.verify.ledger import read
from timesink.views.plan import Climbed, climbed_sheet


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A loop with its first capture; a capture with torch anew takes half as long a step without a profiler."""
    shutil.copytree(DATA / "torch", tmp_path / "loop/torch")

    def captured(*_: Any, out: Path, **__: Any) -> Capture:
        shutil.copytree(tmp_path / "loop/torch", out)
        manifest = json.loads((out / "manifest.json").read_text())
        for rank in manifest["ranks"]:
            rank["unprofiled"]["step_ms"] /= 2
            rank["unprofiled"]["steps_ms"] = [step / 2 for step in rank["unprofiled"]["steps_ms"]]
        (out / "manifest.json").write_text(json.dumps(manifest))
        return Capture.load(out)

    monkeypatch.setattr(timesink.capture, "torch", captured)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return tmp_path / "loop"


def walked(folder: Path, made: bool = False) -> dict[str, Any]:
    options = LoopOptions(quiet=True, made=made)
    assert loop(["python", "train.py"], folder, None, True, True, chosen=options) == 0
    return json.loads((folder / "plan.json").read_text())


def test_the_first_rung_is_opened_once_with_what_is_foretold(folder: Path) -> None:
    walked(folder)
    (entry,) = read(folder / "ledger.jsonl")
    document = walked(folder)
    assert read(folder / "ledger.jsonl") == [entry]
    first = document["ladder"][0]
    assert entry.predicted is not None
    assert entry.change == first["change"]
    assert entry.predicted.before_ms == pytest.approx(first["before_ns"] / 1e6)
    assert entry.predicted.value_ms == pytest.approx((first["before_ns"] - first["after_ns"]) / 1e6)
    assert "timesink capture --loop --made" in document["notes"][-1]


def test_a_rung_that_is_made_is_held_against_what_was_foretold_and_the_next_is_opened(folder: Path) -> None:
    first = walked(folder)
    second = walked(folder, made=True)
    entries = read(folder / "ledger.jsonl")
    rung = second["climbed"][0]
    before_ns = first["ladder"][0]["before_ns"]
    assert rung["change"] == first["ladder"][0]["change"]
    assert rung["before_ns"] == pytest.approx(before_ns)
    assert rung["measured_ns"] == pytest.approx(before_ns / 2)
    assert rung["foretold_ns"] == pytest.approx(first["ladder"][0]["after_ns"])
    assert len(entries) == 1 + bool(second["ladder"])
    assert (folder / "rung-1/torch/manifest.json").is_file()


def test_once_a_rung_is_made_the_program_of_today_is_diagnosed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing of the loop's first stages is captured with the changed program."""
    walked(folder)
    stages = (folder / "loop.json").read_text()
    before = json.loads((folder / "diagnosis.json").read_text())
    capsys.readouterr()
    walked(folder, made=True)
    after = json.loads((folder / "rung-1/diagnosis.json").read_text())
    assert after != before
    assert json.loads((folder / "diagnosis.json").read_text()) == before
    assert (folder / "loop.json").read_text() == stages
    shown = capsys.readouterr().out
    assert "the profiled step takes 2.57 times the unprofiled 855 us" in shown[: shown.index("Changes made")]
    assert shown.count("steps of 2.18 ms") == 1


def test_a_rung_that_nobody_opened_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="no step of the plan is open"):
        loop(["python", "train.py"], folder, None, True, False, chosen=LoopOptions(quiet=True, made=True))


@pytest.mark.parametrize(
    ("measured_ms", "said"),
    [
        (None, "next"), (99.0, "won nothing"), (105.0, "won nothing"), (93.0, "less than predicted"),
        (91.0, "as predicted"), (80.0, "as predicted"), (58.5, "as predicted"), (57.0, "more than predicted"),
    ],
)  # fmt: skip
def test_a_rung_is_as_foretold_within_two_hundredths_of_the_step(measured_ms: float | None, said: str) -> None:
    """A step of 100 ms, foretold to become 80 (60 to 90)."""
    rung = Climbed(1, "bf16", 100.0, 60.0, 80.0, 90.0, measured_ms)
    assert rung.outcome == said
    assert climbed_sheet([rung]).rows[0][-1] == said


def test_where_there_is_a_gpu_the_loop_ends_with_what_changes_really_win(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried = Tried("tf32", pairs=4, without_ms=10, with_ms=6, ratio=0.6, low=0.59, high=0.61, shortest=0.6)
    proof = Confirmed((10.0, 10.1), (6.0, 6.1), None)
    answer = TrialAnswer(TrialResult(tried=[tried], kept=("tf32",)), 100.0, ("tf32",), {("tf32",): proof})
    asked: list[list[str]] = []
    monkeypatch.setattr(timesink.trials.course, "try_changes", lambda program, **_: asked.append([*program]) or answer)
    walked(folder)
    assert not asked and not (folder / "try.json").exists()
    monkeypatch.setattr(timesink.cli.loop, "gpus", lambda: [{"name": "NVIDIA H100"}])
    walked(folder)
    assert asked == [["python", "train.py"]]
    assert "tf32: a step of 10.1 ms takes 6.05 ms" in " ".join(capsys.readouterr().out.split())
    assert json.loads((folder / "try.json").read_text())["fresh"]

    def refuse(*_: Any, **__: Any) -> TrialAnswer:
        raise failure("no step was seen", "run it alone")

    monkeypatch.setattr(timesink.trials.course, "try_changes", refuse)
    walked(folder)  # the plan stands without it
