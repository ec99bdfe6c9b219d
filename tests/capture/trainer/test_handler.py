"""The handler of torch.profiler with a stand-in for the profiler: folders, manifest, verdict, and what goes wrong."""

import json
import lzma
import time
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest

import timesink
from timesink.capture import trainer
from timesink.capture.agent.recording import Status
from timesink.capture.errors import CaptureError
from timesink.capture.figure_logs import NAMES, open_logs
from timesink.capture.manifest import Capture
from timesink.capture.recorded_run import recorded_run
from timesink.capture.schedule import VARIABLE, StepSchedule
from timesink.model.tables import DEVICE_OPS
from timesink.readers import read

TRACE = lzma.decompress(files("timesink.cli").joinpath("demo/gpt_before.json.xz").read_bytes())


class Profiler:
    """What the handler sees of torch.profiler: the step, and a trace of a GPU."""

    def __init__(self, step: int, text: bytes = TRACE) -> None:
        self.step_num = step
        self._text = text

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(self._text)


class Kept:
    """A log that keeps what it is told."""

    name = "kept"

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.is_attached = False

    def attach(self) -> None:
        self.is_attached = True

    def write(self, *told: object) -> None:
        self.told.append(told)
        raise RuntimeError("the network is down")


@pytest.mark.slow
def test_a_window_has_trace_manifest_verdict_report_and_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = Kept()
    monkeypatch.setattr("timesink.capture.trainer.open_logs", lambda names, folder: (log,))
    handler = timesink.handler("runs/x", facts={"batch": "8"})
    monkeypatch.chdir(tmp_path.parent)  # programs do, meanwhile
    handler(Profiler(20))
    handler.wait()
    out, err = capfd.readouterr()
    window = tmp_path / "runs/x/step20"
    assert (window / "rank0.json").read_bytes() == TRACE
    capture = Capture.load(window)
    assert capture.is_complete and recorded_run(capture.files).facts == {"batch": "8"}
    assert "step20: input pipeline: " in out
    assert "saves 1.70 ms (16.5 % of the unprofiled step)" in out
    report = tmp_path / "runs/x/timesink/step20.html"
    assert f"report: {report}" in out and report.is_file()
    assert 'href="step20.html"' in (tmp_path / "runs/x/timesink/index.html").read_text()
    assert log.is_attached
    ((figures, words, step),) = log.told
    assert (step, figures["findings"], words["report"]) == (20, 4, str(report))  # type: ignore[index]
    assert "kept: RuntimeError: the network is down" in err  # and the training goes on


def kept_in(folder: Path, profilers: Sequence[Profiler]) -> list[str]:
    handler = timesink.handler(folder, verdict=False)
    for profiler in profilers:
        handler(profiler)
    handler.wait()
    return sorted(path.name for path in folder.iterdir())


def test_a_step_that_comes_again_has_a_folder_of_its_own(tmp_path: Path) -> None:
    small = b'{"traceEvents": []}'
    assert kept_in(tmp_path, [Profiler(5, small), Profiler(5, small)]) == ["step5", "step5-2"]
    assert kept_in(tmp_path, [Profiler(5, small)]) == ["step5", "step5-2", "step5-3"]
    assert json.loads((tmp_path / "step5-3/manifest.json").read_text())["missing"] == ["rank0.json holds no operators"]


def test_rank_0_waits_for_the_others_and_says_who_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window = tmp_path / "step5"
    for rank in (0, 1):
        status = Status(window, rank, 3)
        assert status.claim()
        (window / f"rank{rank}.json").write_bytes(TRACE)
        status.tell(phase="done", file=f"rank{rank}.json")
    monkeypatch.setattr("os.nice", lambda by: by)
    order = {"window": str(window), "step": 5, "facts": {}, "tool": {"name": "torch"}, "patience_s": 0.5}
    began = time.monotonic()
    assert trainer.main(json.dumps(order)) == 0
    assert time.monotonic() - began >= 0.5
    capture = Capture.load(window)
    assert [path.name for path in capture.files] == ["rank0.json", "rank1.json"]
    assert capture.missing == ("rank 2 recorded nothing",)
    assert set(read(window)[DEVICE_OPS]["rank"]) == {0, 1}


def test_nothing_is_raised_into_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    timesink.handler(tmp_path / "taken")(Profiler(5))
    assert "the window was not kept: " in capsys.readouterr().err
    told = timesink.recorder(tmp_path / "own")
    told.close()
    told.step()
    assert not (tmp_path / "own").exists()


def test_a_recorder_is_silent_where_a_capture_runs_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "{}")
    told = timesink.recorder(tmp_path / "own", StepSchedule(1, 0, 0, 1))
    told.step()
    assert told.is_done and not (tmp_path / "own").exists()


@pytest.mark.parametrize("named", [{"log": "paper"}, {"facts": {"9": "x"}}, {"log": ["tensorboard"]}])
def test_what_cannot_work_is_said_before_the_training(
    tmp_path: Path, named: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timesink.capture.figure_logs.find_spec", lambda name: None)
    with pytest.raises(CaptureError) as refused:
        timesink.handler(tmp_path, **named)  # type: ignore[arg-type]
    assert refused.value.remedy


FIGURES, WORDS = {"step_p50_ms": 12.5}, {"verdict": "input pipeline: x", "report": "r.html"}


def test_tensorboard_reads_figures_and_words_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed (pip install tensorboard)")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (log,) = open_logs("tensorboard", tmp_path)
    log.attach()
    log.write(FIGURES, WORDS, 20)
    kept = EventAccumulator(str(tmp_path))
    kept.Reload()
    (scalar,) = kept.Scalars("timesink/step_p50_ms")
    assert (scalar.step, scalar.value) == (20, 12.5)
    (text,) = kept.Tensors("timesink/verdict")
    assert text.tensor_proto.string_val == [b"input pipeline: x"]


def test_mlflow_has_figures_and_words_in_the_active_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed (pip install mlflow-skinny)")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file:{tmp_path}/mlruns")
    (log,) = open_logs("mlflow", tmp_path)
    with pytest.raises(RuntimeError, match="start_run"):
        log.write(FIGURES, WORDS, 20)
    with mlflow.start_run() as run:
        log.attach()
        log.write(FIGURES, WORDS, 20)
    data = mlflow.get_run(run.info.run_id).data
    assert data.metrics == {"timesink/step_p50_ms": 12.5}
    assert data.tags["timesink/verdict"] == "input pipeline: x"


def test_wandb_has_figures_and_words_in_its_summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="wandb is not installed (pip install wandb)")
    if not hasattr(wandb, "init"):
        pytest.skip("wandb is not installed (pip install wandb)")
    for name, value in {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    (log,) = open_logs("wandb", tmp_path)
    with pytest.raises(RuntimeError, match=r"wandb\.init"):
        log.write(FIGURES, WORDS, 20)
    run = wandb.init(project="timesink")
    log.attach()
    log.write(FIGURES, WORDS, 20)
    summary = dict(run.summary)
    run.finish()
    assert summary == {"timesink/step_p50_ms": 12.5, "timesink/step": 20} | {
        f"timesink/{key}": value for key, value in WORDS.items()
    }


def test_the_names_of_logs_are_those_of_their_libraries() -> None:
    assert NAMES == ("wandb", "mlflow", "tensorboard")


def test_every_name_of_a_capture_has_a_file_of_its_own() -> None:
    names = ["step5", "a/step5", "a--step5", "a" * 400, "b" + "a" * 400]
    slugs = [trainer.slug(name) for name in names]
    assert slugs[0] == "step5"
    assert len(set(slugs)) == len(names)
    assert all("/" not in slug and len(slug) < 200 for slug in slugs)
