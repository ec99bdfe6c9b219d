"""What answers: search, decoding, detection and sampling, with the work that their loops could leave out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import place
from benchmarks.faults.ninth.sequences import causal, layers
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn


def passages_ranked_in_full(_: str, machine: Machine) -> Program:
    """All passages of a corpus are sorted for each query, and the best hundred kept; fixed, `topk`."""
    width, count, best = machine.size(512, 64), machine.size(1 << 19, 64), machine.size(100, 4)
    corpus = machine.random(count, width)
    asked = machine.random(machine.size(64, 2), machine.size(32, 4), width, seed=1)
    encoder = layers(machine, 4, width, causal)

    def sorted_(scores: Tensor) -> Tensor:
        return scores.sort(-1, descending=True).values[:, :best]  # cause

    def chosen(scores: Tensor) -> Tensor:
        return scores.topk(best, -1).values

    def answering(rank: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            query = encoder(asked).mean(1)
            return rank((query @ corpus.T).float()).mean()

        return step

    return Program(answering(sorted_), answering(chosen), tolerance=5e-2)


class Decoder(nn.Module):
    """A layer that attends to what it answered before, kept by `remember`, and to what it heard."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out, self.asked = (nn.Linear(width, width) for _ in range(5))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second, self.third = (nn.LayerNorm(width) for _ in range(3))

    def split(self, hidden: Tensor) -> Tensor:
        return hidden.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, hidden: Tensor, remember: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], heard: Tensor | None
    ) -> Tensor:  # fmt: skip
        normed = self.first(hidden)
        query, key, value = (self.split(layer(normed)) for layer in (self.query, self.key, self.value))
        found = F.scaled_dot_product_attention(query, *remember(key, value))
        hidden = hidden + self.out(found.transpose(1, 2).flatten(2))
        if heard is not None:
            found = F.scaled_dot_product_attention(self.split(self.asked(self.second(hidden))), heard, heard)
            hidden = hidden + found.transpose(1, 2).flatten(2)
        return hidden + self.down(F.gelu(self.up(self.third(hidden))))


Pair = tuple[Tensor, Tensor]


def appended(caches: list[Pair], number: int) -> Callable[[Tensor, Tensor], Pair]:
    """What layer `number` remembers, grown by a concatenation."""

    def remember(key: Tensor, value: Tensor) -> Pair:
        old = caches[number]
        caches[number] = torch.cat([old[0], key], 2), torch.cat([old[1], value], 2)  # cause of answers_grown_by_cat
        return caches[number]

    return remember


def speech_decoded_with_gradients(_: str, machine: Machine) -> Program:
    """A small decoder of speech answers word by word while autograd records; fixed, under `no_grad`."""
    width, heads, words = machine.size(256, 16), machine.size(4, 2), machine.size(16, 3)
    batch, table = machine.size(8, 2), machine.random(1000, width, seed=3)
    model = place(machine, lambda: nn.ModuleList(Decoder(width, heads) for _ in range(machine.size(6, 2))))
    last = place(machine, lambda: nn.Linear(width, 1000))
    heard = machine.random(batch, heads, machine.size(200, 8), width // heads)
    nothing = machine.random(batch, heads, 1, width // heads, seed=5)

    def decoding(mode: Callable[[], AbstractContextManager[object]]) -> Step:
        def step() -> Tensor:
            with mode():
                caches = [(nothing, nothing)] * len(model)
                total, word = torch.zeros((), device=machine.device), table[:batch, None]
                for _ in range(words):
                    for number, layer in enumerate(model):
                        word = layer(word, appended(caches, number), heard)  # cause
                    scores = last(word)
                    word = table[scores[:, -1].argmax(-1)][:, None]
                    total = total + scores.float().square().mean()
            return total.detach()

        return step

    return Program(decoding(nullcontext), decoding(torch.no_grad), tolerance=5e-2)


def answers_grown_by_cat(_: str, machine: Machine) -> Program:
    """Keys and values of long prompts are copied whole for each new token; fixed, a buffer is written in place."""
    width, heads, tokens, length = machine.size(1024, 16), machine.size(8, 2), machine.size(8, 2), machine.size(4096, 8)
    batch, count = machine.size(16, 2), machine.size(6, 2)
    model = place(machine, lambda: nn.ModuleList(Decoder(width, heads) for _ in range(count)))
    first = machine.random(batch, 1, width)
    prompt = [machine.random(batch, heads, length, width // heads, seed=number) for number in range(count)]
    room = [torch.cat([given, given[:, :, :tokens]], 2) for given in prompt for _ in range(2)]

    def written(number: int, at: int) -> Callable[[Tensor, Tensor], Pair]:
        def remember(key: Tensor, value: Tensor) -> Pair:
            keys, values = room[2 * number], room[2 * number + 1]
            keys[:, :, at : at + 1], values[:, :, at : at + 1] = key, value
            return keys[:, :, : at + 1], values[:, :, : at + 1]

        return remember

    @torch.no_grad()
    def by_cat() -> Tensor:
        caches, hidden = [(given, given) for given in prompt], first
        for _ in range(tokens):
            for number, layer in enumerate(model):
                hidden = layer(hidden, appended(caches, number), None)
        return hidden.float().square().mean()

    @torch.no_grad()
    def in_place() -> Tensor:
        hidden = first
        for token in range(tokens):
            for number, layer in enumerate(model):
                hidden = layer(hidden, written(number, length + token), None)
        return hidden.float().square().mean()

    return Program(by_cat, in_place, tolerance=5e-2)


def proposals_cropped_in_turn(_: str, machine: Machine) -> Program:
    """The second stage of a detector samples each proposed box by itself; fixed, all boxes in one grid."""
    count, channels, size = machine.size(256, 3), machine.size(256, 8), machine.size(128, 16)
    backbone = place(
        machine,
        lambda: nn.Sequential(*(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(machine.size(6, 2)))),
    )
    backbone = backbone.to(memory_format=torch.channels_last)
    head = place(machine, lambda: nn.Linear(channels * 49, machine.size(1024, 16)))
    picture = machine.random(1, channels, size, size).contiguous(memory_format=torch.channels_last)
    boxes = machine.random(count, 2, 3, dtype=torch.float32, seed=1).clamp(-1, 1) * 0.3

    def in_turn(features: Tensor) -> Tensor:
        found = []
        for box in boxes:
            grid = F.affine_grid(box[None], [1, channels, 7, 7], align_corners=False)  # cause
            found.append(F.grid_sample(features, grid, align_corners=False)[0])  # cause
        return torch.stack(found)

    def at_once(features: Tensor) -> Tensor:
        grid = F.affine_grid(boxes, [count, channels, 7, 7], align_corners=False)
        found = F.grid_sample(features, grid.view(1, count * 7, 7, 2), align_corners=False)
        return found.view(channels, count, 7, 7).transpose(0, 1)

    def answering(crop: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            crops = crop(backbone(picture).float())
            return head(crops.flatten(1).to(torch.bfloat16)).float().square().mean()

        return step

    return Program(answering(in_turn), answering(at_once), tolerance=5e-2)


def hits_ranked_in_python(_: str, machine: Machine) -> Program:
    """A retrieval model's scores are read and sorted in Python for its mean reciprocal rank; fixed, on the GPU."""
    width, count, items = machine.size(2048, 64), machine.size(64, 4), machine.size(2000, 16)
    encoder = layers(machine, 4, width, causal)
    asked, table = machine.random(count, machine.size(64, 4), width), machine.random(items, width, seed=1)
    truth = list(range(count))
    own = torch.tensor(truth, device=machine.device)

    def in_python(scores: Tensor) -> Tensor:
        total = 0.0
        for row, right in zip(scores.tolist(), truth, strict=True):
            order = sorted(range(len(row)), key=row.__getitem__, reverse=True)  # cause
            total += 1 / (1 + order.index(right))  # cause
        return torch.tensor(total / count)

    def on_the_gpu(scores: Tensor) -> Tensor:
        above = (scores > scores.gather(1, own[:, None])).sum(-1)
        return (1 / (1 + above.float())).mean()

    def evaluating(rank: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            found = encoder(asked).mean(1).float()
            return rank(found @ table.float().T)

        return step

    return Program(evaluating(in_python), evaluating(on_the_gpu), tolerance=5e-2)


def beams_kept_in_lists(_: str, machine: Machine) -> Program:
    """Beams of a search are read, chosen and sent back for each word; fixed, they stay on the GPU."""
    width, words, beams = machine.size(1024, 32), machine.size(12, 3), 4
    texts, known = machine.size(16, 2), machine.size(32000, 50)
    cells = place(machine, lambda: nn.ModuleList(nn.Linear(width, width) for _ in range(machine.size(8, 2))))
    table, start = machine.random(known, width, seed=2), machine.random(texts * beams, width)

    def in_lists(total: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores, kept, parents, chosen = (total[:, None] + values).tolist(), [], [], []  # cause
        names = indices.tolist()  # cause
        for text in range(texts):
            rows = range(text * beams, (text + 1) * beams)
            candidates = sorted(
                ((scores[row][at], row, names[row][at]) for row in rows for at in range(beams)), reverse=True
            )
            for score, row, name in candidates[:beams]:
                kept.append(score), parents.append(row), chosen.append(name)
        sent = [torch.tensor(part, device=machine.device) for part in (kept, parents, chosen)]  # cause
        return sent[0], sent[1], sent[2]

    def on_the_gpu(total: Tensor, values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        best, at = (total[:, None] + values).view(texts, -1).topk(beams, -1)
        parents = at // beams + torch.arange(texts, device=machine.device)[:, None] * beams
        return best.flatten(), parents.flatten(), indices.view(texts, -1).gather(1, at).flatten()

    def searching(choose: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            state, total = start, torch.zeros(texts * beams, device=machine.device)
            for _ in range(words):
                for cell in cells:
                    state = torch.tanh(cell(state))
                values, indices = (state @ table.T).float().log_softmax(-1).topk(beams, -1)
                total, parents, names = choose(total, values, indices)
                state = state[parents] + table[names]
            return total.mean()

        return step

    return Program(searching(in_lists), searching(on_the_gpu), tolerance=5e-2)


def grids_sent_while_sampling(_: str, machine: Machine) -> Program:
    """A sampler makes the same waves of coordinates on the CPU at each step and sends them; fixed, once, on the GPU."""
    size, channels, rounds, bands = machine.size(256, 16), machine.size(128, 8), machine.size(6, 2), machine.size(8, 2)
    count = machine.size(8, 2)
    network = place(
        machine,
        lambda: nn.Sequential(
            nn.Conv2d(4 + 2 * bands, channels, 3, padding=1), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1),
            nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1),
        ),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    noise = machine.random(count, 4, size, size)

    def waves() -> Tensor:
        line = torch.linspace(-1, 1, size)
        grid = torch.stack(torch.meshgrid(line, line, indexing="ij"))  # cause
        parts = [torch.sin(grid * 2.0**band) for band in range(bands)]  # cause
        return torch.cat(parts).expand(count, -1, -1, -1).to(machine.device, torch.bfloat16)  # cause

    kept = waves()

    def sampling(where: Callable[[], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            picture = noise
            for _ in range(rounds):
                given = torch.cat([picture, where()], 1).contiguous(memory_format=torch.channels_last)
                picture = picture - 0.1 * network(given)
            return picture.float().square().mean()

        return step

    return Program(sampling(waves), sampling(lambda: kept), tolerance=5e-2)


def flows_in_float64(_: str, machine: Machine) -> Program:
    """Wave numbers from NumPy are float64 and carry a spectral simulation there; fixed, they are float32."""
    count, size, rounds = machine.size(128, 2), machine.size(512, 16), 3
    start = machine.random(count, size, size, dtype=torch.float32)
    waves = np.add.outer(np.fft.fftfreq(size) ** 2, np.fft.rfftfreq(size) ** 2)
    numbers = torch.from_numpy(waves).to(machine.device)

    def simulating(squared: Tensor) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            field = start
            for _ in range(rounds):
                spectrum = torch.fft.rfft2(field)
                field = torch.fft.irfft2(spectrum / (1 + squared), s=(size, size))  # cause
                field = field - 0.01 * field**3
            return field.square().mean().float()

        return step

    return Program(simulating(numbers), simulating(numbers.float()), tolerance=1e-2)


def bank_normalised_again(_: str, machine: Machine) -> Program:
    """A bank of features that never changes is normalised and cast for each batch; fixed, once, before."""
    width, count = machine.size(512, 32), machine.size(1 << 20, 64)
    bank = machine.random(count, width, dtype=torch.float32)
    asked = machine.random(machine.size(256, 4), machine.size(16, 4), width, seed=1)
    encoder = layers(machine, 4, width, causal)

    def made() -> Tensor:
        return F.normalize(bank, dim=-1).to(torch.bfloat16)  # cause

    kept = made()

    def answering(features: Callable[[], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            return (encoder(asked).mean(1) @ features().T).amax(-1).float().mean()

        return step

    return Program(answering(made), answering(lambda: kept), tolerance=5e-2)
