"""Second set: samples sent one by one, a rollout stored in ordinary host memory, batches decoded while collated."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from itertools import cycle

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.copies import Ahead
from benchmarks.faults.loading import SAMPLES, WORKERS, Epoch, endless, trained_on
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training
from benchmarks.faults.program import Program, Step
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


def samples_sent_one_by_one(severity: str, machine: Machine) -> Program:
    """Images of a list are sent one by one and stacked on the device; fixed, one pinned batch is sent a step ahead."""
    count, side, width, tokens, layers = {
        "high": (64, 224, 4096, 4096, 4), "low": (16, 224, 4096, 4096, 4), "harmless": (2, 96, 8192, 8192, 2)
    }[severity]  # fmt: skip
    count, side, width, tokens = machine.size(count), machine.size(side), machine.size(width), machine.size(tokens)
    generator = torch.Generator().manual_seed(0)
    lists = [
        [torch.randint(0, 100, (3, side, side), dtype=torch.uint8, generator=generator) for _ in range(count)]
        for _ in range(4)
    ]

    def step_with(source: Callable[[], Tensor]) -> Step:
        model = place(machine, lambda: Mlp(width, layers))
        plain = training(machine, model, adamw(model.parameters()))
        base, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

        def step() -> Tensor:
            with machine.phase("data"):
                images = source()
            shift = images[-1].flatten()[:width].to(base.dtype) / 255
            return plain(base + shift, target).float()

        return step

    endless_lists = cycle(lists)

    def one_by_one() -> Tensor:
        return torch.stack([image.to(machine.device) for image in next(endless_lists)])

    ahead = Ahead(machine, [machine.pinned(torch.stack(images)) for images in lists])
    return Program(step_with(one_by_one), step_with(ahead))


def rollout_stored_on_host(severity: str, machine: Machine) -> Program:
    """A rollout's observations are copied to an ordinary host buffer; fixed, to a pinned one on another stream."""
    width, environments, features, horizon, every = {
        "high": (4096, 4096, 512, 8, 1), "low": (4096, 4096, 32, 8, 1), "harmless": (8192, 8192, 8, 4, 4)
    }[severity]  # fmt: skip
    width, environments, features = machine.size(width), machine.size(environments), machine.size(features)

    def step_with(store: Callable[[int, Tensor], None]) -> Step:
        policy = place(machine, lambda: Mlp(width, 2))
        world = machine.random(width, width, seed=5) / width**0.5
        sensor = machine.random(width, features, seed=6) / width**0.5
        start = machine.random(environments, width)

        @torch.no_grad()
        def step() -> Tensor:
            state = start
            for time in range(horizon):
                observation = state @ sensor
                if time % every == 0:
                    store(time, observation)
                state = torch.addmm(state, policy(state), world, beta=0.5)
            return observation.float().square().mean()

        return step

    ordinary = torch.zeros(horizon, environments, features, dtype=torch.bfloat16)
    pinned = machine.pinned(torch.zeros_like(ordinary))
    stream = machine.stream()

    def waiting(time: int, observation: Tensor) -> None:
        ordinary[time].copy_(observation)

    def aside(time: int, observation: Tensor) -> None:
        machine.join(stream, None)
        with machine.on(stream):
            pinned[time].copy_(observation, non_blocking=True)
        if stream is not None:
            observation.record_stream(stream)

    return Program(step_with(waiting), step_with(aside))


class Compressed(Dataset[bytes]):
    """Samples of `length` token numbers as compressed JSON, 64 different ones."""

    def __init__(self, length: int) -> None:
        chosen = random.Random(0)
        numbers = [[chosen.randrange(256) for _ in range(length)] for _ in range(64)]
        self.records = [zlib.compress(json.dumps({"tokens": tokens}).encode()) for tokens in numbers]

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> bytes:
        return self.records[index % len(self.records)]


def decoded(records: list[bytes]) -> Tensor:
    """The batch as a collate function makes it: unpacked, parsed, padded to a multiple of 256."""
    rows = [torch.tensor(json.loads(zlib.decompress(record))["tokens"]) for record in records]
    batch = pad_sequence(rows, batch_first=True).to(torch.float32)
    return F.pad(batch, (0, -batch.shape[1] % 256))


def decoded_while_collated(severity: str, machine: Machine) -> Program:
    """collate_fn unpacks and parses JSON in the training process; fixed, eight workers collate."""
    length = machine.size({"high": 1300, "low": 600, "harmless": 60}[severity], 16)
    settle = 2 * WORKERS + 4 if not machine.tiny else 1

    def step_with(workers: int) -> Step:
        source = DataLoader(
            Compressed(length),
            batch_size=SAMPLES,
            sampler=Epoch(None),
            collate_fn=decoded,
            num_workers=workers,
            pin_memory=machine.cuda,
            persistent_workers=workers > 0,
        )
        return trained_on(machine, endless(source))

    return Program(step_with(0), step_with(WORKERS if machine.cuda else 1), settle=settle)
