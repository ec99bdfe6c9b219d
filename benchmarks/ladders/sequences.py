"""More programs on text and tables: a GPT in training, decoding with a cache, experts on rows of a table."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.program import Step
from benchmarks.ladders.parts import Context, graphed, trained, until_ended
from torch import Tensor, nn


class CausalLayer(nn.Module):
    """Norm, attention to what came before, norm, MLP; attention written out or, as a change, in one kernel."""

    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def heads_of(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value [batch, heads, length, head width]."""
        parts = self.qkv(self.norm1(hidden)).view(*hidden.shape[:2], 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        return query, key, value

    def attended(self, query: Tensor, key: Tensor, value: Tensor, later: Tensor) -> Tensor:
        scores = torch.matmul(query, key.transpose(-1, -2)) / query.shape[-1] ** 0.5
        return torch.matmul(torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1).to(value.dtype), value)

    def forward(self, hidden: Tensor, later: Tensor) -> Tensor:
        query, key, value = self.heads_of(hidden)
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            mixed = self.attended(query, key, value, later)
        return self.finished(hidden, mixed)

    def finished(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        return hidden + self.down(F.gelu(self.up(self.norm2(hidden))))


class CachedLayer(CausalLayer):
    """The same for one token at a time, whose key and value are written to a cache of fixed size."""

    def forward(self, hidden: Tensor, later: Tensor, keys: Tensor, values: Tensor, at: Tensor) -> Tensor:
        query, key, value = self.heads_of(hidden)
        keys.index_copy_(2, at, key)
        values.index_copy_(2, at, value)
        return self.finished(hidden, self.attended(query, keys, values, later))


class Gpt(nn.Module):
    """Words and places, layers, and how likely each word is next."""

    def __init__(self, words: int, length: int, width: int, layers: list[CausalLayer]) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(width)
        nn.init.normal_(self.words.weight, std=0.02)

    def said(self, hidden: Tensor) -> Tensor:
        return F.linear(self.norm(hidden), self.words.weight)

    def forward(self, text: Tensor) -> Tensor:
        at = torch.arange(text.shape[1], device=text.device)
        hidden, later = self.words(text) + self.places(at), at[None] > at[:, None]
        for layer in self.layers:
            hidden = layer(hidden, later)
        return self.said(hidden)


def gpt_training(context: Context) -> Step:
    """A small GPT in fp32; AdamW goes one parameter at a time, gradients are clipped, the loss is read every step."""
    size = context.machine.size
    words, length, width, fused = size(16000, 100), size(512, 16), size(512, 16), "fused_attention" in context
    heads = max(1, width // 64)
    model = context.place(
        lambda: Gpt(words, length, width, [CausalLayer(width, heads, fused) for _ in range(size(6, 2))])
    )
    context.compile(model.layers)
    optimizer, batch = context.adamw(model, loop=True), context.items(8, 2)
    text = torch.arange(batch * (length + 1), device=context.machine.device).mul(7919).remainder(words).view(batch, -1)
    seen: list[float] = []

    def step() -> Tensor:
        with context.autocast():
            said = model(text[:, :-1])
        loss = F.cross_entropy(said.float().flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seen[:] = [loss.item()]
        return loss.detach()

    return step


def chat_decoding(context: Context) -> Step:
    """Greedy decoding with a cache; the host asks after every token whether all answers have come to their end."""
    size, device = context.machine.size, context.machine.device
    words, length, width, batch = size(8000, 100), size(256, 16), size(512, 16), context.items(8, 2)
    heads, count, first, end = max(1, width // 64), size(10, 3), length // 2, 0
    model = context.place(
        lambda: Gpt(words, length, width, [CachedLayer(width, heads, False) for _ in range(size(4, 2))])
    )
    model.eval().requires_grad_(False)
    context.compile(model.layers)
    kept = torch.bfloat16 if "bf16" in context else torch.float32
    shape = (batch, heads, length, width // heads)
    caches = [[context.normal(*shape, seed=2 * at + part).to(kept) for part in (0, 1)] for at in range(size(4, 2))]
    every, asked = torch.arange(length, device=device), torch.arange(1, batch + 1, device=device)
    word, at, score = asked.clone(), torch.full((1,), first, device=device), torch.zeros(batch, device=device)
    ended = torch.zeros(batch, dtype=torch.bool, device=device)

    @torch.no_grad()
    def say() -> None:
        with context.autocast():
            hidden, later = model.words(word)[:, None] + model.places(at), every > at
            for layer, (keys, values) in zip(model.layers, caches, strict=True):
                hidden = layer(hidden, later, keys, values, at)
            said = model.said(hidden)[:, 0].float()
        said[:, end].fill_(float("-inf"))  # an answer has a least length
        likely, best = said.log_softmax(-1).max(-1)
        score.add_(likely)
        word.copy_(best.masked_fill(ended, end))
        ended.logical_or_(word == end)
        at.add_(1)

    says = graphed(context, say)

    def step() -> Tensor:
        word.copy_(asked)
        at.fill_(first)
        score.zero_()
        ended.zero_()
        until_ended(context, says, ended, count)
        return score.mean()

    return step


class Experts(nn.Module):
    """Alike MLPs, called one by one or, as a change, all in one product a layer: [batch, experts, width]."""

    def __init__(self, count: int, widths: tuple[int, ...], together: bool) -> None:
        super().__init__()
        self.each = nn.ModuleList()
        for _ in range(count):
            layers = [nn.Linear(into, out) for into, out in itertools.pairwise(widths)]
            self.each.append(nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU()))))
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        if together:
            for at in range(0, 2 * (len(widths) - 1), 2):
                self.weights.append(torch.stack([expert[at].weight.detach().T for expert in self.each]))
                self.biases.append(torch.stack([expert[at].bias.detach()[None] for expert in self.each]))
            self.each = nn.ModuleList()

    def forward(self, rows: Tensor) -> Tensor:
        if not self.weights:
            return torch.stack([expert(rows) for expert in self.each], 1)
        hidden = rows.expand(len(self.weights[0]), *rows.shape)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = F.relu(torch.baddbmm(bias, hidden, weight))
        return hidden.transpose(0, 1)


class Mixture(nn.Module):
    """Categories looked up, experts, and for each of two tasks a gate that weighs them and a tower."""

    def __init__(self, categories: int, rows: int, numbers: int, experts: int, wide: int, together: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(categories * rows, 8)
        self.register_buffer("first", torch.arange(categories) * rows)
        into = 8 * categories + numbers
        self.experts = Experts(experts, (into, wide, wide // 2), together)
        self.gates = nn.ModuleList(nn.Linear(into, experts) for _ in range(2))
        self.towers = nn.ModuleList(nn.Linear(wide // 2, 1) for _ in range(2))

    def forward(self, names: Tensor, numbers: Tensor) -> Tensor:
        rows = torch.cat([self.table(names + self.first).flatten(1), numbers], 1)
        found, said = self.experts(rows), []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            said.append(tower((gate(rows).softmax(-1)[:, :, None] * found).sum(1)))
        return torch.cat(said, 1)


def experts_training(context: Context) -> Step:
    """Experts on rows of a table for two tasks, in fp32, rows sent from pageable memory, Adam as it comes."""
    size, machine = context.machine.size, context.machine
    categories, rows, numbers, batch = size(16, 2), size(1000, 20), size(128, 4), context.items(12288, 16)
    together = "batch_small_calls" in context
    model = context.place(lambda: Mixture(categories, rows, numbers, size(24, 3), size(256, 8), together))
    tables = []
    for at in range(3):
        names = torch.arange(batch * categories).mul(2654435761 + at).remainder(rows).view(batch, categories)
        tables.append((names, context.normal(batch, numbers, seed=at).cpu(), (names[:, :2] % 3 == 0).float()))
    if "pin_memory" in context:
        tables = [tuple(machine.pinned(part) for part in parts) for parts in tables]
    passed = 0

    def loss_of() -> Tensor:
        nonlocal passed
        parts = tables[passed % 3]
        names, given, wanted = (part.to(machine.device, non_blocking="pin_memory" in context) for part in parts)
        passed += 1
        return F.binary_cross_entropy_with_logits(model(names, given), wanted)

    fused = True if "fused_optimizer" in context else None
    return trained(context, loss_of, torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused))
