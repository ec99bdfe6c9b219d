"""Figures and the link of a verdict to W&B, MLflow or TensorBoard, through those libraries where they are installed.

Keys begin with ``timesink/``: numbers are metrics, the verdict and the path of the report are text. No trace and no
name from one goes anywhere else than into the verdict's sentence.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from timesink.capture.errors import refused

PREFIX = "timesink/"


class Log:
    """A place for figures. `attach` runs in the thread that trains, `write` in another one.

    `folder` takes the event files of TensorBoard.
    """

    name = ""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run: Any = None

    def attach(self) -> None:
        """Remember which run is active."""

    def write(self, figures: Mapping[str, float], words: Mapping[str, str], step: int) -> None:
        """Keep figures and words of one capture."""
        raise NotImplementedError


class TensorBoardLog(Log):
    """An event file in the folder, by the library alone: neither PyTorch nor TensorFlow is asked."""

    name = "tensorboard"

    def write(self, figures: Mapping[str, float], words: Mapping[str, str], step: int) -> None:
        """Scalars and texts of that step."""
        if self._run is None:
            files = import_module("tensorboard.summary.writer.event_file_writer")
            self._run = files.EventFileWriter(str(self._folder))
        event = import_module("tensorboard.compat.proto.event_pb2").Event
        summary = import_module("tensorboard.compat.proto.summary_pb2").Summary
        as_text = import_module("tensorboard.plugins.text.metadata").create_summary_metadata("", "")
        tensor_of = import_module("tensorboard.util.tensor_util").make_tensor_proto
        values = [summary.Value(tag=PREFIX + key, simple_value=value) for key, value in figures.items()]
        for key, text in words.items():
            values.append(summary.Value(tag=PREFIX + key, metadata=as_text, tensor=tensor_of([text])))
        self._run.add_event(event(wall_time=time.time(), step=step, summary=summary(value=values)))
        self._run.flush()


class MlflowLog(Log):
    """Metrics and tags of the active run."""

    name = "mlflow"

    def attach(self) -> None:
        """The run that is active in this thread."""
        active = import_module("mlflow").active_run()
        self._run = None if active is None else active.info.run_id

    def write(self, figures: Mapping[str, float], words: Mapping[str, str], step: int) -> None:
        """Metrics at that step; tags hold the words of the last capture."""
        if self._run is None:
            raise RuntimeError("no run is active: call mlflow.start_run() before the window ends")
        client = import_module("mlflow").MlflowClient()
        for key, value in figures.items():
            client.log_metric(self._run, PREFIX + key, value, step=step)
        for key, text in words.items():
            client.set_tag(self._run, PREFIX + key, text)


class WandbLog(Log):
    """The summary of the active run: history belongs to the training, whose steps must not go back."""

    name = "wandb"

    def attach(self) -> None:
        """The run that is active."""
        self._run = import_module("wandb").run

    def write(self, figures: Mapping[str, float], words: Mapping[str, str], step: int) -> None:
        """Keys of the summary, those of the capture before replaced."""
        if self._run is None:
            raise RuntimeError("no run is active: call wandb.init() before the window ends")
        kept: dict[str, object] = {**figures, **words, "step": step}
        self._run.summary.update({PREFIX + key: value for key, value in kept.items()})


_KINDS = {kind.name: kind for kind in (WandbLog, MlflowLog, TensorBoardLog)}
NAMES = tuple(_KINDS)


def open_logs(names: str | Sequence[str], folder: Path) -> tuple[Log, ...]:
    """The logs of those names. `CaptureError` where a name is none of `NAMES`, or its library is not installed."""
    chosen = [names] if isinstance(names, str) else list(names)
    for name in chosen:
        if name not in _KINDS:
            raise refused(f"nothing is logged to {name!r}", f"choose of {', '.join(_KINDS)}")
        found = find_spec(name)
        if found is None or found.origin is None:  # W&B leaves a folder of its name wherever it ran
            raise refused(f"{name} is not installed", f"pip install {name}")
    return tuple(_KINDS[name](folder) for name in chosen)
