"""More programs on images: a ResNet in training, a U-Net that marks pictures, two towers that match texts."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.program import Step
from benchmarks.ladders.images import Pictures
from benchmarks.ladders.parts import Context, EncoderLayer, graphed, loaded, trained
from torch import Tensor, nn


class Photos(Pictures):
    """Pictures in bytes, cropped and turned on the host when asked for, normalised by the model."""

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        top, left = at * 7 % 32, at * 13 % 32
        picture = self.stored[at % len(self.stored), :, top : top + self.side, left : left + self.side]
        return picture.flip(2) if at % 2 else picture, torch.tensor(at % 100)


def convolution(into: int, out: int, wide: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution without bias and a BatchNorm."""
    return nn.Sequential(nn.Conv2d(into, out, wide, stride, wide // 2, bias=False), nn.BatchNorm2d(out))


class BasicBlock(nn.Module):
    """Two convolutions of 3 x 3 with BatchNorm and ReLU, and a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = convolution(width, width), convolution(width, width)

    def forward(self, image: Tensor) -> Tensor:
        return F.relu(image + self.second(F.relu(self.first(image))))


class ResNet(nn.Module):
    """A stem, and stages of basic blocks, each after a convolution that halves the sides."""

    def __init__(self, widths: tuple[int, ...], depth: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, widths[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.ModuleList()
        body: list[nn.Module] = []
        for at, width in enumerate(widths):
            if at:
                body += [convolution(widths[at - 1], width, stride=2), nn.ReLU()]
            blocks = [BasicBlock(width) for _ in range(depth)]
            self.blocks.extend(blocks)
            body += blocks
        self.body, self.head = nn.Sequential(*body), nn.Linear(widths[-1], 100)
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None])
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225])[:, None, None])

    def forward(self, picture: Tensor) -> Tensor:
        image = (picture.float() / 255 - self.mean) / self.deviation
        return self.head(self.body(self.stem(image)).mean((2, 3)))


def resnet_training(context: Context) -> Step:
    """A small ResNet trained in fp32 on pictures that the training process itself cuts out and turns."""
    size = context.machine.size
    widths = (64, 128, 256) if not context.machine.tiny else (8, 16, 24)
    model = context.place(lambda: ResNet(widths, size(3, 1)))
    model = context.laid_out(model)
    context.compile(model.blocks)
    torch.manual_seed(1)
    batches = loaded(context, Photos(size(192, 32), size(128, 8), 1 << 20), context.items(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def loss_of() -> Tensor:
        picture, target = next(batches)
        picture = context.laid_out(picture)
        return F.cross_entropy(model(picture), target)

    return trained(context, loss_of, optimizer)


class Unet(nn.Module):
    """Pairs of convolutions, each half as wide and high as the one before, and up again beside what went down."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.down = nn.ModuleList(self.pair(*shape) for shape in zip((3, *widths), widths, strict=False))
        ups = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.wider = nn.ModuleList(nn.ConvTranspose2d(into, out, 2, 2) for into, out in ups)
        self.up = nn.ModuleList(self.pair(2 * out, out) for _, out in ups)
        self.head = nn.Conv2d(widths[0], 1, 1)

    @staticmethod
    def pair(into: int, out: int) -> nn.Sequential:
        return nn.Sequential(convolution(into, out), nn.ReLU(), convolution(out, out), nn.ReLU())

    def forward(self, image: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for pair in self.down:
            image = pair(F.max_pool2d(kept[-1], 2) if kept else image)
            kept.append(image)
        kept.pop()
        for wider, pair in zip(self.wider, self.up, strict=True):
            image = pair(torch.cat([kept.pop(), wider(image)], 1))
        return self.head(image)[:, 0]


def unet_segmentation(context: Context) -> Step:
    """A U-Net in fp32 on pictures sent from pageable memory; the Dice loss asks whether anything is marked at all."""
    size, machine = context.machine.size, context.machine
    model = context.place(lambda: Unet((32, 64, 128, 256) if not machine.tiny else (8, 16)))
    model = context.laid_out(model)
    scans = []
    for at in range(3):
        image = context.normal(context.items(8, 2), 3, size(256, 32), size(256, 32), seed=at)
        scans.append((image.cpu(), (F.avg_pool2d(image, 5, 1, 2).sum(1) > 0.2).float().cpu()))
    if "pin_memory" in context:
        scans = [(machine.pinned(image), machine.pinned(marked)) for image, marked in scans]
    passed = 0

    def dice(said: Tensor, marked: Tensor) -> Tensor:
        if "remove_sync" not in context and not bool(marked.any()):
            return said.new_zeros(())
        shares, dims = said.sigmoid(), (1, 2)
        both, all_ = (shares * marked).sum(dims), shares.sum(dims) + marked.sum(dims)
        return (1 - (2 * both + 1) / (all_ + 1)).mean()

    def loss_of() -> Tensor:
        nonlocal passed
        image, marked = (part.to(machine.device, non_blocking="pin_memory" in context) for part in scans[passed % 3])
        passed += 1
        image = context.laid_out(image)
        said = model(image).float()
        return F.binary_cross_entropy_with_logits(said, marked) + dice(said, marked)

    return trained(context, loss_of, context.adamw(model))


class Clip(nn.Module):
    """A tower for pictures and one for words, and how near every picture is to every text."""

    def __init__(self, side: int, words: int, length: int, width: int, layers: int, fused: bool) -> None:
        super().__init__()
        self.stem, self.words = nn.Conv2d(3, width, 16, stride=16), nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn((side // 16) ** 2, width) * 0.02)
        self.spots = nn.Parameter(torch.randn(length, width) * 0.02)
        heads = max(1, width // 64)
        self.seeing = nn.ModuleList(EncoderLayer(width, heads, fused) for _ in range(layers))
        self.reading = nn.ModuleList(EncoderLayer(width, heads, fused) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.project = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, picture: Tensor, text: Tensor) -> Tensor:
        seen = self.stem(picture.float() / 127.5 - 1).flatten(2).transpose(1, 2) + self.places
        for layer in self.seeing:
            seen = layer(seen)
        read = self.words(text) + self.spots
        for layer in self.reading:
            read = layer(read)
        towers = zip((seen, read), self.norms, self.project, strict=True)
        seen, read = (F.normalize(project(norm(tower).mean(1)).float(), dim=-1) for tower, norm, project in towers)
        return 10 * seen @ read.T


def clip_serving(context: Context) -> Step:
    """Pictures and texts scored by two transformers in fp32, attention written out; the host fetches the scores."""
    size, device = context.machine.size, context.machine.device
    side, length, words, batch = size(224, 32), size(64, 8), size(20000, 100), context.items(32, 2)
    fused = "fused_attention" in context
    model = context.place(lambda: Clip(side, words, length, size(512, 16), size(5, 2), fused))
    model.eval().requires_grad_(False)
    context.compile([*model.seeing, *model.reading])
    calls = []
    for at in range(4):
        shades = (context.normal(batch, 3, side, side, seed=at) * 50 + 128).clamp(0, 255).byte().cpu()
        calls.append((shades, torch.arange(batch * length).mul(7919 + at).remainder(words).view(batch, length)))
    picture, text = (part.to(device, copy=True) for part in calls[0])
    served = 0

    @torch.no_grad()
    def score() -> Tensor:
        with context.autocast():
            return model(picture, text).float().softmax(-1)

    scores = graphed(context, score)

    @torch.no_grad()
    def step() -> Tensor:
        nonlocal served
        for place, part in zip((picture, text), calls[served % len(calls)], strict=True):
            place.copy_(part)
        served += 1
        return scores().cpu().square().sum()

    return step
