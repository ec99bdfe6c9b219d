"""Still more programs on words, clicks and episodes: captions, a model of clicks, a BERT, a policy."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.program import Step
from benchmarks.ladders.parts import Context, follow, graphed, loaded, trained, until_ended
from benchmarks.ladders.sequences import CausalLayer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset


class Gru(nn.Module):
    """A GRU's cell with a norm, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.given, self.kept = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, given: Tensor, kept: Tensor) -> Tensor:
        fresh, keep, new = self.given(given).chunk(3, 1)
        fresh_of_kept, keep_of_kept, new_of_kept = self.kept(kept).chunk(3, 1)
        keep = torch.sigmoid(keep + keep_of_kept)
        new = torch.tanh(new + torch.sigmoid(fresh + fresh_of_kept) * new_of_kept)
        return self.norm(keep * kept + (1 - keep) * new)


class Look(nn.Module):
    """Which regions of a picture the last word's state asks for, summed by how much it does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ask, self.weigh, self.both = nn.Linear(width, width), nn.Linear(width, 1), nn.Linear(2 * width, width)

    def forward(self, word: Tensor, state: Tensor, regions: Tensor, keys: Tensor) -> Tensor:
        weights = self.weigh(torch.tanh(keys + self.ask(state)[:, None])).softmax(1)
        return torch.relu(self.both(torch.cat([word, (weights * regions).sum(1)], 1)))


class Captions(nn.Module):
    """Regions of a picture to words, one after another: attention to the regions and two cells."""

    def __init__(self, into: int, width: int, words: int) -> None:
        super().__init__()
        self.regions, self.keys = nn.Linear(into, width), nn.Linear(width, width)
        self.words, self.out = nn.Embedding(words, width), nn.Linear(width, words)
        self.look, self.cells = Look(width), nn.ModuleList(Gru(width) for _ in range(2))

    def seen(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        regions = torch.relu(self.regions(picture))
        return regions, self.keys(regions)


def caption_decoding(context: Context) -> Step:
    """Greedy captions, word by word; after each the host asks whether all captions have come to their end."""
    size, device = context.machine.size, context.machine.device
    batch, into, width, words = context.items(24, 2), size(1024, 16), size(768, 16), size(6000, 60)
    count, end = size(20, 3), 0
    model = context.place(lambda: Captions(into, width, words)).eval().requires_grad_(False)
    context.compile([model.look, *model.cells])
    picture = context.normal(batch, size(49, 4), into)
    kept = torch.bfloat16 if "bf16" in context else torch.float32
    regions, keys = (torch.zeros(batch, size(49, 4), width, device=device, dtype=kept) for _ in range(2))
    state = [torch.zeros(batch, width, device=device) for _ in model.cells]
    word, score = torch.ones(batch, dtype=torch.long, device=device), torch.zeros(batch, device=device)
    ended = torch.zeros(batch, dtype=torch.bool, device=device)

    @torch.no_grad()
    def say() -> None:
        with context.autocast():
            hidden = model.look(model.words(word), state[-1], regions, keys)
            for cell, kept in zip(model.cells, state, strict=True):
                hidden = cell(hidden, kept)
                kept.copy_(hidden)
            said = model.out(hidden).float()
        said[:, end].fill_(float("-inf"))  # a caption has a least length
        likely, best = said.log_softmax(-1).max(-1)
        score.add_(likely.masked_fill(ended, 0.0))
        word.copy_(best.masked_fill(ended, end))
        ended.logical_or_(word == end)

    says = graphed(context, say)

    @torch.no_grad()
    def step() -> Tensor:
        with context.autocast():
            for place, part in zip((regions, keys), model.seen(picture), strict=True):
                place.copy_(part)
        for part in (*state, score, ended):
            part.zero_()
        word.fill_(1)
        until_ended(context, says, ended, count)
        return score.mean()

    return step


class Lines(Dataset[tuple[Tensor, ...]]):
    """Batches of lines as a log has them: a click or none, numbers, names in hexadecimal; parsed when asked for."""

    def __init__(self, tables: int, rows: int, batch: int) -> None:
        self.rows, self.batch, self.lines = rows, batch, []
        for at in range(4 * batch):
            numbers = [str(at * (place + 3) % 997) for place in range(13)]
            names = [f"{(at * 2654435761 + place * 40503 * at) % (1 << 32):08x}" for place in range(tables)]
            self.lines.append("\t".join([str(int(at % 7 < 2)), *numbers, *names]))

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> tuple[Tensor, ...]:
        clicks, numbers, names = [], [], []
        for line in self.lines[at % 4 * self.batch : (at % 4 + 1) * self.batch]:
            fields = line.split("\t")
            clicks.append(float(fields[0]))
            numbers.append([float(field) for field in fields[1:14]])
            names.append([int(field, 16) % self.rows for field in fields[14:]])
        return torch.tensor(names), torch.tensor(numbers).log1p(), torch.tensor(clicks)


class DeepFm(nn.Module):
    """Tables called one by one or, as a change, as one; products of all pairs of vectors as sums, and an MLP."""

    def __init__(self, tables: int, rows: int, width: int, wide: int, together: bool) -> None:
        super().__init__()
        self.together = together
        each = [torch.randn(rows, width) * 0.05 for _ in range(tables)]
        wanted = [torch.cat(each)] if together else each
        self.tables = nn.ModuleList(nn.Embedding.from_pretrained(weight, freeze=False) for weight in wanted)
        self.register_buffer("first", torch.arange(tables) * rows)
        layers = [nn.Linear(into, wide) for into in (tables * width + 13, wide, wide)]
        self.deep = nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())), nn.Linear(wide, 1))
        self.wide = nn.Linear(13, 1)

    def forward(self, names: Tensor, numbers: Tensor) -> Tensor:
        if self.together:
            vectors = self.tables[0](names + self.first)
        else:
            vectors = torch.stack([table(names[:, at]) for at, table in enumerate(self.tables)], 1)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return pairs + self.wide(numbers)[:, 0] + self.deep(torch.cat([vectors.flatten(1), numbers], 1))[:, 0]


def click_training(context: Context) -> Step:
    """A DeepFM with 26 tables on lines that the training process parses; Adam goes one parameter at a time."""
    size = context.machine.size
    tables, rows, together = size(26, 3), size(20000, 50), "batch_small_calls" in context
    model = context.place(lambda: DeepFm(tables, rows, size(16, 4), size(400, 8), together))
    batches = loaded(context, Lines(tables, rows, context.items(2048, 16)), None)
    how = {"fused": True} if "fused_optimizer" in context else {"foreach": False}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, **how)

    def loss_of() -> Tensor:
        names, numbers, clicked = next(batches)
        return F.binary_cross_entropy_with_logits(model(names, numbers), clicked)

    return trained(context, loss_of, optimizer)


class BertLayer(CausalLayer):
    """Attention to all words that are there, and an MLP, each followed by its norm."""

    def forward(self, hidden: Tensor, absent: Tensor) -> Tensor:
        parts = self.qkv(hidden).view(*hidden.shape[:2], 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=~absent)
        else:
            mixed = self.attended(query, key, value, absent)
        hidden = self.norm1(hidden + self.out(mixed.transpose(1, 2).flatten(2)))
        return self.norm2(hidden + self.down(F.gelu(self.up(hidden))))


class Bert(nn.Module):
    """Words and places through layers, which may be run twice, to the class of a text."""

    def __init__(self, words: int, length: int, width: int, layers: int, fused: bool, again: bool) -> None:
        super().__init__()
        self.again = again
        self.words, self.places, self.norm = (
            nn.Embedding(words, width),
            nn.Embedding(length, width),
            nn.LayerNorm(width),
        )
        self.layers = nn.ModuleList(BertLayer(width, max(1, width // 64), fused) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 5))

    def forward(self, text: Tensor, absent: Tensor) -> Tensor:
        hidden = self.norm(self.words(text) + self.places.weight)
        for layer in self.layers:
            hidden = checkpoint(layer, hidden, absent, use_reentrant=False) if self.again else layer(hidden, absent)
        return self.head(hidden[:, 0])


def bert_finetuning(context: Context) -> Step:
    """Twelve small layers fine-tuned in fp32 on texts of several lengths, and run again in the backward pass; AdamW
    goes one parameter at a time."""
    size, device = context.machine.size, context.machine.device
    words, length, width, batch = size(12000, 100), size(256, 16), size(384, 16), context.items(20, 2)
    fused, again = "fused_attention" in context, "no_recomputation" not in context
    model = context.place(lambda: Bert(words, length, width, size(12, 2), fused, again))
    text = torch.arange(batch * length, device=device).mul(7919).remainder(words).view(batch, -1)
    lengths = length - torch.arange(batch, device=device) * 5 % (length // 2)
    absent = (torch.arange(length, device=device) >= lengths[:, None])[:, None, None]
    label = text[:, 0] % 5
    return trained(
        context, lambda: F.cross_entropy(model(text, absent).float(), label), context.adamw(model, loop=True)
    )


class Judge(nn.Module):
    """An MLP with norms: what is to be done in a state, or what a state is worth."""

    def __init__(self, into: int, width: int, out: int) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(into, width), nn.Linear(width, width), nn.Linear(width, out)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, state: Tensor) -> Tensor:
        return self.third(F.elu(self.norm2(self.second(F.elu(self.norm1(self.first(state)))))))


def returns_of(rewards: Tensor, values: Tensor) -> Tensor:
    """What each step of an episode [steps, episodes] is worth by what came after it, one step at a time."""
    found, later = [], values[-1]
    for reward, value in zip(reversed(rewards.unbind(0)), reversed(values[1:].unbind(0)), strict=True):
        later = reward + 0.99 * (0.05 * value + 0.95 * later)
        found.append(later)
    return torch.stack(found[::-1])


def restored(values: Iterable[Tensor], kept: Iterable[Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Weights as they were `kept`, and an optimizer that has seen nothing: what warming up a graph has learnt."""
    with torch.no_grad():
        for value, was in zip(values, kept, strict=True):
            value.copy_(was)
        for state in optimizer.state.values():
            for part in state.values():
                part.zero_()


def policy_training(context: Context) -> Step:
    """An actor and a critic on short episodes, four updates a step; gradients are clipped, a slow copy of the critic
    follows and Adam goes, all one parameter at a time."""
    size, cuda, listed = context.machine.size, context.machine.cuda, "list_operations" in context
    states, actions, width, steps = size(48, 4), size(12, 2), size(256, 8), size(16, 3)
    actor, critic = (context.place(lambda out=out: Judge(states, width, out)) for out in (actions, 1))
    slow = copy.deepcopy(critic).requires_grad_(False)
    context.compile([actor, critic, slow])
    every, judged, followed = (
        [*actor.parameters(), *critic.parameters()],
        list(critic.parameters()),
        [*slow.parameters()],
    )
    how = {"fused": True} if "fused_optimizer" in context else {"foreach": False}
    optimizer = torch.optim.Adam(every, lr=3e-4, capturable=cuda and "cuda_graph" in context, **how)
    seen = context.normal(steps + 1, context.items(1024, 4), states)
    done = context.normal(steps, seen.shape[1], actions, seed=1)
    rewards, loss = context.normal(steps, seen.shape[1], seed=2), torch.zeros((), device=seen.device)

    def update() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            wanted = returns_of(rewards, slow(seen)[..., 0])
        apart = wanted - critic(seen[:-1])[..., 0]
        likely = -(done - actor(seen[:-1])).square().mean(2)
        both = apart.square().mean() - (likely * apart.detach()).mean()
        both.backward()
        nn.utils.clip_grad_norm_(every, 1.0, foreach=listed)
        optimizer.step()
        follow(context, followed, judged, 0.01)
        loss.copy_(both.detach())

    before = [value.detach().clone() for value in (*every, *followed)]
    updates = graphed(context, update)
    restored([*every, *followed], before, optimizer)
    batches = [(seen * scale, done, rewards * scale) for scale in (1.0, 0.9, 1.1, 0.8)]

    def step() -> Tensor:
        for batch in batches:
            for place, part in zip((seen, done, rewards), batch, strict=True):
                place.copy_(part)
            updates()
        return loss.clone()

    return step
