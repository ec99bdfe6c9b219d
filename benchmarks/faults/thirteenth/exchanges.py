"""Exchanges that cost more than they need: read in every step, pickled, awaited, searched for, in pieces, in fp32."""

from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import adamw, place
from benchmarks.faults.program import Program, Step
from benchmarks.faults.third_models import replicated
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

RATE, OF_SGD = 1e-3, 1e-2


class Mixer(nn.Module):
    """Blocks that mix patches, then channels; the mean of the patches is classified."""

    def __init__(self, patches: int, width: int, depth: int, classes: int) -> None:
        super().__init__()

        def mixing(size: int, hidden: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, size))

        self.over_patches = nn.ModuleList(mixing(patches, 2 * patches) for _ in range(depth))
        self.over_channels = nn.ModuleList(mixing(width, 2 * width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.head = nn.Linear(width, classes)

    def forward(self, hidden: Tensor) -> Tensor:
        for at, (patches, channels) in enumerate(zip(self.over_patches, self.over_channels, strict=True)):
            hidden = hidden + patches(self.norms[2 * at](hidden).transpose(1, 2)).transpose(1, 2)
            hidden = hidden + channels(self.norms[2 * at + 1](hidden))
        return self.head(hidden.mean(1))


class Meter:
    """The mean of what was told so far, as scripts that classify pictures keep it."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, value: float, count: int) -> None:
        self.total += value * count
        self.count += count


def accuracies(logits: Tensor, labels: Tensor) -> list[Tensor]:
    """Shares of pictures whose label is the first guess, and among the first five."""
    right = logits.topk(5, dim=1).indices == labels[:, None]
    return [right[:, :guesses].any(1).float().mean() for guesses in (1, 5)]


def accuracy_summed_each_step(_: str, machine: Machine) -> Program:
    """Loss and two accuracies are summed over the ranks and read after every step; fixed, added up on the device."""
    images, patches = machine.size(32, 4), machine.size(196)
    width, classes = machine.size(512, 16), machine.size(1000, 10)
    pictures = machine.random(images, patches, width, seed=machine.rank)
    labels = torch.arange(images, device=machine.device) * 31 % classes
    meters, added = [Meter() for _ in range(3)], torch.zeros(3, device=machine.device)

    def of_all(value: Tensor) -> Tensor:
        value = value.detach().clone()
        dist.all_reduce(value)
        return value / machine.ranks

    def read(figures: list[Tensor]) -> None:
        for meter, figure in zip(meters, figures, strict=True):
            meter.update(of_all(figure).item(), images)

    def add(figures: list[Tensor]) -> None:
        added.add_(torch.stack([figure.detach() for figure in figures]))

    def training(note: Callable[[list[Tensor]], None]) -> Step:
        mixer = replicated(place(machine, lambda: Mixer(patches, width, machine.size(32, 2), classes)))
        optimizer = torch.optim.SGD(mixer.parameters(), lr=OF_SGD, momentum=0.9, fused=True)

        def step() -> Tensor:
            logits = mixer(pictures)
            loss = F.cross_entropy(logits.float(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            note([loss, *accuracies(logits.detach(), labels)])
            return loss.detach()

        return step

    return Program(training(read), training(add))


class Tagger(nn.Module):
    """Convolutions over the frames of a spectrum, halved thrice; tags of the whole clip."""

    def __init__(self, bands: int, channels: int, tags: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for number, given in enumerate([bands, channels, channels, channels]):
            parts += [nn.Conv1d(given, channels, 5, stride=2 if number else 1, padding=2), nn.ReLU()]
        self.layers, self.head = nn.Sequential(*parts), nn.Linear(channels, tags)

    def forward(self, clips: Tensor) -> Tensor:
        return self.head(self.layers(clips).mean(-1))


def tags_gathered_as_objects(_: str, machine: Machine) -> Program:
    """The five likeliest tags of every clip are gathered from all ranks as Python objects, each step; fixed, gathered
    as a tensor that stays on the device.

    Fixed, as a tensor."""
    clips, bands, frames = machine.size(512, 4), machine.size(128), machine.size(512, 16)
    channels, tags = machine.size(512, 16), machine.size(527, 10)
    spectra = machine.random(clips, bands, frames, seed=machine.rank)
    target = (machine.random(clips, tags, seed=5 + machine.rank) > 1.5).float()
    names = [f"clip{machine.rank}_{number:05d}.wav" for number in range(clips)]
    seen, everyone = dict[str, list[tuple[int, float]]](), torch.zeros(machine.ranks * clips, 5, device=machine.device)

    def as_objects(logits: Tensor) -> None:
        scores, found = logits.float().sigmoid().topk(5)
        mine = {
            name: list(zip(row, score, strict=True))
            for name, row, score in zip(names, found.tolist(), scores.tolist(), strict=True)
        }
        gathered: list[dict[str, list[tuple[int, float]]]] = [{} for _ in range(machine.ranks)]
        dist.all_gather_object(gathered, mine)
        for part in gathered:
            seen.update(part)

    def as_a_tensor(logits: Tensor) -> None:
        dist.all_gather_into_tensor(everyone, logits.float().sigmoid().topk(5).values.contiguous())

    def training(gather: Callable[[Tensor], None]) -> Step:
        tagger = replicated(place(machine, lambda: Tagger(bands, channels, tags)))
        optimizer = adamw(tagger.parameters(), lr=RATE)

        def step() -> Tensor:
            logits = tagger(spectra)
            loss = F.binary_cross_entropy_with_logits(logits.float(), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            gather(logits.detach())
            return loss.detach()

        return step

    return Program(training(as_objects), training(as_a_tensor))


class Residual(nn.Module):
    """A stem, residual convolutions over small pictures, and a way out."""

    def __init__(self, given: int, channels: int, depth: int, made: int) -> None:
        super().__init__()
        self.stem, self.out = nn.Conv2d(given, channels, 3, padding=1), nn.Conv2d(channels, made, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2 * depth))

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.stem(hidden)
        for first, second in zip(self.layers[::2], self.layers[1::2], strict=True):
            hidden = hidden + second(F.leaky_relu(first(F.leaky_relu(hidden, 0.2)), 0.2))
        return self.out(hidden)


def barriers_between_phases(_: str, machine: Machine) -> Program:
    """Judge and painter of a GAN learn in turn, and the ranks meet at a barrier after each; fixed, no barrier."""
    images, edge, channels = machine.size(24, 2), machine.size(32), machine.size(64, 8)
    real = machine.random(images, 4, edge, edge, seed=machine.rank)
    noise = machine.random(images, 8, edge, edge, seed=7 + machine.rank)

    def training(meet: Callable[[], object]) -> Step:
        depth = machine.size(16, 1)
        painter = replicated(place(machine, lambda: Residual(8, channels, depth, 4)))
        judge = replicated(place(machine, lambda: Residual(4, channels, depth, 1)))
        painters, judges = (torch.optim.SGD(part.parameters(), lr=OF_SGD, fused=True) for part in (painter, judge))

        def step() -> Tensor:
            with torch.no_grad():
                painted = painter.module(noise)
            scores = judge(torch.cat([real, painted])).float()
            told = F.softplus(-scores[:images]).mean() + F.softplus(scores[images:]).mean()
            judges.zero_grad()
            told.backward()
            judges.step()
            meet()
            judge.requires_grad_(False)
            fooled = F.softplus(-judge.module(painter(noise)).float()).mean()
            judge.requires_grad_(True)
            painters.zero_grad()
            fooled.backward()
            painters.step()
            meet()
            return (told + fooled).detach()

        return step

    return Program(training(dist.barrier), training(lambda: None), tolerance=2e-2)


class Tabular(nn.Module):
    """Residual layers over columns of numbers, one head that is asked and one that is kept for later."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.price, self.auxiliary = nn.Linear(width, 1), nn.Linear(width, 16)

    def forward(self, rows: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            rows = rows + F.silu(layer(norm(rows)))
        return self.price(rows)


def unused_head_looked_for(_: str, machine: Machine) -> Program:
    """DDP looks for unused parameters in every step, for a head that nobody asks; fixed, that head is frozen."""
    rows, width = machine.size(4096), machine.size(512, 16)
    table = machine.random(rows, width, seed=machine.rank)
    prices = machine.random(rows, 1, dtype=torch.float32, seed=3 + machine.rank)

    def training(looked_for: bool) -> Step:
        net = place(machine, lambda: Tabular(width, machine.size(128, 2)))
        net.auxiliary.requires_grad_(looked_for)
        spread = DistributedDataParallel(net, find_unused_parameters=looked_for)
        optimizer = torch.optim.SGD([one for one in net.parameters() if one.requires_grad], lr=OF_SGD, fused=True)

        def step() -> Tensor:
            loss = F.smooth_l1_loss(spread(table).float(), prices)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    return Program(training(looked_for=True), training(looked_for=False))


class Waves(nn.Module):
    """Dilated, gated convolutions over samples of sound, each adding to what came in."""

    def __init__(self, channels: int, depth: int) -> None:
        super().__init__()
        self.gated = nn.ModuleList(
            nn.Conv1d(channels, 2 * channels, 3, padding=2 ** (number % 6), dilation=2 ** (number % 6))
            for number in range(depth)
        )
        self.out = nn.ModuleList(nn.Conv1d(channels, channels, 1) for _ in range(depth))

    def forward(self, sound: Tensor) -> Tensor:
        for gated, out in zip(self.gated, self.out, strict=True):
            sound = sound + out(F.glu(gated(sound), 1))
        return sound


def buckets_of_a_tenth_of_a_megabyte(_: str, machine: Machine) -> Program:
    """DDP of dilated convolutions exchanges in buckets of 0.1 MB; fixed, in those of 25 MB that it comes with."""
    channels, clips, samples = machine.size(256, 8), machine.size(4, 2), machine.size(2048, 64)
    sound = machine.random(clips, channels, samples, seed=machine.rank)

    def training(bucket_mb: float) -> Step:
        waves = place(machine, lambda: Waves(channels, machine.size(60, 2)))
        spread = DistributedDataParallel(waves, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(waves.parameters(), lr=OF_SGD, fused=True)

        def step() -> Tensor:
            loss = F.l1_loss(spread(sound)[..., :-1].float(), sound[..., 1:].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    return Program(training(0.1), training(25), tolerance=2e-2)


class Gated(nn.Module):
    """A layer of a language model without attention: RMS norm, a gate beside a value, and back."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.gate, self.value = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.back = nn.Linear(hidden, width, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        normed = self.norm(rows)
        return rows + self.back(F.silu(self.gate(normed)) * self.value(normed))


def weights_gathered_in_fp32(_: str, machine: Machine) -> Program:
    """FSDP2 gathers weights in fp32 that autocast then rounds; fixed, its policy gathers them in bf16."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    width, hidden, rows = machine.size(4096, 16), machine.size(11008, 32), machine.size(1536)
    batch = machine.random(rows, width, dtype=torch.float32, seed=machine.rank)
    target = machine.random(rows, width, dtype=torch.float32, seed=9)

    def training(policy: MixedPrecisionPolicy) -> Step:
        count = machine.size(4, 2)
        net = place(machine, lambda: nn.Sequential(*(Gated(width, hidden) for _ in range(count))), torch.float32)
        for layer in net:
            fully_shard(layer, mp_policy=policy)
        fully_shard(net, mp_policy=policy)
        optimizer = adamw(net.parameters(), lr=RATE)

        def step() -> Tensor:
            with torch.autocast(machine.device.type, torch.bfloat16):
                loss = F.mse_loss(net(batch).float(), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    rounded = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return Program(training(MixedPrecisionPolicy()), training(rounded), tolerance=5e-2)
