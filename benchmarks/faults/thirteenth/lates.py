"""A rank comes late: two at once by different causes, by longer texts, by scoring masks that the other waits for."""

import re
from collections.abc import Callable, Sequence

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Block, adamw, place
from benchmarks.faults.program import Program, Step
from benchmarks.faults.third_models import replicated
from torch import Tensor, nn

RATE = 1e-4


class Towers(nn.Module):
    """One stack of blocks for patches of pictures, one for words; what leaves each is its mean, of length one."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.pictures, self.words = (
            nn.Sequential(*(Block(width, width // 64 or 1, F.scaled_dot_product_attention) for _ in range(depth)))
            for _ in range(2)
        )
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, patches: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        found = self.pictures(patches).mean(1), self.words(words).mean(1)
        return F.normalize(found[0].float(), dim=-1), F.normalize(found[1].float(), dim=-1), self.scale.float().exp()


def of_all_ranks(machine: Machine, features: Tensor) -> Tensor:
    """The features of all ranks, of which this rank's own learn."""
    everyone = features.new_empty(machine.ranks * len(features), features.shape[1])
    dist.all_gather_into_tensor(everyone, features.detach().contiguous())
    parts = list(everyone.chunk(machine.ranks))
    parts[machine.rank] = features
    return torch.cat(parts)


def captions_cleaned(count: int) -> Callable[[], int]:
    """Clean so many captions of the web and look their words up."""
    captions = [f"<b>Photo {number}</b>: A dog, running &amp; jumping (no. {number % 97})!" for number in range(count)]
    tags, signs, known = re.compile(r"<[^>]+>"), re.compile(r"[^a-z0-9 ]+"), dict[str, int]()

    def clean() -> int:
        total = 0
        for caption in captions:
            text = signs.sub(" ", tags.sub(" ", caption).replace("&amp;", "&").lower())
            total += sum(known.setdefault(word, len(known)) for word in text.split())
        return total

    return clean


def crops_cut(count: int, edge: int) -> Callable[[], numpy.ndarray]:
    """Cut, mirror and scale crops of so many pictures."""
    pictures = numpy.random.default_rng(3).integers(0, 256, (count, edge + 32, edge + 32, 3), dtype=numpy.uint8)

    def cut() -> numpy.ndarray:
        crops = [one[at % 32 : at % 32 + edge, at % 17 : at % 17 + edge] for at, one in enumerate(pictures)]
        return numpy.stack([(one[:, ::-1].astype(numpy.float32) / 255 - 0.45) / 0.22 for one in crops])

    return cut


def captions_cleaned_crops_cut(_: str, machine: Machine) -> Program:
    """Rank 0 cleans captions while rank 1 cuts crops, both longer than a step of two towers; fixed, neither does."""
    width, pairs = machine.size(768, 32), machine.size(64, 2)
    patches = machine.random(pairs, machine.size(196), width, seed=machine.rank)
    words = machine.random(pairs, machine.size(64), width, seed=10 + machine.rank)
    labels = torch.arange(pairs, device=machine.device) + machine.rank * pairs
    clean, cut = captions_cleaned(machine.size(8000, 10)), crops_cut(machine.size(60, 2), machine.size(224))

    def training(prepare: Callable[[], object]) -> Step:
        towers = replicated(place(machine, lambda: Towers(width, machine.size(8, 1))))
        optimizer = adamw(towers.parameters(), lr=RATE)

        def step() -> Tensor:
            prepare()
            seen, read, scale = towers(patches, words)
            of_pictures = scale * seen @ of_all_ranks(machine, read).T
            of_words = scale * read @ of_all_ranks(machine, seen).T
            loss = (F.cross_entropy(of_pictures, labels) + F.cross_entropy(of_words, labels)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    return Program(training(clean if machine.rank == 0 else cut), training(lambda: None), settle=4)


class Reader(nn.Module):
    """A causal language model: embeddings, blocks, logits."""

    def __init__(self, vocabulary: int, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(Block(width, width // 64 or 1) for _ in range(depth)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.blocks(self.embed(words)))


def texts_dealt_by_length(_: str, machine: Machine) -> Program:
    """Each batch's texts are sorted by length and rank 1 gets the longer half; fixed, cut where words are even."""
    vocabulary, width, batches = machine.size(4096, 32), machine.size(1024, 64), 4
    count, longest = machine.size(32, 4), machine.size(2048, 16)
    rng = numpy.random.default_rng(13)
    texts = [
        sorted((rng.integers(1, vocabulary, max(4, int(longest * share**1.5))) for share in rng.random(count)), key=len)
        for _ in range(batches)
    ]

    def padded(mine: Sequence[numpy.ndarray]) -> tuple[Tensor, Tensor]:
        words = torch.zeros(len(mine), max(map(len, mine)), dtype=torch.long)
        for row, text in zip(words, mine, strict=True):
            row[: len(text)] = torch.from_numpy(text)
        return words[:, :-1].to(machine.device), words[:, 1:].to(machine.device)

    def training(deal: Callable[[Sequence[numpy.ndarray]], Sequence[numpy.ndarray]]) -> Step:
        reader = replicated(place(machine, lambda: Reader(vocabulary, width, machine.size(6, 1))))
        optimizer = adamw(reader.parameters(), lr=RATE)
        ready = [padded(deal(batch)) for batch in texts]
        totals = [sum(len(text) - 1 for text in batch) for batch in texts]
        turn = [0]

        def step() -> Tensor:
            (words, following), total = ready[turn[0] % batches], totals[turn[0] % batches]
            turn[0] += 1
            logits = reader(words).flatten(0, 1)
            lost = F.cross_entropy(logits, following.flatten(), ignore_index=0, reduction="sum")
            loss = lost.float() * machine.ranks / total
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def in_halves(batch: Sequence[numpy.ndarray]) -> Sequence[numpy.ndarray]:
        return batch[count // 2 :] if machine.rank else batch[: count // 2]

    def evenly(batch: Sequence[numpy.ndarray]) -> Sequence[numpy.ndarray]:
        sides = [(cut * len(batch[cut - 1]), (count - cut) * len(batch[-1])) for cut in range(1, count)]
        cut = 1 + min(range(count - 1), key=lambda at: max(sides[at]))
        return batch[cut:] if machine.rank else batch[:cut]

    return Program(training(in_halves), training(evenly), tolerance=2e-2, period=batches, settle=batches)


class Unet(nn.Module):
    """Convolutions down to a quarter of the edge and up again, with what was seen on the way down."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()

        def twice(given: int, made: int) -> nn.Sequential:
            parts = [nn.Conv2d(given, made, 3, padding=1), nn.ReLU(), nn.Conv2d(made, made, 3, padding=1), nn.ReLU()]
            return nn.Sequential(*parts)

        wide = [channels, 2 * channels, 4 * channels]
        self.down = nn.ModuleList(twice(given, made) for given, made in zip([4, *wide], wide, strict=False))
        self.up = nn.ModuleList(
            twice(given, made) for given, made in ((6 * channels, wide[1]), (3 * channels, wide[0]))
        )
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        kept = []
        for level in self.down:
            image = level(F.max_pool2d(kept[-1], 2) if kept else image)
            kept.append(image)
        for level, seen in zip(self.up, reversed(kept[:-1]), strict=True):
            image = level(torch.cat([F.interpolate(image, scale_factor=2), seen], 1))
        return self.head(image)


def masks_scored_by_one_rank(_: str, machine: Machine) -> Program:
    """In each third step rank 0 segments held-out pictures, fetches the masks and scores them in NumPy; fixed, each
    rank segments half of them and counts on its GPU.

    Fixed, the held-out pictures are dealt."""
    edge, images, classes, held = machine.size(256, 8), machine.size(16, 1), machine.size(8, 2), 2
    batch, *held_out = (
        machine.random(images, 4, edge, edge, seed=20 * number + (machine.rank if number == 0 else 0)).contiguous(
            memory_format=torch.channels_last
        )
        for number in range(1 + held)
    )
    target, *held_masks = (
        picture[:, 0].float().mul(3).abs().long().clamp(max=classes - 1) for picture in (batch, *held_out)
    )
    on_the_cpu = [mask.cpu().numpy() for mask in held_masks]

    def scored_in_numpy(net: nn.Module) -> None:
        if machine.rank == 0:
            for picture, mask in zip(held_out, on_the_cpu, strict=True):
                found = net(picture).argmax(1).cpu().numpy()
                for one in range(classes):
                    shared, either = ((found == one) & (mask == one)).sum(), ((found == one) | (mask == one)).sum()
                    scores.append(float(shared) / max(1, int(either)))
            del scores[:-classes]

    def counted_by_each(net: nn.Module) -> None:
        for picture, mask in list(zip(held_out, held_masks, strict=True))[machine.rank :: machine.ranks]:
            pairs = net(picture).argmax(1) * classes + mask
            counts.add_(torch.bincount(pairs.flatten(), minlength=classes * classes))

    scores, counts = list[float](), torch.zeros(classes * classes, dtype=torch.long, device=machine.device)

    def training(evaluate: Callable[[nn.Module], None]) -> Step:
        net = replicated(
            place(machine, lambda: Unet(machine.size(64, 8), classes)).to(memory_format=torch.channels_last)
        )
        optimizer = adamw(net.parameters(), lr=RATE)
        done = [0]

        def step() -> Tensor:
            loss = F.cross_entropy(net(batch).float(), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done[0] += 1
            if done[0] % 3 == 0:
                with torch.no_grad():
                    evaluate(net.module)
            return loss.detach()

        return step

    return Program(training(scored_in_numpy), training(counted_by_each), tolerance=2e-2, period=3, settle=3)
