"""Bytes cross the bus in the way of the computation: pageable, on the compute stream, or time and again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Mlp, adamw, place, training
from benchmarks.faults.program import Program, Step
from torch import Tensor

COMPUTE = (4096, 4096, 4)
"""Width, tokens and layers of a training step of a few milliseconds, enough to hide a pinned copy behind."""


class Ahead:
    """Sends pinned host batches on a stream of its own, one step ahead of their use, through two device buffers."""

    def __init__(self, machine: Machine, batches: list[Tensor]) -> None:
        self.machine, self.batches, self.sent = machine, batches, 0
        self.stream = machine.stream()
        self.slots = [torch.empty_like(batches[0], device=machine.device) for _ in range(2)]
        self.send()

    def send(self) -> None:
        self.machine.join(self.stream, None)
        with self.machine.on(self.stream):
            self.slots[self.sent % 2].copy_(self.batches[self.sent % len(self.batches)], non_blocking=True)
        self.sent += 1

    def __call__(self) -> Tensor:
        self.machine.join(None, self.stream)
        ready = self.slots[(self.sent - 1) % 2]
        self.send()
        return ready


def in_turn(batches: list[Tensor], take: Callable[[Tensor], Tensor]) -> Callable[[], Tensor]:
    """Each call takes the next batch to the device."""
    count = [0]

    def following() -> Tensor:
        batch = batches[count[0] % len(batches)]
        count[0] += 1
        return take(batch)

    return following


def fed_training(machine: Machine, source: Callable[[], Tensor]) -> Step:
    """A training step that reads only the head of its batch, so that size of copy and of work are independent."""
    width, tokens, layers = machine.size(COMPUTE[0]), machine.size(COMPUTE[1]), COMPUTE[2]
    model = place(machine, lambda: Mlp(width, layers))
    plain = training(machine, model, adamw(model.parameters()))
    base, target = machine.random(tokens, width), machine.random(tokens, width, seed=1)

    def step() -> Tensor:
        with machine.phase("data"):
            batch = source()
        shift = batch[: width * 8].view(8, width).to(base.dtype).mean(dim=0)
        return plain(base + shift, target).float()

    return step


def host_batches(machine: Machine, megabytes: float) -> list[Tensor]:
    """Four different batches of bytes in ordinary host memory."""
    count = max(machine.size(int(megabytes * 2**20), 4096), 8 * machine.size(COMPUTE[0]))
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 100, (count,), dtype=torch.uint8, generator=generator) for _ in range(4)]


def pageable_batch(severity: str, machine: Machine) -> Program:
    """Batches are sent from pageable memory; fixed, from pinned memory, one step ahead."""
    batches = host_batches(machine, {"high": 32, "low": 4, "harmless": 0.05}[severity])
    fault = fed_training(machine, in_turn(batches, lambda batch: batch.to(machine.device)))
    fix = fed_training(machine, Ahead(machine, [machine.pinned(batch) for batch in batches]))
    return Program(fault, fix)


def copy_on_compute_stream(severity: str, machine: Machine) -> Program:
    """Pinned batches are sent on the stream that computes, which waits; fixed, on another stream, one step ahead."""
    batches = [
        machine.pinned(batch) for batch in host_batches(machine, {"high": 96, "low": 16, "harmless": 0.5}[severity])
    ]
    fault = fed_training(machine, in_turn(batches, lambda batch: batch.to(machine.device, non_blocking=True)))
    return Program(fault, fed_training(machine, Ahead(machine, batches)))


def constant_sent_again(severity: str, machine: Machine) -> Program:
    """A table that never changes is sent to the device in every layer of an inference; fixed, it is sent once."""
    length, layers = {"high": (1536, 8), "low": (512, 4), "harmless": (64, 1)}[severity]
    length = machine.size(length)
    width, tokens = machine.size(COMPUTE[0]), machine.size(COMPUTE[1])
    table = torch.rand(length, length, generator=torch.Generator().manual_seed(0))
    resident = table.to(machine.device)

    def step_with(take: Callable[[], Tensor]) -> Step:
        model = place(machine, lambda: Mlp(width, 8))
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for number, layer in enumerate(model.layers):
                hidden = torch.relu(layer(hidden))
                if number < layers:
                    rows = hidden[:length, :length]
                    rows.mul_(take()[: rows.shape[0], : rows.shape[1]])
            return hidden.float().mean()

        return step

    return Program(step_with(lambda: table.to(machine.device)), step_with(lambda: resident))


def outputs_to_host(severity: str, machine: Machine) -> Program:
    """Every output is fetched with a blocking .cpu(); fixed, it goes to a pinned buffer on another stream."""
    classes = machine.size({"high": 8192, "low": 768, "harmless": 8}[severity])
    width, tokens = machine.size(COMPUTE[0]), machine.size(COMPUTE[1])

    def step_with(fetch: Callable[[Tensor], None]) -> Step:
        model = place(machine, lambda: Mlp(width, 8))
        head = machine.random(width, classes, seed=3) * 0.01
        batch = machine.random(tokens, width)

        @torch.no_grad()
        def step() -> Tensor:
            logits = model(batch) @ head
            fetch(logits)
            return logits.float().mean()

        return step

    stream = machine.stream()
    slots = [machine.pinned(torch.empty(tokens, classes, dtype=torch.bfloat16)) for _ in range(2)]
    count = [0]

    def behind(logits: Tensor) -> None:
        machine.join(stream, None)
        with machine.on(stream):
            slots[count[0] % 2].copy_(logits, non_blocking=True)
        if stream is not None:
            logits.record_stream(stream)
        count[0] += 1

    kept: list[Tensor] = []

    def at_once(logits: Tensor) -> None:
        kept[:] = [logits.cpu()]

    return Program(step_with(at_once), step_with(behind))


def checkpoint_in_line(severity: str, machine: Machine) -> Program:
    """Every third step copies the weights to the host with .cpu(); fixed, to pinned buffers on another stream."""
    layers, every = {"high": (3, 3), "low": (1, 3), "harmless": (0, 3)}[severity]
    width, tokens, depth = machine.size(COMPUTE[0]), machine.size(COMPUTE[1]), COMPUTE[2]
    stream = machine.stream()
    target = machine.random(tokens, width, seed=1)
    batch = machine.random(tokens, width)

    def step_with(save: Callable[[list[Tensor]], None], settle: Callable[[], None]) -> Step:
        model = place(machine, lambda: Mlp(width, depth))
        optimizer = adamw(model.parameters())
        optimizer.register_step_pre_hook(lambda *_: settle())
        plain = training(machine, model, optimizer)
        state = [layer.weight.detach() for layer in model.layers][:layers] or [model.layers[0].weight.detach()[:64]]
        count = [0]

        def step() -> Tensor:
            loss = plain(batch, target)
            count[0] += 1
            if count[0] % every == 0:
                with machine.phase("checkpoint", own=True):
                    save(state)
            return loss.float()

        return step

    def aside(state: list[Tensor]) -> None:
        if not buffers:
            buffers.extend(machine.pinned(torch.empty(part.shape, dtype=part.dtype)) for part in state)
        machine.join(stream, None)
        with machine.on(stream):
            for buffer, part in zip(buffers, state, strict=True):
                buffer.copy_(part, non_blocking=True)

    kept: list[Tensor] = []
    buffers: list[Tensor] = []

    def in_line(state: list[Tensor]) -> None:
        kept[:] = [part.cpu() for part in state]

    fix = step_with(aside, lambda: machine.join(None, stream))
    return Program(step_with(in_line, lambda: None), fix, period=every, settle=3)
