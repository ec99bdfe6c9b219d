"""Programs on text, tables, graphs and latent pictures: a T5, a recommender, message passing, a sampler."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.program import Step
from benchmarks.ladders.parts import Attention, Context, graphed, loaded, trained
from torch import Tensor, nn
from torch.utils.data import Dataset


class RmsNorm(nn.Module):
    """T5's norm, written out in fp32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Tensor) -> Tensor:
        variance = hidden.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + 1e-6)).to(hidden.dtype)


class T5Layer(nn.Module):
    """Attention with a relative bias, in a decoder attention to the source too, and an MLP with ReLU."""

    def __init__(self, width: int, heads: int, fused: bool, crossed: bool) -> None:
        super().__init__()
        self.norm1, self.norm2, self.own = RmsNorm(width), RmsNorm(width), Attention(width, heads, fused)
        self.norm3 = RmsNorm(width) if crossed else None
        self.crossing = Attention(width, heads, fused) if crossed else None
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, hidden: Tensor, bias: Tensor, memory: Tensor | None) -> Tensor:
        hidden = hidden + self.own(self.norm1(hidden), bias=bias)
        if self.crossing is not None:
            hidden = hidden + self.crossing(self.norm3(hidden), memory)
        return hidden + self.down(F.relu(self.up(self.norm2(hidden))))


class T5(nn.Module):
    def __init__(self, words: int, width: int, layers: int, fused: bool) -> None:
        super().__init__()
        self.heads = max(1, width // 64)
        self.words = nn.Embedding(words, width)
        self.near = nn.ModuleList(nn.Embedding(64, self.heads) for _ in range(2))
        self.reading = nn.ModuleList(T5Layer(width, self.heads, fused, False) for _ in range(layers))
        self.writing = nn.ModuleList(T5Layer(width, self.heads, fused, True) for _ in range(layers))
        self.norms = nn.ModuleList(RmsNorm(width) for _ in range(2))
        nn.init.normal_(self.words.weight, std=0.05)

    def bias(self, near: nn.Module, length: int, causal: bool) -> Tensor:
        """[1, heads, length, length]: by how far apart two places are."""
        at = torch.arange(length, device=self.words.weight.device)
        apart = (at[None] - at[:, None]).clamp(-32, 31) + 32
        bias = near(apart).permute(2, 0, 1)[None]
        return bias.masked_fill(at[None] > at[:, None], -1e9) if causal else bias

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden, bias = self.words(source), self.bias(self.near[0], source.shape[1], False)
        for layer in self.reading:
            hidden = layer(hidden, bias, None)
        memory, hidden = self.norms[0](hidden), self.words(target)
        bias = self.bias(self.near[1], target.shape[1], True)
        for layer in self.writing:
            hidden = layer(hidden, bias, memory)
        return F.linear(self.norms[1](hidden), self.words.weight)


def t5_finetuning(context: Context) -> Step:
    """A T5-like encoder and decoder fine-tuned in fp32, attention written out."""
    size = context.machine.size
    words, width = size(16000, 100), size(512, 16)
    model = context.place(lambda: T5(words, width, size(2, 1), "fused_attention" in context))
    context.compile([*model.reading, *model.writing])
    device = context.machine.device
    source = torch.arange(context.items(16, 2) * size(384, 16), device=device).mul(7919).remainder(words)
    source = source.view(context.items(16, 2), -1)
    target = source[:, : size(128, 8)] * 3 % words
    loss_of = lambda: F.cross_entropy(model(source, target)[:, :-1].float().flatten(0, 1), target[:, 1:].flatten())  # noqa: E731
    return trained(context, loss_of, context.adamw(model))


class Visits(Dataset[tuple[Tensor, ...]]):
    """Batches of what visitors did: names hashed to rows of tables and numbers put on a scale, on the host."""

    def __init__(self, tables: int, rows: int, batch: int) -> None:
        self.tables, self.rows, self.batch = tables, rows, batch
        self.names = torch.arange(batch * tables).view(batch, tables)
        self.numbers = torch.rand(batch, 13, generator=torch.Generator().manual_seed(0)) * 1000
        self.edges = torch.linspace(0, 7, 200)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> tuple[Tensor, ...]:
        mixed = self.names + at % 64
        for _ in range(12):
            mixed = (mixed * 1103515245 + 12345) & 0x7FFFFFFF
            mixed = mixed ^ (mixed >> 7)
        numbers = torch.log1p(self.numbers.roll(at % 64, 0))
        scaled = torch.bucketize(numbers, self.edges).float() / 200
        return mixed % self.rows, scaled, (mixed[:, 0] % 3 == 0).float()


class Recommender(nn.Module):
    """Tables looked up one by one or, as a change, as one; two towers; products of all pairs of vectors."""

    def __init__(self, tables: int, rows: int, width: int, together: bool) -> None:
        super().__init__()
        self.rows, self.together = rows, together
        each = [torch.randn(rows, width) * 0.05 for _ in range(tables)]
        wanted = [torch.cat(each)] if together else each
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(weight, freeze=False) for weight in wanted)
        self.register_buffer("first", torch.arange(tables) * rows)
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        pairs = tables * (tables + 1) // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, names: Tensor, numbers: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        if self.together:
            vectors = self.tables[0](names + self.first)
        else:
            vectors = torch.stack([table(names[:, at]) for at, table in enumerate(self.tables)], 1)
        vectors = torch.cat([dense[:, None], vectors], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, products], 1))[:, 0]


def recommender_training(context: Context) -> Step:
    """A recommender with 12 tables; features are hashed by the training process, AdamW goes table by table."""
    size = context.machine.size
    tables, rows, together = size(12, 3), size(40000, 50), "batch_small_calls" in context
    model = context.place(lambda: Recommender(tables, rows, size(32, 8), together))
    batches = loaded(context, Visits(tables, rows, size(4096, 16)), None)

    def loss_of() -> Tensor:
        names, numbers, clicked = next(batches)
        return F.binary_cross_entropy_with_logits(model(names, numbers).float(), clicked)

    return trained(context, loss_of, context.adamw(model, loop=True))


class MessageLayer(nn.Module):
    """Messages along edges from both ends, added up at their targets, and an update of the nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        messages = self.message(torch.cat([nodes[source], nodes[target]], 1))
        gathered = torch.zeros_like(nodes).index_add(0, target, messages)
        return self.norm(nodes + self.update(torch.cat([nodes, gathered], 1)))


class GraphNetwork(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(16, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(MessageLayer(width) for _ in range(layers))

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        nodes = self.into(features)
        for layer in self.layers:
            nodes = layer(nodes, edges)
        return self.out(nodes)[:, 0]


def graph_training(context: Context) -> Step:
    """A graph network in fp32 on graphs sent from pageable memory; every step asks whether the loss is a number."""
    size, machine = context.machine.size, context.machine
    nodes, count = size(12000, 50), size(120000, 200)
    model = context.place(lambda: GraphNetwork(size(128, 16), size(3, 2)))
    context.compile(model.layers)
    graphs = []
    for at in range(3):
        ends = torch.arange(2 * count).mul(2654435761 + at).remainder(1 << 31).remainder(nodes).view(2, count)
        graphs.append((context.normal(nodes, 16, seed=at).cpu(), ends))
    if "pin_memory" in context:
        graphs = [(machine.pinned(features), machine.pinned(ends)) for features, ends in graphs]
    passed = 0

    def loss_of() -> Tensor:
        nonlocal passed
        features, ends = (part.to(machine.device, non_blocking="pin_memory" in context) for part in graphs[passed % 3])
        passed += 1
        loss = F.mse_loss(model(features, ends), features.sum(1))
        if "remove_sync" not in context and bool(torch.isnan(loss)):
            raise ValueError("the loss is not a number")
        return loss

    return trained(context, loss_of, context.adamw(model))


class DitBlock(nn.Module):
    """A transformer layer whose norms are scaled and shifted by the time and the label."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.attention = Attention(width, heads, fused=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulate = nn.Linear(width, 6 * width)

    def forward(self, hidden: Tensor, given: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulate(F.silu(given))[:, None].chunk(6, dim=2)
        hidden = hidden + gate1 * self.attention(self.norm1(hidden) * (1 + scale1) + shift1)
        mixed = self.down(F.gelu(self.up(self.norm2(hidden) * (1 + scale2) + shift2), approximate="tanh"))
        return hidden + gate2 * mixed


class Dit(nn.Module):
    """A diffusion transformer on latents [batch, places, 16]."""

    def __init__(self, places: int, width: int, layers: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(16, width), nn.Linear(width, 16)
        self.places, self.labels = nn.Parameter(torch.randn(places, width) * 0.02), nn.Embedding(11, width)
        self.blocks = nn.ModuleList(DitBlock(width, max(1, width // 64)) for _ in range(layers))
        self.times = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("waves", torch.exp(-9 * torch.arange(width // 2) / (width // 2)))

    def forward(self, latents: Tensor, time: Tensor, label: Tensor) -> Tensor:
        angles = time * self.waves
        given = self.times(torch.cat([angles.cos(), angles.sin()])) + self.labels(label)
        hidden = self.into(latents) + self.places
        for block in self.blocks:
            hidden = block(hidden, given)
        return self.out(self.norm(hidden))


def dit_sampling(context: Context) -> Step:
    """A diffusion transformer that samples with guidance: one call with the label and one without, in every step."""
    size = context.machine.size
    places, batch, count = size(256, 16), context.items(4, 2), 20
    model = context.place(lambda: Dit(places, size(512, 32), size(4, 2))).eval().requires_grad_(False)
    context.compile(model.blocks)
    noise = context.normal(batch, places, 16)
    latents, times = noise.clone(), torch.linspace(1000, 1, count, device=noise.device)
    label, none = torch.arange(batch, device=noise.device) % 10, torch.full((batch,), 10, device=noise.device)
    time, both = times[0].clone(), torch.cat([label, none])
    taken = 0

    @torch.no_grad()
    def denoise() -> None:
        with context.autocast():
            if "batch_small_calls" in context:
                wanted, free = model(torch.cat([latents, latents]), time, both).float().chunk(2)
            else:
                wanted, free = model(latents, time, label).float(), model(latents, time, none).float()
        guided = free + 4 * (wanted - free)
        latents.mul_(0.98).sub_(guided, alpha=0.05)

    denoised = graphed(context, denoise)

    def step() -> Tensor:
        nonlocal taken
        if taken % count == 0:
            latents.copy_(noise)
        time.copy_(times[taken % count])
        denoised()
        taken += 1
        return latents.square().mean()

    return step
