"""What learns: tasks, clouds of points, graphs, codecs, speech and documents."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, update
from benchmarks.faults.ninth.sequences import causal, layers, regression
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

RATE = 1e-5


def documents_masked_apart(_: str, machine: Machine) -> Program:
    """Packed documents are kept apart by a mask over all pairs of words; fixed, each attends within itself."""
    width, documents, length = machine.size(1024, 64), machine.size(8, 2), machine.size(512, 8)
    batch = machine.random(machine.size(4, 2), documents * length, width)
    number = torch.arange(documents, device=machine.device).repeat_interleave(length)
    mask = number[:, None] == number[None]

    def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # cause

    def apart(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = [part.unflatten(2, (documents, length)).transpose(1, 2).flatten(0, 1) for part in (query, key, value)]
        found = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return found.unflatten(0, (-1, documents)).transpose(1, 2).flatten(2, 3)

    steps = [
        regression(machine, layers(machine, machine.size(4, 2), width, attend), batch) for attend in (masked, apart)
    ]
    return Program(*steps, tolerance=5e-2)


def forecasts_validated_each_step(_: str, machine: Machine) -> Program:
    """Three held-out batches are forecast after every training step; fixed, the loop only trains."""
    width, rows = machine.size(4096, 16), machine.size(4096)
    batch, held = machine.random(rows, width), [machine.random(rows, width, seed=seed) for seed in range(1, 4)]
    network = lambda: nn.Sequential(  # noqa: E731
        *(part for _ in range(4) for part in (nn.Linear(width, width), nn.ReLU()))
    )

    def training(validated: bool) -> Step:
        model = place(machine, network)
        optimizer = adamw(model.parameters(), lr=RATE)
        seen = torch.zeros((), device=machine.device)

        def step() -> Tensor:
            loss = update(machine, F.mse_loss(model(batch), batch), optimizer).float()
            if validated:
                with torch.no_grad():
                    for given in held:
                        seen.add_(F.mse_loss(model(given), given))  # cause
            return loss

        return step

    return Program(training(True), training(False), tolerance=5e-2)


def tasks_adapted_in_turn(_: str, machine: Machine) -> Program:
    """A model that learns to learn adapts to each of its tasks by itself; fixed, to all by `vmap`."""
    tasks, shots, width = machine.size(24, 2), machine.size(32, 4), machine.size(256, 8)
    given, asked = (machine.random(tasks, shots, width, seed=seed) for seed in (0, 1))
    network = lambda: nn.Sequential(  # noqa: E731
        *(part for _ in range(4) for part in (nn.Linear(width, width), nn.Tanh()))
    )

    def training(together: bool) -> Step:
        model = place(machine, network)
        optimizer = adamw(model.parameters(), lr=RATE)

        def loss_of(weights: dict[str, Tensor], batch: Tensor) -> Tensor:
            return F.mse_loss(functional_call(model, weights, batch), batch.flip(-1))

        def adapted(weights: dict[str, Tensor], support: Tensor, query: Tensor) -> Tensor:
            steps = grad(loss_of)(weights, support)
            return loss_of({name: weight - 0.1 * steps[name] for name, weight in weights.items()}, query)

        def step() -> Tensor:
            weights = dict(model.named_parameters())
            if together:
                losses = vmap(adapted, in_dims=(None, 0, 0))(weights, given, asked)
            else:
                losses = torch.stack([adapted(weights, *task) for task in zip(given, asked, strict=True)])  # cause
            return update(machine, losses.mean(), optimizer).float()

        return step

    return Program(training(False), training(True), tolerance=5e-2)


def points_picked_by_one_hot(_: str, machine: Machine) -> Program:
    """Neighbours in clouds of points are picked by a product with one-hot rows; fixed, by their indices."""
    clouds, points, picked, width = machine.size(8, 2), machine.size(2048, 16), machine.size(8192), machine.size(256, 8)
    given = machine.random(clouds, points, width)
    before, after = (
        place(machine, lambda: nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)))
        for _ in range(2)
    )
    where = machine.random(clouds, picked, dtype=torch.float32, seed=2).mul(1e4).long() % points

    def by_one_hot(features: Tensor) -> Tensor:
        return F.one_hot(where, points).to(features.dtype) @ features  # cause

    def by_index(features: Tensor) -> Tensor:
        return features.gather(1, where[..., None].expand(-1, -1, width))

    def answering(pick: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            return after(pick(before(given))).float().square().mean()

        return step

    return Program(answering(by_one_hot), answering(by_index), tolerance=5e-2)


def nodes_pooled_by_index_add(_: str, machine: Machine) -> Program:
    """Nodes of a few large graphs are summed by `index_add`, all on the same rows; fixed, a sum of each graph."""
    graphs, nodes, width = machine.size(16, 2), machine.size(1 << 16, 16), machine.size(256, 8)
    given = machine.random(graphs * nodes, width)
    graph = torch.arange(graphs, device=machine.device).repeat_interleave(nodes)
    layer = place(machine, lambda: nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)))
    empty = torch.zeros(graphs, width, device=machine.device)

    def by_index_add(found: Tensor) -> Tensor:
        return empty.index_add(0, graph, found)  # cause

    def by_graph(found: Tensor) -> Tensor:
        return found.view(graphs, nodes, width).sum(1)

    def answering(pool: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            return (pool(layer(given).float()) / nodes).square().mean()

        return step

    return Program(answering(by_index_add), answering(by_graph), tolerance=5e-2)


def codes_matched_by_differences(_: str, machine: Machine) -> Program:
    """A codec subtracts each code from each vector to find the nearest; fixed, the distances come from one product."""
    size, width, codes, count = machine.size(64, 8), machine.size(64, 8), machine.size(512, 16), machine.size(8, 2)
    channels = machine.size(256, 8)
    book = machine.random(codes, width, dtype=torch.float32, seed=1)
    sound = machine.random(count, channels, size, size).contiguous(memory_format=torch.channels_last)
    network = lambda: nn.Sequential(  # noqa: E731
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        nn.Conv2d(channels, width, 1),
    )  # fmt: skip

    def by_differences(rows: Tensor) -> Tensor:
        return (rows[:, None] - book).pow(2).sum(-1)  # cause

    def by_product(rows: Tensor) -> Tensor:
        return rows.pow(2).sum(-1, keepdim=True) - 2 * rows @ book.T + book.pow(2).sum(-1)

    def training(distances: Callable[[Tensor], Tensor]) -> Step:
        model = place(machine, network).to(memory_format=torch.channels_last)
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            rows = model(sound).permute(0, 2, 3, 1).reshape(-1, width).float()
            with torch.no_grad():
                nearest = distances(rows).argmin(-1)
            return update(machine, F.mse_loss(rows, book[nearest]), optimizer)

        return step

    return Program(training(by_differences), training(by_product), tolerance=5e-2)


def spectra_framed_in_turn(_: str, machine: Machine) -> Program:
    """Features of speech are made window by window; fixed, of all windows at once."""
    count, windows, width = machine.size(32, 2), machine.size(300, 4), machine.size(512, 64)
    wave = machine.random(count, windows * 400, dtype=torch.float32)
    shape = torch.hann_window(400, device=machine.device)
    filters = machine.random(257, width, dtype=torch.float32, seed=1).abs() / 257
    model = layers(machine, machine.size(6, 2), width, causal)
    target = machine.random(count, windows, width, seed=2)
    optimizers = adamw(model.parameters(), lr=RATE)

    def features(piece: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(piece * shape, 512).abs().pow(2)
        return (spectrum @ filters + 1e-3).log().to(torch.bfloat16)

    def in_turn() -> Tensor:
        return torch.stack([features(wave[:, at * 400 : (at + 1) * 400]) for at in range(windows)], 1)  # cause

    def at_once() -> Tensor:
        return features(wave.unfold(-1, 400, 400))

    def training(made: Callable[[], Tensor]) -> Step:
        return lambda: update(machine, F.mse_loss(model(made()), target), optimizers).float()

    return Program(training(in_turn), training(at_once), tolerance=5e-2)
