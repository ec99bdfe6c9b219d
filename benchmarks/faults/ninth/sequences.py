"""Language, speech and graphs: what their loops ask the host for, and kernels that one call could be."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place, update
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

RATE = 1e-5


class Attending(nn.Module):
    """A pre-norm layer whose attention is `attend(query, key, value)` over [batch, heads, length, head width]."""

    def __init__(self, width: int, heads: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.heads, self.attend = heads, attend
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.first(hidden)
        query, key, value = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        hidden = hidden + self.out(self.attend(query, key, value).transpose(1, 2).flatten(2))
        return hidden + self.down(F.relu(self.up(self.second(hidden))))


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def layers(machine: Machine, count: int, width: int, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> nn.Module:
    heads = max(1, width // 64)
    return place(machine, lambda: nn.Sequential(*(Attending(width, heads, attend) for _ in range(count))))


def regression(machine: Machine, model: nn.Module, batch: Tensor) -> Step:
    """A training step towards the batch itself."""
    optimizer = adamw(model.parameters(), lr=RATE)
    return lambda: update(machine, F.mse_loss(model(batch), batch), optimizer).float()


def biases_added_to_scores(_: str, machine: Machine) -> Program:
    """T5-like attention adds a bias of positions to scores that it writes out; fixed, it is the mask of one call."""
    width, length = machine.size(1024, 64), machine.size(1024, 16)
    bias = machine.random(1, max(1, width // 64), length, length)
    batch = machine.random(machine.size(4, 2), length, width)

    def written_out(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = torch.matmul(query, key.transpose(2, 3)) / 8 + bias
        return torch.matmul(F.softmax(scores.float(), -1).to(value.dtype), value)

    def called(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=1 / 8)

    eager, fused = (
        regression(machine, layers(machine, machine.size(6, 2), width, attend), batch)
        for attend in (written_out, called)
    )
    return Program(eager, fused, tolerance=5e-2)


def layers_checkpointed(_: str, machine: Machine) -> Program:
    """Every layer is checkpointed, on a GPU with room for its activations; fixed, none is."""
    width = machine.size(1024, 64)
    batch = machine.random(machine.size(8, 2), machine.size(1024, 16), width)

    def training(again: bool) -> Step:
        model = layers(machine, machine.size(8, 2), width, causal)

        def run(hidden: Tensor) -> Tensor:
            for layer in model:
                hidden = checkpoint(layer, hidden, use_reentrant=False) if again else layer(hidden)
            return hidden

        optimizer = adamw(model.parameters(), lr=RATE)
        return lambda: update(machine, F.mse_loss(run(batch.requires_grad_()), batch.detach()), optimizer).float()

    return Program(training(True), training(False), tolerance=5e-2)


def activations_kept_on_the_cpu(_: str, machine: Machine) -> Program:
    """What backward needs is kept in pinned host memory, though the GPU has room; fixed, on the GPU."""
    width = machine.size(2048, 64)
    batch = machine.random(machine.size(4096), width)

    def training(around: Callable[[], AbstractContextManager[object]]) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(6))))
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            with around():
                loss = F.mse_loss(model(batch), batch)
            return update(machine, loss, optimizer).float()

        return step

    kept = training(lambda: torch.autograd.graph.save_on_cpu(pin_memory=machine.cuda))
    return Program(kept, training(nullcontext), tolerance=5e-2, slow=True)


def lengths_read_to_pack(_: str, machine: Machine) -> Program:
    """Lengths come from the GPU to pack sequences for an LSTM, once per layer; fixed, they are known to the CPU."""
    batch, length, width = machine.size(128, 2), machine.size(64, 8), machine.size(512)
    known = torch.tensor([length - row % (length // 2) for row in range(batch)])
    there = known.to(machine.device)
    words = machine.random(batch, length, width)

    def training(lengths: Callable[[], Tensor]) -> Step:
        model = place(machine, lambda: nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(4)))
        optimizer = adamw(model.parameters(), lr=RATE)

        def step() -> Tensor:
            hidden = words
            for layer in model:
                packed = pack_padded_sequence(hidden, lengths(), batch_first=True, enforce_sorted=False)
                found, _ = layer(packed)
                hidden, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True, total_length=length)
            return update(machine, hidden.float().square().mean(), optimizer)

        return step

    return Program(training(there.cpu), training(lambda: known), tolerance=5e-2)


def words_split_while_collated(_: str, machine: Machine) -> Program:
    """A loader without workers splits text into words and numbers them; fixed, they were numbered before training."""
    batch, length, width = machine.size(64, 2), machine.size(256, 8), machine.size(1024, 32)
    drawn = random.Random(0)
    texts = [" ".join(str(drawn.randrange(20000)) for _ in range(length)) for _ in range(512)]
    numbers = {str(word): word for word in range(20000)}

    def number(text: str) -> list[int]:
        return [numbers.get(word.lower().strip(), 0) for word in text.split()]

    done = [torch.tensor(number(text)) for text in texts]

    def training(rows: list[object], collate: Callable[[list[object]], Tensor]) -> Step:
        model = place(machine, lambda: nn.Sequential(nn.Embedding(20000, width), *layers(machine, 2, width, causal)))
        optimizer = adamw(model.parameters(), lr=RATE)

        def batches() -> Iterator[Tensor]:
            while True:
                yield from DataLoader(rows, batch, collate_fn=collate, pin_memory=machine.cuda)  # type: ignore[arg-type]

        running = batches()

        def step() -> Tensor:
            words = next(running).to(machine.device, non_blocking=True)
            return update(machine, model(words).float().square().mean(), optimizer)

        return step

    split = training(list(texts), lambda rows: torch.tensor([number(row) for row in rows]))  # type: ignore[arg-type]
    return Program(split, training(list(done), torch.stack), tolerance=5e-2, period=8)  # type: ignore[arg-type]


def relations_in_turn(_: str, machine: Machine) -> Program:
    """A graph network multiplies the nodes of each of 48 relations in turn; fixed, all in one batched product."""
    relations, nodes, width = machine.size(48, 3), machine.size(256, 4), machine.size(128, 8)
    hidden = machine.random(relations, nodes, width)
    weights = [machine.random(relations, width, width, seed=seed) / width**0.5 for seed in range(4)]

    @torch.no_grad()
    def by_turns() -> Tensor:
        found = hidden
        for weight in weights:
            found = torch.stack([F.relu(found[one] @ weight[one]) for one in range(relations)])
        return found.float().square().mean()

    @torch.no_grad()
    def at_once() -> Tensor:
        found = hidden
        for weight in weights:
            found = F.relu(torch.bmm(found, weight))
        return found.float().square().mean()

    return Program(by_turns, at_once, tolerance=5e-2)


def games_played_on_the_cpu(_: str, machine: Machine) -> Program:
    """A policy waits at each move for an environment in Python; fixed, the environment's moves are on the GPU."""
    count, width, moves = machine.size(256, 4), machine.size(1024, 16), 8
    policy = place(machine, lambda: nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4)))
    start = machine.random(count, 16)
    turn = torch.arange(16, device=machine.device)

    def by_python(choices: Tensor, seen: Tensor) -> Tensor:
        states, picked = seen.float().tolist(), choices.tolist()
        for state, choice in zip(states, picked, strict=True):
            for place_ in range(16):
                state[place_] = state[place_] * 0.5 + (place_ % 4 == choice)
        return torch.tensor(states, device=machine.device).to(seen.dtype)

    def by_kernels(choices: Tensor, seen: Tensor) -> Tensor:
        return (seen.float() * 0.5 + (turn[None, :] % 4 == choices[:, None])).to(seen.dtype)

    def playing(move: Callable[[Tensor, Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            seen = start
            for _ in range(moves):
                seen = move(policy(seen).argmax(1), seen)
            return seen.float().square().mean()

        return step

    return Program(playing(by_python), playing(by_kernels), tolerance=5e-2)


def pages_unpacked_by_the_trainer(_: str, machine: Machine) -> Program:
    """Each step unpacks its batch from compressed bytes itself; fixed, a thread does so a step ahead."""
    width, rows = machine.size(2048, 32), machine.size(4096)
    size = width * rows
    pages = (bytes((seed + place) % 7 for place in range(997)) for seed in range(4))
    packed = [zlib.compress(page * (size // 997 + 1), 1) for page in pages]
    helper = ThreadPoolExecutor(1)

    def unpack(which: int) -> Tensor:
        raw = bytearray(zlib.decompress(packed[which % 4])[:size])
        return machine.pinned(torch.frombuffer(raw, dtype=torch.uint8).view(rows, width).float())

    def training(ahead: bool) -> Step:
        model = place(machine, lambda: nn.Sequential(*(nn.Linear(width, width) for _ in range(12))))
        optimizer = adamw(model.parameters(), lr=RATE)
        turn, waiting = [0], [helper.submit(unpack, 0)] if ahead else []

        def step() -> Tensor:
            if ahead:
                batch = waiting.pop().result()
                waiting.append(helper.submit(unpack, turn[0] + 1))
            else:
                batch = unpack(turn[0])
            turn[0] += 1
            given = batch.to(machine.device, non_blocking=True).to(torch.bfloat16)
            return update(machine, F.mse_loss(model(given), given), optimizer).float()

        return step

    return Program(training(False), training(True), tolerance=5e-2, period=4, close=helper.shutdown)


def wide_layers_trained(_: str, machine: Machine) -> Program:
    """Nothing is planted: a decoder of wide layers trains in bf16 with attention in one call and a fused optimizer."""
    width = machine.size(4096, 64)
    step = regression(
        machine, layers(machine, 2, width, causal), machine.random(machine.size(4, 2), machine.size(1024, 16), width)
    )
    return Program(step, step)


def passages_scored(_: str, machine: Machine) -> Program:
    """Nothing is planted: queries are scored against many passages by one product, and the best are taken."""
    width = machine.size(1024, 16)
    passages, queries = machine.random(machine.size(1 << 17, 64), width), machine.random(machine.size(4096), width)

    @torch.no_grad()
    def step() -> Tensor:
        return (queries @ passages.T).max(1).values.float().mean()

    return Program(step, step)
