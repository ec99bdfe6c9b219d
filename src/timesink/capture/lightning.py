"""A callback for the Trainer of Lightning: ``Trainer(..., callbacks=[LightningCallback("runs/x")])``."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from timesink.capture.trainer import recorder

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:  # the base of the one of the two packages that the program uses
    Callback = import_module(
        "pytorch_lightning" if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules else
        "lightning.pytorch"
    ).Callback  # fmt: skip


class LightningCallback(Callback):
    """Records the steps after the first 17 of a training, and prints the verdict. Takes what `timesink.recorder` does.

    A step is one update of the weights, whatever it accumulates.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__()
        self.recorder = recorder(*given, **named)
        self._updates = 0

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        """A batch is done; with it a step, where it updated the weights."""
        if trainer.global_step != self._updates:
            self._updates = trainer.global_step
            self.recorder.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The training is over."""
        self.recorder.close()
