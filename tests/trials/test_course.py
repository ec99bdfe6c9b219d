"""The course of a trial, on a package that stands for torch: in time, however it ends, and nothing measured is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.trials.standin import write_program

import timesink
from timesink.capture.errors import CaptureError
from timesink.errors import UsageError
from timesink.trials.course import try_changes
from timesink.trials.records import TrialAnswer, TrialResult, Tried
from timesink.trials.run import Tell, unheard
from timesink.views.trial import conclusion, trial_page

pytestmark = pytest.mark.slow
SLACK_S = 4.0  # for a machine that does other things
IGNORES = "signal.signal(signal.SIGTERM, signal.SIG_IGN), signal.signal(signal.SIGINT, signal.SIG_IGN)"


def tried(
    folder: Path, budget_s: float, monkeypatch: pytest.MonkeyPatch, names: str, tell: Tell = unheard, **written: str
) -> TrialAnswer:
    """The trial of a program, which must end in time."""
    script = write_program(folder, **written)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    began = time.monotonic()
    try:
        return try_changes([sys.executable, str(script)], names=names.split(), budget_s=budget_s, tell=tell)
    finally:
        assert time.monotonic() - began <= 1.1 * budget_s + SLACK_S


def test_what_wins_is_proven_in_fresh_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = tried(tmp_path, 30.0, monkeypatch, "set_to_none frozen_garbage tf32")
    assert answer.kept == ("set_to_none",) and answer.counts == (2, 2)
    proof = answer.confirmed[answer.kept]
    assert len(proof.base_ms) >= 2 <= len(proof.with_ms) and proof.interval[0] < proof.ratio < proof.interval[1] < 0.9


@pytest.mark.parametrize("each", [f"__import__('signal') and 0 or exec('import signal; {IGNORES}')", "pass"])
def test_a_short_budget_is_kept_and_what_was_measured_stands(
    each: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = tried(tmp_path, 9.0, monkeypatch, "set_to_none frozen_garbage", each=each)
    assert answer.result.tried and (answer.kept or any(one.left for one in answer.result.tried))


@pytest.mark.parametrize(
    ("text", "says", "type"),
    [
        ("import torch, time\ntime.sleep(1000)", "0 calls of modules", "timesink.step()"),
        ("import time\ntime.sleep(1000)", "had not imported PyTorch", "timesink.step()"),
        ("import torch\nraise ValueError('its own')", "ValueError: its own", "all it printed is in"),
    ],
)
def test_a_program_without_a_step_ends_in_time_and_says_what_was_seen(
    text: str, says: str, type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CaptureError, match=says) as error:
        tried(tmp_path, 8.0, monkeypatch, "set_to_none", text=text)
    assert type in error.value.remedy


def test_what_a_failed_run_prints_is_in_a_log_that_its_one_line_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    told = list[str]()
    each = "print('begun'); assert not __import__('gc').get_freeze_count(), 'frozen'"
    answer = tried(tmp_path, 20.0, monkeypatch, "frozen_garbage set_to_none", told.append, each=each)
    assert "".join(capfd.readouterr()) == "", "the program speaks before the answer"
    (line,) = [line for line in told if "status" in line]
    assert line.startswith("frozen_garbage: ") and "status 1: AssertionError: frozen; all it printed: " in line
    log = Path(answer.log)
    assert line.endswith(str(log)) and "begun\nTraceback (most recent call last)" in log.read_text()
    assert any(str(log) in note for note in trial_page(answer, "p").notes)
    log.unlink()


def test_a_trial_in_which_no_run_fails_leaves_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    answer = tried(tmp_path, 9.0, monkeypatch, "set_to_none", each="print('loss')")
    assert not answer.log and not [*(tmp_path / "temporary").glob("*.log")]


def test_a_compiler_that_hangs_starves_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_COMPILES", "1000")
    answer = tried(tmp_path, 30.0, monkeypatch, "compile set_to_none")
    assert answer.kept == ("set_to_none",)
    (compiled,) = [one for one in answer.result.tried if one.name == "compile"]
    assert compiled.left and not compiled.pairs


def test_a_change_that_ends_the_program_ends_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = "import gc; gc.get_freeze_count() and __import__('os')._exit(7)"
    answer = tried(tmp_path, 30.0, monkeypatch, "frozen_garbage set_to_none", each=each)
    (frozen,) = [one for one in answer.result.tried if one.name == "frozen_garbage"]
    assert "status 7" in frozen.failed and answer.kept == ("set_to_none",)


def test_a_program_that_ends_early_keeps_what_it_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = tried(tmp_path, 25.0, monkeypatch, "set_to_none", each="if number == 700: break")
    assert answer.result.base_ms or answer.result.steps_ms
    assert conclusion(answer)


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_trial_with_its_page(kind: signal.Signals, tmp_path: Path) -> None:
    script, page = write_program(tmp_path), tmp_path / "page.json"
    source = str(Path(timesink.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), source))}
    words = [sys.executable, "-m", "timesink", "try", "--budget", "100s"]
    words += ["--format", "json", "--output", str(page), "--", sys.executable, str(script)]
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(16.0)  # it was timed by then, and is being tried
        process.send_signal(kind)
        assert process.wait(20.0) == 128 + kind
    finally:
        process.kill()
    notes = " ".join(json.loads(page.read_text())["notes"])
    assert f"ended by {kind.name}" in notes


NESTED = """
import random, time, torch

class Model(torch.nn.Module):
    def forward(self): return torch.Tensor()

model = Model()
optimizer = torch.optim.SGD(model.parameters())
while True:
    for turn in range(5):
        time.sleep(0.03)
    for epoch in range(2):
        for batch in range({batches}):
            optimizer.zero_grad(set_to_none=False)
            model().backward()
            optimizer.step()
"""


@pytest.mark.parametrize(("batches", "marks"), [("3", 6), ("random.randrange(2, 5)", 0)])
def test_a_gain_in_an_inner_step_is_told_as_what_the_program_wins(
    batches: str, marks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a step of the optimizer two thirds are won, of the whole a third."""
    text = NESTED.replace("{batches}", batches)
    answer = tried(tmp_path, 40.0, monkeypatch, "set_to_none", text=text)
    assert answer.result.period.marks == marks
    (won,) = [one for one in answer.result.tried if one.pairs and not one.beside]
    assert 0.55 < won.ratio < 0.8 and won.without_ms > 50


EPOCHS = """
import time, torch

class Model(torch.nn.Module):
    def forward(self): return torch.Tensor()

model = Model()
optimizer = torch.optim.SGD(model.parameters())
for epoch in range({epochs}):
    for batch in range({batches}):
        time.sleep(0.01)
        optimizer.zero_grad(set_to_none=False)
        model().backward()
        optimizer.step()
    time.sleep({evaluated})
"""


def test_a_program_that_is_over_soon_is_begun_again_until_its_changes_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its step is an epoch of 0.36 s, of which there are 20: one process times little of it."""
    text = EPOCHS.format(epochs=20, batches=8, evaluated=0.12)
    answer = tried(tmp_path, 60.0, monkeypatch, "set_to_none frozen_garbage", text=text)
    assert answer.result.period.marks == 8
    assert answer.counts == (2, 2) and answer.kept == ("set_to_none",), conclusion(answer)


def test_a_program_of_too_few_epochs_has_the_steps_within_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five epochs of half a second are seen to come round, and are over before one of them is timed."""
    text = EPOCHS.format(epochs=5, batches=10, evaluated=0.2)
    answer = tried(tmp_path, 60.0, monkeypatch, "set_to_none", text=text)
    assert answer.result.period.marks == 1 and answer.counts == (1, 1), conclusion(answer)
    (won,) = [one for one in answer.result.tried if one.pairs and not one.beside]
    assert won.shortest < 0.9  # on a busy machine the mean says little


def test_an_evaluation_now_and_then_is_no_step_and_its_share_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epochs too long to be timed: a step is 30 ms of one, and what passes between them is charged to no change."""
    text = EPOCHS.format(epochs=1000, batches=15, evaluated=0.9)
    answer = tried(tmp_path, 40.0, monkeypatch, "frozen_garbage", text=text)
    (one,) = [one for one in answer.result.tried if one.pairs]
    assert 25 < one.without_ms < 90 and 0.6 < one.ratio < 1.6, one  # a step with an evaluation takes 900
    assert 0.3 < answer.result.paused < 0.85
    assert any("Pauses between steps" in note for note in trial_page(answer, "").notes)


@pytest.mark.parametrize(("high", "said"), [(0.8, "won 30.0 % (20.0 % to 40.0 %)"), (1.1, "a may: 30.0 % less")])
def test_what_seems_to_win_is_never_told_as_nothing(high: float, said: str) -> None:
    seems = Tried("a", pairs=2, ratio=0.7, low=0.6, high=high, shortest=0.7, with_ms=7.0, without_ms=10.0)
    told = conclusion(TrialAnswer(TrialResult(tried=[seems, Tried("b", pairs=2)]), 1.0))
    assert said in told and ("none was shown" in told) == (high > 1)


def test_what_is_no_change_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be tried"):
        try_changes(["python"], names=["faster"])
