"""Two faults at once: each is planted and mended by itself, so that the ends of a plan of both are known."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Convolutions, Mlp, adamw, place, update
from benchmarks.faults.ninth.sequences import causal, layers
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

RATE = 1e-5


def doubled(make: Callable[[bool, bool], Step], tolerance: float = 5e-2) -> Program:
    """The program that `make(first fault, second fault)` is, with both faults, with either and with none."""
    return Program(
        make(True, True), make(False, False), tolerance, halves=(make(False, True), make(True, False))
    )  # fmt: skip


def negatives_drawn_on_the_cpu_and_sorted(_: str, machine: Machine) -> Program:
    """A recommender draws its negatives on the CPU, and sorts all losses to keep the hardest few; fixed, drawn on the
    GPU, and `topk`.
    """
    items, users, drawn = machine.size(1 << 20, 50), machine.size(8192, 8), machine.size(4096, 8)
    width, hardest = machine.size(1024, 16), machine.size(1000, 3)
    clicks = machine.random(users, width)
    bought = machine.random(users, dtype=torch.float32, seed=1).mul(1e6).long() % items
    chance = torch.rand(drawn, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    def training(by_cpu: bool, by_sort: bool) -> Step:
        table = place(machine, lambda: nn.Embedding(items, machine.size(64, 4)))
        tower = place(
            machine, lambda: nn.Sequential(Mlp(width, machine.size(8, 2)), nn.Linear(width, table.weight.shape[1]))
        )
        optimizer = adamw(tower.parameters(), lr=RATE)
        place_of = torch.device("cpu") if by_cpu else machine.device
        popular, given = torch.ones(items, dtype=torch.float64, device=place_of), chance.to(place_of)
        seen = bought.to(place_of)

        def negatives() -> Tensor:
            popular.index_add_(0, seen, torch.ones(users, dtype=torch.float64, device=place_of))  # cause
            summed = popular.pow(0.75).cumsum(0)  # cause
            return torch.searchsorted(summed, given * summed[-1]).clamp(max=items - 1)  # cause

        def ordered(losses: Tensor) -> Tensor:
            return losses.sort(descending=True).values[:hardest]  # cause

        def step() -> Tensor:
            wrong = table(negatives().to(machine.device)).detach()
            user = tower(clicks)
            losses = F.softplus((user @ wrong.T).float()).flatten()
            kept = ordered(losses) if by_sort else losses.topk(hardest).values
            return update(machine, kept.mean() + losses.mean(), optimizer).float()

        return step

    return doubled(training)


def voices_framed_in_turn_and_recomputed(_: str, machine: Machine) -> Program:
    """A speech recognizer makes its features voice by voice, and recomputes layers that memory has room for; fixed, of
    all voices at once, and kept.
    """
    voices, frames, width, depth = machine.size(192, 3), machine.size(64, 6), machine.size(768, 64), machine.size(4, 2)
    waves = machine.random(voices, 160 * frames, dtype=torch.float32)
    window = torch.hann_window(160, device=machine.device)
    filters = machine.random(129, width, dtype=torch.float32, seed=1).abs() / 129
    target = machine.random(voices, frames, width, seed=2)

    def features(sound: Tensor) -> Tensor:
        flat = sound - 0.97 * F.pad(sound[..., :-1], (1, 0))
        power = torch.fft.rfft(flat.unflatten(-1, (frames, 160)) * window, 256).abs().square()
        heard = (power @ filters).clamp(min=1e-5).log()
        return (heard - heard.mean(-2, keepdim=True)) / (heard.std(-2, keepdim=True) + 1e-5)

    def training(in_turn: bool, again: bool) -> Step:
        model = layers(machine, depth, width, causal)
        optimizer = adamw(model.parameters(), lr=RATE)

        def run(hidden: Tensor) -> Tensor:
            for layer in model:
                hidden = checkpoint(layer, hidden, use_reentrant=False) if again else layer(hidden)  # cause
            return hidden

        def step() -> Tensor:
            made = torch.stack([features(wave) for wave in waves]) if in_turn else features(waves)  # cause
            return update(machine, F.mse_loss(run(made.to(torch.bfloat16)), target), optimizer).float()

        return step

    return doubled(training)


def particles_read_and_in_fp32(_: str, machine: Machine) -> Program:
    """A learned simulator reads its energy after each of its steps, and multiplies in fp32; fixed, read by nobody, and
    in bf16.
    """
    particles, width, steps = machine.size(4096, 8), machine.size(1024, 16), machine.size(8, 3)
    start = machine.random(particles, width, dtype=torch.float32)

    def simulating(read: bool, full: bool) -> Step:
        dtype = torch.float32 if full else torch.bfloat16
        model = place(machine, lambda: Mlp(width, machine.size(6, 2)), dtype)

        @torch.no_grad()
        def step() -> Tensor:
            state = start
            for _ in range(steps):
                force = model(state.to(dtype)).float()  # cause
                state = state + 0.01 * (force - state)
                energy = state.square().mean()
                if read and energy.item() > 1e6:  # cause
                    break
            return energy

        return step

    return doubled(simulating)


def pictures_sent_pageable_and_channels_first(_: str, machine: Machine) -> Program:
    """A codec is sent its pictures from pageable memory in line, and convolves channels first; fixed, sent ahead from
    pinned memory, and channels last.
    """
    count, size, width = machine.size(16, 2), machine.size(128, 8), machine.size(256, 8)
    channels = machine.size(64, 4)
    pictures = machine.random(count, channels, size, size).cpu()
    ready = machine.pinned(pictures.clone())
    aside = machine.stream()

    def training(pageable: bool, first: bool) -> Step:
        layout = torch.contiguous_format if first else torch.channels_last
        model = place(
            machine,
            lambda: nn.Sequential(
                nn.Conv2d(channels, width, 3, padding=1), Convolutions(width, machine.size(6, 2)),
                nn.Conv2d(width, channels, 3, padding=1),
            ),
        ).to(memory_format=layout)  # fmt: skip
        optimizer = adamw(model.parameters(), lr=RATE)
        source = pictures.contiguous(memory_format=layout) if pageable else machine.pinned(
            ready.contiguous(memory_format=layout)
        )  # fmt: skip
        sent: list[Tensor] = []

        def send() -> None:
            machine.join(aside, None)
            with machine.on(aside):
                sent.append(source.to(machine.device, non_blocking=True))

        def given() -> Tensor:
            if pageable:
                return source.to(machine.device)  # cause
            if not sent:
                send()
            machine.join(None, aside)
            batch = sent.pop()
            if machine.cuda:
                batch.record_stream(torch.cuda.current_stream())
            send()
            return batch

        def step() -> Tensor:
            batch = given()
            answer = model(batch)  # cause
            return update(machine, F.mse_loss(answer, batch), optimizer).float()

        return step

    return doubled(training)
