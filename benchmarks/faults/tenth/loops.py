"""One GPU: loops and layers as strangers write them, between a service that answers and a job that trains."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, update
from benchmarks.faults.ninth.sequences import causal, layers, regression
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn

RATE = 1e-5


def answers_scored_one_by_one(_: str, machine: Machine) -> Program:
    """A reward model scores 48 answers one after another; fixed, as one batch."""
    width, length, count = machine.size(768, 32), machine.size(96, 8), machine.size(48, 3)
    model = layers(machine, machine.size(6, 2), width, causal)
    answers = machine.random(count, length, width)

    @torch.no_grad()
    def one_by_one() -> Tensor:
        return torch.stack([model(answer[None]).float().square().mean() for answer in answers]).mean()

    @torch.no_grad()
    def at_once() -> Tensor:
        return model(answers).float().square().mean()

    return Program(one_by_one, at_once, tolerance=5e-2)


def images_augmented_one_by_one(_: str, machine: Machine) -> Program:
    """Each image of a batch is flipped, brightened and shifted by itself on the GPU; fixed, all images at once."""
    count, size, width = machine.size(256, 4), machine.size(64, 8), machine.size(96, 8)
    images = machine.random(count, 3, size, size)
    gains = machine.random(count, seed=1) * 0.1 + 1
    network = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(width, 8, 3),
    )

    def altered(batch: Tensor, gain: Tensor) -> Tensor:
        return (batch.flip(-1) * gain).clamp(-3, 3) - 0.1

    def training(augment: Callable[[], Tensor]) -> Step:
        model = place(machine, network).to(memory_format=torch.channels_last)
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            given = augment().contiguous(memory_format=torch.channels_last)
            return update(machine, model(given).float().square().mean(), optimizer)

        return step

    return Program(
        training(lambda: torch.stack([altered(image, gain) for image, gain in zip(images, gains, strict=True)])),
        training(lambda: altered(images, gains[:, None, None, None])),
        tolerance=5e-2,
    )


def weights_unpacked_from_bytes(_: str, machine: Machine) -> Program:
    """Weights kept as int8 are cast and scaled whenever a layer runs on many rows; fixed, once, before."""
    width, rows, count = machine.size(4096, 32), machine.size(1024), machine.size(8, 2)
    batch = machine.random(rows, width)
    packed = [(machine.random(width, width, seed=seed) * 20).to(torch.int8) for seed in range(count)]
    scale = machine.random(width, 1, seed=9).abs() * 1e-3

    def unpack(weight: Tensor) -> Tensor:
        return weight.to(torch.bfloat16) * scale

    def answering(weight_of: Callable[[int], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for number in range(count):
                hidden = F.relu(F.linear(hidden, weight_of(number)))
            return hidden.float().square().mean()

        return step

    ready = [unpack(weight) for weight in packed]
    return Program(answering(lambda at: unpack(packed[at])), answering(lambda at: ready[at]), tolerance=5e-2)


def equations_in_fp64(_: str, machine: Machine) -> Program:
    """A network that solves an equation computes in fp64 by default; fixed, in fp32."""
    width, points = machine.size(1024, 16), machine.size(8192)
    model = place(
        machine, lambda: nn.Sequential(*(part for _ in range(5) for part in (nn.Linear(width, width), nn.Tanh()))),
        torch.float64,
    )  # fmt: skip
    where = machine.random(points, width, dtype=torch.float64)

    def training(dtype: torch.dtype) -> Step:
        kept, given = deepcopy(model).to(dtype), where.to(dtype)
        optimizer = adamw(kept.parameters(), lr=RATE)
        return lambda: update(machine, kept(given).square().mean(), optimizer).float()

    return Program(training(torch.float64), training(torch.float32), tolerance=1e-2)


def frames_stacked_from_lists(_: str, machine: Machine) -> Program:
    """Frames of a video lie in ordinary memory and are sent whole in each step; fixed, pinned and sent a step ahead."""
    rows, width = machine.size(16384), machine.size(2048, 32)
    clips = [torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    pinned = [machine.pinned(clip) for clip in clips]
    side = machine.stream()

    def training(fetch: Callable[[int], Tensor]) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(6))))
        optimizer = adamw(model.parameters(), lr=RATE)
        turn = [0]

        def step() -> Tensor:
            given = fetch(turn[0]).to(torch.bfloat16)
            turn[0] += 1
            return update(machine, F.mse_loss(model(given), given), optimizer).float()

        return step

    waiting: dict[int, Tensor] = {}

    def ahead(turn: int) -> Tensor:
        here = waiting.pop(turn, None)
        machine.join(None, side)
        here = pinned[turn % 3].to(machine.device, non_blocking=True) if here is None else here
        with machine.on(side):
            waiting[turn + 1] = pinned[(turn + 1) % 3].to(machine.device, non_blocking=True)
        return here

    return Program(
        training(lambda turn: clips[turn % 3].to(machine.device)), training(ahead), tolerance=5e-2, period=3, settle=3
    )


def experts_balanced_by_numbers(_: str, machine: Machine) -> Program:
    """Each layer reads how many tokens an expert would get, to log it; fixed, the counts stay on the GPU."""
    width, rows, count = machine.size(1024, 16), machine.size(4096), machine.size(16, 2)
    batch = machine.random(rows, width)

    def training(log: Callable[[list[object], Tensor], None]) -> Step:
        model = place(machine, lambda: nn.ModuleList(nn.Linear(width, width) for _ in range(count)))
        gates = place(machine, lambda: nn.ModuleList(nn.Linear(width, 8) for _ in range(count)))
        optimizer = adamw([*model.parameters(), *gates.parameters()], lr=RATE)

        def step() -> Tensor:
            hidden, logged = batch, list[object]()
            for layer, gate in zip(model, gates, strict=True):
                chosen = gate(hidden).softmax(-1)
                log(logged, torch.bincount(chosen.argmax(-1), minlength=8))
                hidden = F.relu(layer(hidden)) * chosen.amax(-1, keepdim=True)
            return update(machine, hidden.float().square().mean(), optimizer)

        return step

    return Program(
        training(lambda logged, counts: logged.append(counts.tolist())),
        training(lambda logged, counts: logged.append(counts)),
        tolerance=5e-2,
    )


def speech_decoded_eagerly(_: str, machine: Machine) -> Program:
    """A small recurrent decoder answers token by token, kernel by kernel; fixed, each token is one CUDA graph."""
    width, batch, tokens = machine.size(512, 16), machine.size(16, 2), machine.size(40, 3)
    model = place(
        machine, lambda: nn.ModuleList([nn.GRUCell(width, width), nn.GRUCell(width, width), nn.Linear(width, 1000)])
    )
    table, start = machine.random(1000, width, seed=2), machine.random(batch, width)
    one, two, given = start.clone(), start.clone(), start.clone()

    @torch.no_grad()
    def token() -> Tensor:
        one.copy_(model[0](given, one))
        two.copy_(model[1](one, two))
        scores = model[2](two)
        given.copy_(table[scores.argmax(-1)])
        return scores.float().square().mean()

    def decoding(run: Callable[[], Tensor]) -> Step:
        def step() -> Tensor:
            for state in (one, two, given):
                state.copy_(start)
            for _ in range(tokens - 1):
                run()
            return run().clone()

        return step

    return Program(decoding(token), decoding(machine.graphed(token)), tolerance=5e-2)


def batches_mixed_in_numpy(_: str, machine: Machine) -> Program:
    """Each step draws, crops and mixes its images in NumPy before it trains on them; fixed, batches are ready."""
    count, size, width = machine.size(128, 2), machine.size(96, 32), machine.size(128, 8)
    drawn = np.random.default_rng(0)
    pool = drawn.integers(0, 255, (512, size, size, 3), dtype=np.uint8)
    network = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 8, 3)
    )

    def mixed(turn: int) -> Tensor:
        rng = np.random.default_rng(turn % 4)
        first, second = pool[rng.integers(0, 512, count)], pool[rng.integers(0, 512, count)]
        share = rng.beta(0.2, 0.2, (count, 1, 1, 1)).astype(np.float32)
        batch = share * (first.astype(np.float32) / 255) + (1 - share) * (second.astype(np.float32) / 255)
        return torch.from_numpy(np.ascontiguousarray(batch.transpose(0, 3, 1, 2)))

    ready = [machine.pinned(mixed(turn)) for turn in range(4)]

    def training(batch_of: Callable[[int], Tensor]) -> Step:
        model = place(machine, network).to(memory_format=torch.channels_last)
        optimizer = adamw(model.parameters(), lr=RATE)
        turn = [0]

        def step() -> Tensor:
            given = batch_of(turn[0]).to(machine.device, non_blocking=True).to(torch.bfloat16)
            turn[0] += 1
            given = given.contiguous(memory_format=torch.channels_last)
            return update(machine, model(given).float().square().mean(), optimizer)

        return step

    return Program(
        training(lambda turn: machine.pinned(mixed(turn))), training(lambda turn: ready[turn % 4]), tolerance=5e-2,
        period=4, settle=4,
    )  # fmt: skip


def gates_and_norms_by_hand(_: str, machine: Machine) -> Program:
    """A layer's norm and gated activation are a dozen kernels in fp32; fixed, torch.compile of the layer."""
    width, rows, count = machine.size(2048, 32), machine.size(8192), machine.size(4, 2)
    batch = machine.random(rows, width)
    weights = [machine.random(2 * width, width, seed=seed) / width**0.5 for seed in range(count)]
    backs = [machine.random(width, width, seed=seed + 20) / width**0.5 for seed in range(count)]

    def layer(hidden: Tensor, up: Tensor, down: Tensor) -> Tensor:
        wide = hidden.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(hidden.dtype)
        gate, value = F.linear(normed, up).chunk(2, -1)
        opened = gate.float() * torch.sigmoid(gate.float()) * value.float()
        return hidden + F.linear(opened.to(hidden.dtype), down)

    def answering(run: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = batch
            for up, down in zip(weights, backs, strict=True):
                hidden = run(hidden, up, down)
            return hidden.float().square().mean()

        return step

    return Program(answering(layer), answering(torch.compile(layer) if machine.cuda else layer), tolerance=5e-2)


def keys_of_groups_attended_by_einsum(_: str, machine: Machine) -> Program:
    """Grouped queries attend by einsum over repeated keys, softmax in fp32; fixed, one call for groups."""
    heads, groups, head = machine.size(16, 4), machine.size(4, 2), machine.size(128, 8)
    batch, length = machine.size(4, 2), machine.size(2048, 8)
    width = heads * head
    given = machine.random(batch, length, width)
    layer = place(
        machine,
        lambda: nn.ModuleList([nn.Linear(width, width), *(nn.Linear(width, groups * head) for _ in range(2))]),
    )

    def by_einsum(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (part.repeat_interleave(heads // groups, 1) for part in (key, value))
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) / head**0.5
        return torch.einsum("bhqk,bhkd->bhqd", F.softmax(scores.float(), -1).to(value.dtype), value)

    def by_one_call(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    def answering(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = given
            for _ in range(4):
                query, key, value = (part(hidden).unflatten(-1, (-1, head)).transpose(1, 2) for part in layer)
                hidden = hidden + attend(query, key, value).transpose(1, 2).flatten(2)
            return hidden.float().square().mean()

        return step

    return Program(answering(by_einsum), answering(by_one_call), tolerance=5e-2)


def adagrad_one_by_one(_: str, machine: Machine) -> Program:
    """Adagrad(foreach=False) goes through the weights of a recommender's towers; fixed, foreach=True."""
    width, rows = machine.size(1024, 16), machine.size(2048)
    batch = machine.random(rows, width)

    def training(together: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(32))))
        optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-6, foreach=together)
        return lambda: update(machine, F.mse_loss(model(batch), batch), optimizer).float()

    return Program(training(False), training(True), tolerance=5e-2)


def features_taken_home(_: str, machine: Machine) -> Program:
    """Embeddings of each batch go to ordinary host memory; fixed, to pinned memory, a step later, meanwhile."""
    width, rows, count = machine.size(4096, 16), machine.size(16384), 6
    batch = machine.random(rows, width)
    model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(count))))
    home = machine.pinned(torch.empty(rows, width, dtype=torch.bfloat16))
    side = machine.stream()

    @torch.no_grad()
    def at_once() -> Tensor:
        found = model(batch)
        found.cpu()
        return found.float().square().mean()

    @torch.no_grad()
    def meanwhile() -> Tensor:
        found = model(batch)
        machine.join(side, None)
        with machine.on(side):
            home.copy_(found, non_blocking=True)
            if side is not None:
                found.record_stream(side)
        return found.float().square().mean()

    return Program(at_once, meanwhile, tolerance=5e-2)


def replay_priorities_in_python(_: str, machine: Machine) -> Program:
    """After each step a tree of priorities is updated in Python; fixed, priorities are a tensor on the GPU."""
    rows, width, leaves = machine.size(2048, 8), machine.size(2048, 16), machine.size(1 << 14, 64)
    batch = machine.random(rows, width)
    tree = [1.0] * (2 * leaves)
    held = torch.ones(leaves, device=machine.device)
    where = torch.arange(rows, device=machine.device) * 7 % leaves
    places = where.tolist()

    def in_python(_: Tensor) -> None:
        for number, place_ in enumerate(places):
            at = place_ + leaves
            tree[at] = 1.0 + number % 5
            while at > 1:
                at //= 2
                tree[at] = tree[2 * at] + tree[2 * at + 1]

    def on_the_gpu(errors: Tensor) -> None:
        held[where] = errors

    def training(note: Callable[[Tensor], None]) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(6))))
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            found = model(batch)
            loss = update(machine, F.mse_loss(found, batch), optimizer).float()
            note((found.detach() - batch).float().square().mean(-1))
            return loss

        return step

    return Program(training(in_python), training(on_the_gpu), tolerance=5e-2)


def students_taught(_: str, machine: Machine) -> Program:
    """Nothing is planted: a student learns from a teacher's outputs, both in bf16 with attention in one call."""
    width = machine.size(2048, 64)
    teacher, batch = (
        layers(machine, 3, width, causal),
        machine.random(machine.size(8, 2), machine.size(1024, 16), width),
    )
    student = layers(machine, 2, width, causal)
    optimizer = adamw(student.parameters(), lr=RATE)

    def step() -> Tensor:
        with torch.no_grad():
            taught = teacher(batch)
        return update(machine, F.mse_loss(student(batch), taught), optimizer).float()

    return Program(step, step)


def patches_of_pictures_trained(_: str, machine: Machine) -> Program:
    """Nothing is planted: a transformer over patches trains compiled, in bf16, with a fused optimizer."""
    width, batch = (
        machine.size(2048, 64),
        machine.random(machine.size(16, 2), machine.size(576, 16), machine.size(2048, 64)),
    )
    model = layers(machine, 3, width, F.scaled_dot_product_attention)
    step = regression(machine, torch.compile(model) if machine.cuda else model, batch)
    return Program(step, step)


def pictures_told_apart(_: str, machine: Machine) -> Program:
    """Nothing is planted: wide convolutions answer in bf16, channels last, from images that are there."""
    width, size = machine.size(512, 8), machine.size(56, 8)
    model = place(machine, lambda: nn.Sequential(*(nn.Conv2d(width, width, 3, padding=1) for _ in range(6))))
    model = model.to(memory_format=torch.channels_last)
    image = machine.random(machine.size(32, 2), width, size, size).contiguous(memory_format=torch.channels_last)

    @torch.no_grad()
    def step() -> Tensor:
        return model(image).float().square().mean()

    return Program(step, step)
