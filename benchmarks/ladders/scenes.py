"""Still more programs on pictures and points: a MobileNet, clouds of points, an autoencoder, a detector that serves."""

from __future__ import annotations

import copy
import itertools

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.program import Step
from benchmarks.ladders.images import Pictures
from benchmarks.ladders.parts import Context, follow, followed, loaded, trained
from benchmarks.ladders.vision import BasicBlock, convolution
from torch import Tensor, nn


class Jittered(Pictures):
    """The same pictures, whose light and contrast are changed too."""

    def __getitem__(self, at: int) -> tuple[Tensor, Tensor]:
        picture, label = super().__getitem__(at)
        light, contrast = 0.8 + 0.05 * (at % 9), 0.8 + 0.04 * (at % 11)
        picture = (picture * light).clamp(-3, 3)
        mean = picture.mean()
        return (picture - mean) * contrast + mean, label


class Inverted(nn.Module):
    """Wider by 1 x 1, a depthwise 3 x 3, narrower by 1 x 1, each with BatchNorm; a residual where the sides stay."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.wider, self.narrower = convolution(into, 4 * into, 1), convolution(4 * into, out, 1)
        depthwise = nn.Conv2d(4 * into, 4 * into, 3, stride, 1, groups=4 * into, bias=False)
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(4 * into))
        self.same = into == out and stride == 1

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.narrower(F.relu6(self.depthwise(F.relu6(self.wider(image)))))
        return image + hidden if self.same else hidden


def mobilenet(widths: tuple[int, ...], depth: int) -> nn.Sequential:
    """A stem, and stages of inverted residuals, of which the first halves the sides."""
    layers: list[nn.Module] = [convolution(3, widths[0], stride=2), nn.ReLU6()]
    for into, out in itertools.pairwise(widths):
        layers += [Inverted(into, out, 2), *(Inverted(out, out, 1) for _ in range(depth - 1))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100))


def mobilenet_training(context: Context) -> Step:
    """A MobileNet in fp32 on pictures changed by the training process; SGD goes one parameter at a time."""
    size = context.machine.size
    widths = (24, 32, 64, 112, 176) if not context.machine.tiny else (4, 6, 8)
    model = context.laid_out(context.place(lambda: mobilenet(widths, size(3, 2))))
    torch.manual_seed(1)
    batches = loaded(context, Jittered(size(128, 32), size(256, 8), 1 << 20), context.items(96, 4))
    how = {"fused": True} if "fused_optimizer" in context else {"foreach": False}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4, **how)

    def loss_of() -> Tensor:
        image, target = next(batches)
        return F.cross_entropy(model(context.laid_out(image)), target)

    return trained(context, loss_of, optimizer)


class EdgeLayer(nn.Module):
    """What every point hears from its neighbours, the loudest of it; the mean of its cell; a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.of_cell, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, points: Tensor, near: Tensor, cell: Tensor, cells: Tensor) -> Tensor:
        """`points` [all, width], `near` [all, neighbours], the `cell` of each, and how many points `cells` hold."""
        around = points[near]
        own = points[:, None].expand_as(around)
        heard = self.second(F.relu(self.first(torch.cat([own, around - own], 2)))).amax(1)
        sums = torch.zeros(len(cells), points.shape[1], device=points.device).index_add(0, cell, heard)
        return self.norm(points + heard + self.of_cell(sums / cells[:, None])[cell])


class Points(nn.Module):
    """Descriptors of points through layers to a label each."""

    def __init__(self, into: int, width: int, layers: int, neighbours: int) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.into, self.out = nn.Linear(into + 3, width), nn.Linear(width, 13)
        self.layers = nn.ModuleList(EdgeLayer(width) for _ in range(layers))

    def forward(self, places: Tensor, known: Tensor) -> Tensor:
        clouds, count = places.shape[:2]
        with torch.no_grad():
            first = torch.arange(clouds, device=places.device)[:, None]
            near = torch.cdist(places, places).topk(self.neighbours, largest=False).indices
            near = (near + first[:, None] * count).flatten(0, 1)
            x, y, z = ((places.clamp(-1.99, 1.99) + 2) * 2).long().unbind(2)
            cell = (((first * 8 + x) * 8 + y) * 8 + z).flatten()
            ones = torch.ones(len(cell), device=places.device)
            cells = torch.zeros(clouds * 512, device=places.device).index_add(0, cell, ones).clamp(min=1)
        points = self.into(torch.cat([places, known], 2)).flatten(0, 1)
        for layer in self.layers:
            points = layer(points, near, cell, cells)
        return self.out(points)


def pointcloud_training(context: Context) -> Step:
    """Labels of points, in fp32, neighbours sought anew; the host counts which points have a label at all."""
    size, machine = context.machine.size, context.machine
    clouds, count, known = context.items(16, 2), size(2048, 64), size(64, 8)
    model = context.place(lambda: Points(known, size(64, 8), size(3, 2), size(12, 4)))
    context.compile(model.layers)
    scans = []
    for at in range(3):
        places, seen = (context.normal(clouds, count, wide, seed=at).cpu() for wide in (3, known))
        scans.append((places, seen, (places[..., 0] * 3 + 20).long() % 13, places[..., 1] < 1))
    if "pin_memory" in context:
        scans = [tuple(machine.pinned(part) for part in scan) for scan in scans]
    passed = 0

    def loss_of() -> Tensor:
        nonlocal passed
        parts = (part.to(machine.device, non_blocking="pin_memory" in context) for part in scans[passed % 3])
        places, seen, labels, labelled = parts
        passed += 1
        losses = F.cross_entropy(model(places, seen), labels.flatten(), reduction="none") * labelled.flatten()
        if "remove_sync" in context:
            return losses.sum() / labelled.sum().clamp(min=1)
        return losses.sum() / max(int(labelled.sum()), 1)

    return trained(context, loss_of, torch.optim.Adam(model.parameters(), lr=1e-3))


class GroupBlock(nn.Module):
    """Twice GroupNorm, SiLU and a 3 x 3 convolution, and a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(2))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.convs[0](F.silu(self.norms[0](image)))
        return image + self.convs[1](F.silu(self.norms[1](hidden)))


class Vae(nn.Module):
    """Halved sides and blocks, twice, to the mean and spread of a latent picture, and the same way back."""

    def __init__(self, widths: tuple[int, int], depth: int) -> None:
        super().__init__()
        wide, wider = widths
        self.blocks = nn.ModuleList(GroupBlock(width) for width in (wide, wider, wider, wide) for _ in range(depth))
        parts = [self.blocks[at * depth : (at + 1) * depth] for at in range(4)]
        self.encoder = nn.Sequential(
            nn.Conv2d(3, wide, 4, 2, 1), *parts[0], nn.Conv2d(wide, wider, 4, 2, 1), *parts[1], nn.Conv2d(wider, 16, 1)
        )
        back = nn.ConvTranspose2d(wider, wide, 4, 2, 1), nn.ConvTranspose2d(wide, 3, 4, 2, 1)
        self.decoder = nn.Sequential(nn.Conv2d(8, wider, 1), *parts[2], back[0], *parts[3], back[1])


def vae_training(context: Context) -> Step:
    """A convolutional autoencoder in fp32; a moving average of its weights is kept one parameter at a time."""
    size = context.machine.size
    widths, side = ((128, 256), 128) if not context.machine.tiny else ((8, 16), 16)
    model = context.laid_out(context.place(lambda: Vae(widths, size(2, 1))))
    average = copy.deepcopy(model).requires_grad_(False)
    context.compile(model.blocks)
    image = context.laid_out(context.normal(context.items(24, 2), 3, side, side).tanh())
    own, mean = list(model.parameters()), list(average.parameters())

    def loss_of() -> Tensor:
        middle, spread = model.encoder(image).float().chunk(2, 1)
        noise = torch.randn(middle.shape, device=image.device)
        said = model.decoder(context.laid_out(middle + (spread / 2).exp() * noise)).float()
        apart = (middle.square() + spread.exp() - 1 - spread).mean()
        return F.mse_loss(said, image) + 1e-2 * apart

    train = trained(context, loss_of, context.adamw(model))

    return followed(train, lambda: follow(context, mean, own, 1e-3, in_one=False))


class Detector(nn.Module):
    """A stem and stages of basic blocks; each stage has a lateral convolution, and all share the heads."""

    def __init__(self, widths: tuple[int, ...], depth: int, shared: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, widths[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.down, self.stages, self.lateral = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for into, out in itertools.pairwise(widths):
            self.down.append(nn.Sequential(convolution(into, out, stride=2), nn.ReLU()))
            self.stages.append(nn.Sequential(*(BasicBlock(out) for _ in range(depth))))
            self.lateral.append(nn.Conv2d(out, shared, 1))
        self.tower = nn.Sequential(*(nn.Sequential(convolution(shared, shared), nn.ReLU()) for _ in range(2)))
        self.classes, self.boxes = nn.Conv2d(shared, 20, 3, padding=1), nn.Conv2d(shared, 4, 3, padding=1)

    def forward(self, picture: Tensor) -> list[tuple[Tensor, Tensor]]:
        """By scale the best class's score [batch, places] and the boxes [batch, places, 4]."""
        image, found = self.stem(picture.float() / 127.5 - 1), []
        for down, stage, lateral in zip(self.down, self.stages, self.lateral, strict=True):
            image = stage(down(image))
            hidden = self.tower(lateral(image))
            scores = self.classes(hidden).float().sigmoid().amax(1).flatten(1)
            found.append((scores, self.boxes(hidden).float().flatten(2).transpose(1, 2)))
        return found


def best_boxes(boxes: Tensor) -> Tensor:
    """Which boxes, the likeliest first, overlap no likelier one by more than a half."""
    low, high = boxes[..., :2] - boxes[..., 2:].exp(), boxes[..., :2] + boxes[..., 2:].exp()
    shared = torch.minimum(high[:, :, None], high[:, None]) - torch.maximum(low[:, :, None], low[:, None])
    both, area = shared.clamp(min=0).prod(3), (high - low).prod(2)
    overlap = both / (area[:, :, None] + area[:, None] - both)
    return ~(overlap.tril(-1) > 0.5).any(2)


def detector_serving(context: Context) -> Step:
    """A detector in fp32; at each of three scales the host asks whether anything was found, and how much of it."""
    size, machine = context.machine.size, context.machine
    widths = (64, 128, 256, 512) if not machine.tiny else (4, 8, 8, 12)
    model = context.laid_out(context.place(lambda: Detector(widths, size(2, 1), size(128, 8))))
    model.eval().requires_grad_(False)
    context.compile([block for stage in model.stages for block in stage])
    side, kept_most, served = size(416, 64), size(100, 3), 0
    calls = []
    for at in range(3):
        shades = context.normal(context.items(48, 2), 3, side, side, seed=at) * 50 + 128
        calls.append(machine.pinned(shades.clamp(0, 255).byte().cpu()))

    @torch.inference_mode()
    def step() -> Tensor:
        nonlocal served
        picture = context.laid_out(calls[served % 3].to(machine.device, non_blocking=True))
        served += 1
        counted, total = 0, torch.zeros((), device=machine.device)
        with context.autocast():
            scales = model(picture)
        for scores, boxes in scales:
            likely, which = scores.topk(kept_most)
            if "remove_sync" not in context and not bool((likely > 0.05).any()):
                continue
            best = best_boxes(boxes.gather(1, which[:, :, None].expand(-1, -1, 4)))
            if "remove_sync" not in context:
                counted += int(best.sum())
            total += (likely * best).sum() / best.sum()
        return total.cpu()

    return step
