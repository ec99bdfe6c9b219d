"""Programs on images: a ConvNeXt and an MLP-mixer in training, a DCGAN."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.program import Step
from benchmarks.ladders.parts import Context, follow, followed, loaded, trained
from torch import Tensor, nn
from torch.utils.data import Dataset


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """Pictures in bytes, cropped, turned and normalised on the host when asked for."""

    def __init__(self, side: int, kept: int, count: int) -> None:
        self.side, self.count = side, count
        self.stored = torch.randint(0, 256, (kept, 3, side + 32, side + 32), dtype=torch.uint8)
        self.mean = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
        self.deviation = torch.tensor([0.229, 0.224, 0.225])[:, None, None]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        top, left = at * 7 % 32, at * 13 % 32
        picture = self.stored[at % len(self.stored), :, top : top + self.side, left : left + self.side]
        picture = picture.flip(2) if at % 2 else picture
        return (picture.float() / 255 - self.mean) / self.deviation, torch.tensor(at % 100)


class ConvNextBlock(nn.Module):
    """A depthwise convolution of 7 x 7, a norm over channels, an MLP of 1 x 1 products, a scale, a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.norm(self.depthwise(image).permute(0, 2, 3, 1))
        hidden = self.scale * self.down(F.gelu(self.up(hidden)))
        return image + hidden.permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an image, written out as where channels come first."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, image: Tensor) -> Tensor:
        mean = image.mean(1, keepdim=True)
        spread = (image - mean).pow(2).mean(1, keepdim=True)
        image = (image - mean) / torch.sqrt(spread + 1e-6)
        return self.weight[:, None, None] * image + self.bias[:, None, None]


class ConvNext(nn.Module):
    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, stride=4), ChannelNorm(widths[0])]
        for at, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if at:
                layers += [ChannelNorm(widths[at - 1]), nn.Conv2d(widths[at - 1], width, 2, stride=2)]
            layers += [ConvNextBlock(width) for _ in range(depth)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], 100)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.body(image).mean((2, 3)))


def convnext_training(context: Context) -> Step:
    """A small ConvNeXt trained in fp32 on pictures that the training process itself prepares."""
    size = context.machine.size
    widths, depths = ((96, 192, 384), (1, 2, 2)) if not context.machine.tiny else ((8, 16, 24), (1, 1, 1))
    model = context.place(lambda: ConvNext(widths, depths))
    model = context.laid_out(model)
    torch.manual_seed(1)
    batches = loaded(context, Pictures(size(112, 32), size(256, 8), 1 << 20), size(48, 4))
    optimizer = context.adamw(model)

    def loss_of() -> Tensor:
        image, target = next(batches)
        image = context.laid_out(image)
        return F.cross_entropy(model(image), target)

    return trained(context, loss_of, optimizer)


class MixerBlock(nn.Module):
    """Two MLPs: one across places, one across channels."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across1, self.across2 = nn.Linear(places, width // 2), nn.Linear(width // 2, places)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        mixed = self.across2(F.gelu(self.across1(self.norm1(hidden).transpose(1, 2)))).transpose(1, 2)
        hidden = hidden + mixed
        return hidden + self.down(F.gelu(self.up(self.norm2(hidden))))


class Mixer(nn.Module):
    def __init__(self, side: int, width: int, layers: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 16, stride=16)
        self.blocks = nn.ModuleList(MixerBlock((side // 16) ** 2, width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.stem(image).flatten(2).transpose(1, 2)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(self.norm(hidden).mean(1))


def mixer_training(context: Context) -> Step:
    """An MLP-mixer in fp32, with a moving average of the weights kept one parameter at a time."""
    size = context.machine.size
    model = context.place(lambda: Mixer(size(224, 32), size(384, 16), size(4, 2)))
    average = copy.deepcopy(model).requires_grad_(False)
    context.compile(model.blocks)
    batch = context.items(64, 2)
    image, target = context.normal(batch, 3, size(224, 32), size(224, 32)), torch.arange(batch) % 1000
    target = target.to(context.machine.device)
    optimizer = context.adamw(model)
    train = trained(context, lambda: F.cross_entropy(model(image), target, label_smoothing=0.1), optimizer)
    own, mean = list(model.parameters()), list(average.parameters())

    return followed(train, lambda: follow(context, mean, own, 1e-3))


def generator(width: int, steps: int) -> nn.Sequential:
    """From a vector to a picture, twice as wide in each step."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(128, width << steps, 4, 1, 0, bias=False)]
    for at in reversed(range(steps)):
        layers += [nn.BatchNorm2d(width << (at + 1)), nn.ReLU(True)]
        layers += [nn.ConvTranspose2d(width << (at + 1), width << at, 4, 2, 1, bias=False)]
    layers += [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh()]
    return nn.Sequential(*layers)


def discriminator(width: int, steps: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for at in range(steps):
        layers += [nn.Conv2d(width << at, width << (at + 1), 4, 2, 1, bias=False)]
        layers += [nn.BatchNorm2d(width << (at + 1)), nn.LeakyReLU(0.2, True)]
    layers += [nn.Conv2d(width << steps, 1, 4, 1, 0, bias=False), nn.Flatten(0)]
    return nn.Sequential(*layers)


def dcgan_training(context: Context) -> Step:
    """A DCGAN on small pictures: discriminator, then generator; three losses are read in every step."""
    size = context.machine.size
    width, steps, batch = size(64, 4), 3, context.items(64, 4)
    making, judging = (context.place(lambda make=make: make(width, steps)) for make in (generator, discriminator))
    making, judging = context.laid_out(making), context.laid_out(judging)
    noise, real = context.normal(batch, 128, 1, 1), context.normal(batch, 3, 64, 64, seed=1).tanh()
    real = context.laid_out(real)
    once = {"lr": 2e-4, "betas": (0.5, 0.999), "fused": True if "fused_optimizer" in context else None}
    for_making = torch.optim.Adam(making.parameters(), **once)
    for_judging = torch.optim.Adam(judging.parameters(), **once)
    yes, no = torch.ones(batch, device=noise.device), torch.zeros(batch, device=noise.device)
    seen: dict[str, float] = {}

    def read(name: str, loss: Tensor) -> None:
        if "remove_sync" not in context:
            seen[name] = loss.item()

    def judged(pictures: Tensor, wanted: Tensor, name: str) -> Tensor:
        with context.autocast():
            said = judging(pictures)
        loss = F.binary_cross_entropy_with_logits(said.float(), wanted)
        loss.backward()
        read(name, loss.detach())
        return loss.detach()

    def step() -> Tensor:
        judging.zero_grad(set_to_none=True)
        total = judged(real, yes, "real")
        with context.autocast():
            fake = making(noise)
        total = total + judged(fake.detach(), no, "fake")
        for_judging.step()
        making.zero_grad(set_to_none=True)
        total = total + judged(fake, yes, "made")
        for_making.step()
        return total

    return step
