"""The released trainers, one after another in one process, each for a few steps on the CPU.

``python released_trainers.py FOLDER`` prints one line of JSON a trainer: its version and the folder it recorded into,
or which package is absent. `profiler` and `own` also count the frames of timesink that run in steps past the window.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import timesink
from timesink.capture.schedule import StepSchedule

FEW = StepSchedule(settle=1, timed=2, warm_up=1, active=2)
STEPS = 12
OUT = Path(sys.argv[1])


class Data(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __len__(self) -> int:
        return 2 * STEPS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.randn(16), "labels": torch.randn(1)}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def forward(self, x: Any, labels: Any) -> dict[str, Any]:
        return {"loss": torch.nn.functional.mse_loss(self.layer(x), labels)}


def batches() -> Any:
    return torch.utils.data.DataLoader(Data(), batch_size=2)


def transformers() -> tuple[str, Path]:
    import transformers as library

    from timesink.capture.transformers import TransformersCallback

    callback = TransformersCallback(OUT / "transformers", FEW, verdict=False)
    arguments = library.TrainingArguments(
        str(OUT / "arguments"), max_steps=STEPS, per_device_train_batch_size=1, gradient_accumulation_steps=2,
        use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no",
    )  # fmt: skip
    library.Trainer(model=Net(), args=arguments, train_dataset=Data(), callbacks=[callback]).train()
    return library.__version__, finished(callback.recorder)


def lightning() -> tuple[str, Path]:
    import lightning.pytorch as library

    from timesink.capture.lightning import LightningCallback

    class Module(library.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    callback = LightningCallback(OUT / "lightning", FEW, verdict=False)
    trainer = library.Trainer(
        max_steps=STEPS // 2, accelerator="cpu", devices=1, accumulate_grad_batches=2, callbacks=[callback],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Data(), batch_size=1))
    return library.__version__, finished(callback.recorder)


def accelerate() -> tuple[str, Path]:
    import accelerate as library

    handler = timesink.handler(OUT / "accelerate", verdict=False)
    schedule = {"wait": 1, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 0}
    how = library.ProfileKwargs(activities=["cpu"], schedule_option=schedule, on_trace_ready=handler)
    accelerator = library.Accelerator(cpu=True, kwargs_handlers=[how])
    net = Net()
    net, optimizer, data = accelerator.prepare(net, torch.optim.AdamW(net.parameters()), batches())
    with accelerator.profile() as profiler:
        for batch in data:
            accelerator.backward(net(**batch)["loss"])
            optimizer.step()
            profiler.step()
    handler.wait()
    return library.__version__, OUT / "accelerate/step4"


def own() -> tuple[str, Path]:
    recorder = timesink.recorder(OUT / "own", FEW, verdict=False)
    trained(recorder.step, after=6)
    recorder.close()
    return "1", finished(recorder)


def profiler() -> tuple[str, Path]:
    handler = timesink.handler(OUT / "profiler", verdict=False)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=kinds, schedule=schedule, on_trace_ready=handler) as recorded:
        trained(recorded.step, after=4)
    handler.wait()
    return torch.__version__, OUT / "profiler/step4"


frames: dict[str, int] = {}


def trained(step: Callable[[], object], after: int) -> None:
    """A loop of one's own; what runs of timesink in its thread, in the steps past the window, is counted."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def seen(frame: Any, event: str, _: Any) -> None:
        if event == "call" and "/timesink/" in frame.f_code.co_filename:
            frames[step.__qualname__] = frames.get(step.__qualname__, 0) + 1

    for number, batch in enumerate(batches()):
        if number == after:
            frames[step.__qualname__] = 0
            sys.setprofile(seen)
        net(**batch)["loss"].backward()
        optimizer.step()
        step()
    sys.setprofile(None)


def finished(recorder: Any) -> Path:
    recorder.wait()
    return Path(recorder.folder)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for trainer in (profiler, own, transformers, accelerate, lightning):
        try:
            version, folder = trainer()
        except ModuleNotFoundError as error:
            told: dict[str, object] = {"absent": error.name}
        else:
            told = {"version": version, "folder": str(folder)}
        sys.stdout.write(json.dumps({"trainer": trainer.__name__, "frames": frames, **told}) + "\n")
