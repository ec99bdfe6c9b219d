"""Pictures, films and what surrounds their networks: decoding, layouts, losses, optimizers, copies of the weights."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

RATE = 1e-4
MEAN, SPREAD = 118.0, 58.0


class Residual(nn.Module):
    """Two 3 x 3 convolutions with batch norm around a residual; `depthwise` between two of 1 x 1 instead."""

    def __init__(self, width: int, depthwise: bool = False) -> None:
        super().__init__()
        inner = 4 * width if depthwise else width
        shape = ((width, inner, 1, 1), (inner, inner, 3, inner), (inner, width, 1, 1)) if depthwise else (
            (width, width, 3, 1), (width, width, 3, 1)
        )  # fmt: skip
        self.layers = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, size, padding=size // 2, groups=groups, bias=False), nn.BatchNorm2d(b))
                for a, b, size, groups in shape
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        found = image
        for layer in self.layers:
            found = F.relu(layer(found))
        return image + found


def network(width: int, count: int, classes: int = 100, depthwise: bool = False) -> nn.Module:
    """A stem of stride 4, residual blocks, the mean over the picture, a head."""
    blocks = [Residual(width, depthwise) for _ in range(count)]
    stem = nn.Conv2d(3, width, 4, stride=4)
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def classified(machine: Machine, model: nn.Module, images: Callable[[], Tensor], labels: Tensor) -> Step:
    """A training step on what `images()` gives."""
    optimizer = adamw(model.parameters(), lr=RATE)
    return lambda: update(machine, F.cross_entropy(model(images()).float(), labels), optimizer)


def labels_for(machine: Machine, count: int) -> Tensor:
    return torch.arange(count, device=machine.device) % 100


def pictures_normalised_on_the_cpu(_: str, machine: Machine) -> Program:
    """Bytes become normal floats in NumPy, in the training process; fixed, pinned bytes are sent and made so there."""
    batch, size, width = machine.size(64, 2), machine.size(224, 32), machine.size(128, 16)
    taken = [numpy.random.default_rng(seed).integers(0, 256, (batch, size, size, 3), numpy.uint8) for seed in range(4)]
    pinned = [machine.pinned(torch.from_numpy(picture)) for picture in taken]
    labels = labels_for(machine, batch)

    def around(prepare: Callable[[int], Tensor]) -> Step:
        model = place(machine, lambda: network(width, 6)).to(memory_format=torch.channels_last)
        turn = [0]

        def images() -> Tensor:
            turn[0] += 1
            found = prepare(turn[0] % 4).to(torch.bfloat16)
            return found.to(memory_format=torch.channels_last)

        return classified(machine, model, images, labels)

    def by_numpy(which: int) -> Tensor:
        picture = (taken[which].astype(numpy.float32) - MEAN) / SPREAD
        return torch.from_numpy(numpy.ascontiguousarray(picture.transpose(0, 3, 1, 2))).to(machine.device)

    def there(which: int) -> Tensor:
        sent = pinned[which].to(machine.device, non_blocking=True)
        return ((sent.float() - MEAN) / SPREAD).permute(0, 3, 1, 2)

    return Program(around(by_numpy), around(there), tolerance=5e-2, period=4)


class Packed(Dataset[Tensor]):
    """Pictures in files of their own, unpacked and flipped when they are asked for."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> Tensor:
        raw = zlib.decompress((self.folder / f"{index % self.count}.z").read_bytes())
        picture = numpy.frombuffer(raw, numpy.uint8).reshape(3, 224, 224).astype(numpy.float32)
        picture = numpy.flip(picture, 2) if index % 2 else picture
        return torch.from_numpy(numpy.ascontiguousarray((picture - MEAN) / SPREAD))


def unpacked_by(machine: Machine, workers: int, folder: Path, width: int) -> Step:
    """Training on what `workers` processes unpack."""
    batch = machine.size(64, 2)
    loader = DataLoader(
        Packed(folder, 64), batch, num_workers=0 if machine.tiny else workers, pin_memory=machine.cuda,
        persistent_workers=not machine.tiny,
    )  # fmt: skip
    running: Iterator[Tensor] = iter(loader)
    model = place(machine, lambda: network(width, 6)).to(memory_format=torch.channels_last)

    def images() -> Tensor:
        found = next(running).to(machine.device, non_blocking=True)
        return found.to(torch.bfloat16).to(memory_format=torch.channels_last)

    return classified(machine, model, images, labels_for(machine, batch))


def packed_folder() -> Path:
    """Sixty-four pictures that pack by half, in files."""
    folder = Path(tempfile.mkdtemp(prefix="pictures-"))
    for number in range(64):
        picture = numpy.random.default_rng(number).integers(0, 16, (3, 224, 224), numpy.uint8) * 16
        (folder / f"{number}.z").write_bytes(zlib.compress(picture.tobytes(), 6))
    return folder


def unpacked_by_two_workers(_: str, machine: Machine) -> Program:
    """Two workers unpack the pictures of every batch; fixed, twelve do."""
    folder, width = packed_folder(), machine.size(128, 16)
    few, enough = (unpacked_by(machine, count, folder, width) for count in (2, 12))
    return Program(few, enough, tolerance=5e-2, settle=30, close=lambda: shutil.rmtree(folder, ignore_errors=True))


def unpacked_in_time(_: str, machine: Machine) -> Program:
    """Nothing is planted: twelve workers unpack pictures faster than a wide network trains on them."""
    folder = packed_folder()
    step = unpacked_by(machine, 12, folder, machine.size(512, 16))
    return Program(step, step, settle=4, close=lambda: shutil.rmtree(folder, ignore_errors=True))


def films_channels_first(_: str, machine: Machine) -> Program:
    """Convolutions over films keep NCDHW in bf16; fixed, channels_last_3d."""
    batch, frames, size, width = machine.size(4, 1), machine.size(16, 4), machine.size(56, 8), machine.size(128, 8)
    kept, changed = torch.contiguous_format, torch.channels_last_3d

    def training(layout: torch.memory_format) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Conv3d(width, width, 3, padding=1) for _ in range(6))))
        model = model.to(memory_format=layout)
        optimizer = adamw(model.parameters(), lr=RATE)
        film = machine.random(batch, width, frames, size, size).contiguous(memory_format=layout)
        return lambda: update(machine, model(film).float().square().mean(), optimizer)

    return Program(training(kept), training(changed), tolerance=5e-2)


def pictures_in_fp32(_: str, machine: Machine) -> Program:
    """A network trains in fp32 with TF32 left off; fixed, TF32 for products and convolutions."""
    batch, size, width = machine.size(64, 2), machine.size(224, 32), machine.size(256, 16)
    images, labels = machine.random(batch, 3, size, size, dtype=torch.float32), labels_for(machine, batch)

    def training(allowed: bool) -> Step:
        model = place(machine, lambda: network(width, 6), torch.float32).to(memory_format=torch.channels_last)
        plain = classified(machine, model, lambda: images.to(memory_format=torch.channels_last), labels)

        def step() -> Tensor:
            torch.backends.cudnn.allow_tf32 = allowed
            torch.set_float32_matmul_precision("high" if allowed else "highest")
            return plain()

        return step

    return Program(training(False), training(True), tolerance=5e-2)


def one_picture_at_a_time(_: str, machine: Machine) -> Program:
    """A network of depthwise convolutions answers one picture per call, kernel by kernel; fixed, one CUDA graph."""
    size = machine.size(224, 32)
    model = place(machine, lambda: network(machine.size(96, 8), 16, depthwise=True)).eval()
    image = machine.random(1, 3, size, size)

    @torch.no_grad()
    def answer() -> Tensor:
        return model(image).float().square().mean()

    return Program(answer, machine.graphed(answer), tolerance=2e-2)


def losses_of_masks_written_out(_: str, machine: Machine) -> Program:
    """Focal and Dice losses of large masks are written out in elementwise kernels; fixed, torch.compile of the loss."""
    batch, classes, size, width = machine.size(8, 2), machine.size(16, 4), machine.size(512, 16), machine.size(64, 8)
    layers = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, classes, 1))
    model = place(machine, lambda: layers).to(memory_format=torch.channels_last)
    image = machine.random(batch, width, size, size).to(memory_format=torch.channels_last)
    wanted = (
        torch.arange(batch * classes * size * size, device=machine.device).view(batch, classes, size, size) % 3 == 0
    )
    target = wanted.to(torch.bfloat16).contiguous(memory_format=torch.channels_last)

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        logits, target = logits.float(), target.float()
        chance = torch.sigmoid(logits)
        entropy = -(target * torch.log(chance + 1e-6) + (1 - target) * torch.log(1 - chance + 1e-6))
        missed = 1 - (chance * target + (1 - chance) * (1 - target))
        weight = 0.25 * target + 0.75 * (1 - target)
        focal = (weight * missed**2 * entropy).mean()
        dice = 1 - (2 * (chance * target).sum() + 1) / (chance.sum() + target.sum() + 1)
        return focal + dice

    def training(lose: Callable[[Tensor, Tensor], Tensor]) -> Step:
        optimizer = adamw(model.parameters(), lr=0.0)
        return lambda: update(machine, lose(model(image), target), optimizer)

    return Program(training(loss), training(torch.compile(loss) if machine.cuda else loss), tolerance=5e-2)


def weights_averaged_on_the_cpu(_: str, machine: Machine) -> Program:
    """An average of the weights is kept in host memory, which takes all of them there each step; fixed, on the GPU."""
    width, rows = machine.size(2048), machine.size(8192)

    def training(where: torch.device) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(6))))
        optimizer = adamw(model.parameters(), lr=RATE)
        batch = machine.random(rows, width)
        kept = [weight.detach().to(where, copy=True) for weight in model.parameters()]

        def step() -> Tensor:
            loss = update(machine, F.mse_loss(model(batch), batch), optimizer)
            with torch.no_grad():
                now = [weight.detach().to(where) for weight in model.parameters()]
                torch._foreach_lerp_(kept, now, 0.01)
            return loss.float()

        return step

    return Program(training(torch.device("cpu")), training(machine.device), tolerance=5e-2)


def adam_of_many_small_weights(_: str, machine: Machine) -> Program:
    """Adam(foreach=False) goes through the weights of a deep narrow network; fixed, fused=True."""
    batch, size, width = machine.size(64, 2), machine.size(128, 32), machine.size(64, 8)
    images, labels = machine.random(batch, 3, size, size), labels_for(machine, batch)
    images = images.to(memory_format=torch.channels_last)

    def training(**how: bool) -> Step:
        model = place(machine, lambda: network(width, 16)).to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE, **how)
        return lambda: update(machine, F.cross_entropy(model(images).float(), labels), optimizer)

    return Program(training(foreach=False), training(fused=machine.cuda), tolerance=5e-2)
