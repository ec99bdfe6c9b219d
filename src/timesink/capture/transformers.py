"""A callback for the Trainer of Transformers: ``Trainer(..., callbacks=[TransformersCallback("runs/x")])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from timesink.capture.trainer import recorder


class TransformersCallback(TrainerCallback):
    """Records the steps after the first 17 of a training, and prints the verdict. Takes what `timesink.recorder` does.

    A step is one update of the weights, whatever it accumulates.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        self.recorder = recorder(*given, **named)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """One update of the weights is done."""
        self.recorder.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The training is over."""
        self.recorder.close()
