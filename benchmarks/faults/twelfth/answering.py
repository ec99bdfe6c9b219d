"""What answers: transport between clouds, trackers, recommenders, speech, meshes and prompts."""

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from benchmarks.faults.machine import Machine
from benchmarks.faults.models import Convolutions, place
from benchmarks.faults.ninth.sequences import causal, layers
from benchmarks.faults.program import Program, Step
from torch import Tensor, nn


def transports_checked_each_round(_: str, machine: Machine) -> Program:
    """Sinkhorn's rounds of an optimal transport read their error to stop early; fixed, no round reads it."""
    count, clouds, rounds = machine.size(4096, 16), machine.size(1024, 4), machine.size(24, 3)
    points = machine.random(count, 8, dtype=torch.float32)
    kernel = torch.exp(-torch.cdist(points, points) / 4).to(torch.bfloat16)
    masses = [F.normalize(machine.random(count, clouds, seed=seed).abs() + 0.1, p=1, dim=0) for seed in (1, 2)]

    def transporting(arrived: Callable[[Tensor], bool]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            given, missed = torch.ones_like(masses[0]), torch.zeros((), device=machine.device)
            for _ in range(rounds):
                taken = masses[1] / (kernel.T @ given)
                spread = kernel @ taken
                missed = (given * spread - masses[0]).abs().sum(dtype=torch.float32)
                given = masses[0] / spread
                if arrived(missed):  # cause
                    break
            return missed + given.float().log().mean()

        return step

    return Program(
        transporting(lambda missed: missed.item() < 1e-6),  # cause
        transporting(lambda _: False),
        tolerance=5e-2,
    )


def tracks_matched_in_python(_: str, machine: Machine) -> Program:
    """A tracker reads how alike boxes are and pairs them up in Python; fixed, pairs are found on the GPU."""
    count, channels, size = machine.size(256, 5), machine.size(256, 8), machine.size(128, 8)
    backbone = place(machine, lambda: Convolutions(channels, machine.size(8, 2))).to(memory_format=torch.channels_last)
    picture = machine.random(machine.size(8, 1), channels, size, size).contiguous(memory_format=torch.channels_last)
    known = F.normalize(machine.random(count, channels, dtype=torch.float32, seed=1), dim=-1)
    drawn = machine.random(channels, count, dtype=torch.float32, seed=2)

    def in_python(alike: Tensor) -> Tensor:
        rows, total, pairs = alike.tolist(), 0.0, 0  # cause
        best_of_track = [max(range(count), key=lambda at, row=row: row[at]) for row in rows]  # cause
        for box in range(count):
            track = max(range(count), key=lambda at, box=box: rows[at][box])  # cause
            if best_of_track[track] == box:
                total, pairs = total + rows[track][box], pairs + 1
        return torch.tensor(total / max(pairs, 1))

    def on_the_gpu(alike: Tensor) -> Tensor:
        boxes, tracks = alike.argmax(1), alike.argmax(0)
        mutual = tracks[boxes] == torch.arange(count, device=machine.device)
        found = alike.amax(1) * mutual
        return found.sum() / mutual.sum().clamp(min=1)

    def tracking(pair: Callable[[Tensor], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            seen = backbone(picture).float().mean((0, 2, 3))
            boxes = F.normalize((drawn + seen[:, None]).T, dim=-1)
            return pair(known @ boxes.T)

        return step

    return Program(tracking(in_python), tracking(on_the_gpu), tolerance=1e-2)


def histories_decayed_in_float64(_: str, machine: Machine) -> Program:
    """Ages of clicks, made of Python's numbers in float64, carry a recommender's scores there; fixed, they are bf16."""
    users, clicks, width = machine.size(4096, 4), machine.size(100, 4), machine.size(256, 16)
    history = machine.random(users, clicks, width)
    items = machine.random(machine.size(131072, 16), width, seed=1)
    tower = place(machine, lambda: nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)))
    ages = torch.tensor([0.02 * age for age in range(clicks)], dtype=torch.float64, device=machine.device)

    def scoring(decay: Tensor) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            user = (tower(history) * decay[:, None]).sum(1)  # cause
            return (user @ items.to(user.dtype).T).amax(-1).float().mean()  # cause

        return step

    decay = torch.exp(-ages)
    return Program(scoring(decay), scoring(decay.to(torch.bfloat16)), tolerance=5e-2)


def voices_masked_by_nothing(_: str, machine: Machine) -> Program:
    """A speech encoder adds a mask of padding although no voice of the batch is padded; fixed, there is no mask."""
    voices, length, width = machine.size(8, 2), machine.size(3072, 16), machine.size(768, 64)
    heard = machine.random(voices, length, width)
    lengths = torch.full((voices,), length, device=machine.device)

    def padding() -> Tensor:
        there = torch.arange(length, device=machine.device) < lengths[:, None]
        return torch.zeros(there.shape, device=machine.device, dtype=torch.bfloat16).masked_fill(~there, -1e4)

    def encoding(masked: bool) -> Step:
        mask: list[Tensor] = []

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            held = mask[0][:, None, None].expand(-1, -1, length, -1) if masked else None
            return F.scaled_dot_product_attention(query, key, value, attn_mask=held)  # cause

        model = layers(machine, machine.size(6, 2), width, attend)

        @torch.no_grad()
        def step() -> Tensor:
            mask[:] = [padding()]
            return model(heard).float().square().mean()

        return step

    return Program(encoding(True), encoding(False), tolerance=5e-2)


def frames_remembered_by_cat(_: str, machine: Machine) -> Program:
    """A tracker's memory of frames is copied whole to add each frame; fixed, frames are written into a buffer."""
    videos, heads, tokens = machine.size(8, 2), machine.size(16, 2), machine.size(64, 4)
    length, frames, width = machine.size(8192, 8), machine.size(16, 2), machine.size(1024, 16)
    per_head = width // heads
    ask, know, tell, out = (place(machine, lambda: nn.Linear(width, width)) for _ in range(4))
    seen = machine.random(frames, videos, tokens, width)
    past = [machine.random(videos, length, heads, per_head, seed=seed) for seed in (1, 2)]
    room = [torch.cat([part, part[:, : frames * tokens]], 1) for part in past]

    def split(hidden: Tensor) -> Tensor:
        return hidden.unflatten(-1, (heads, per_head))

    def attended(frame: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query = split(ask(frame)).transpose(1, 2)
        found = F.scaled_dot_product_attention(query, keys.transpose(1, 2), values.transpose(1, 2))
        return out(found.transpose(1, 2).flatten(2))

    @torch.no_grad()
    def by_cat() -> Tensor:
        (keys, values), total = past, torch.zeros((), device=machine.device)
        for frame in seen:
            keys = torch.cat([keys, split(know(frame))], 1)  # cause
            values = torch.cat([values, split(tell(frame))], 1)  # cause
            total = total + attended(frame, keys, values).float().square().mean()
        return total

    @torch.no_grad()
    def in_place() -> Tensor:
        end, total = length, torch.zeros((), device=machine.device)
        for frame in seen:
            room[0][:, end : end + tokens], room[1][:, end : end + tokens] = split(know(frame)), split(tell(frame))
            end += tokens
            total = total + attended(frame, room[0][:, :end], room[1][:, :end]).float().square().mean()
        return total

    return Program(by_cat, in_place, tolerance=5e-2)


def neighbours_listed_in_each_layer(_: str, machine: Machine) -> Program:
    """Each layer over a sphere's mesh lists the neighbours of its cells in Python; fixed, they are listed once."""
    side, batch, width, depth = machine.size(64, 4), machine.size(4, 2), machine.size(1024, 16), machine.size(12, 2)
    weather = machine.random(batch, side * side, width)
    mixers = place(machine, lambda: nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth)))

    def listed() -> Tensor:
        cells = [row * side + (column + side // 2) % side for row in range(side) for column in range(side)]  # cause
        return torch.tensor(cells, device=machine.device)  # cause

    kept = listed()

    def forecasting(neighbours: Callable[[], Tensor]) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = weather
            for mixer in mixers:
                beside = hidden[:, neighbours()]  # cause
                hidden = hidden + F.relu(mixer(torch.cat([hidden, beside], -1)))
            return hidden.float().square().mean()

        return step

    return Program(forecasting(listed), forecasting(lambda: kept), tolerance=5e-2)


def prompts_scored_at_every_word(_: str, machine: Machine) -> Program:
    """All words of a prompt are scored against the vocabulary, and the last used; fixed, the last alone is scored."""
    width, words = machine.size(1024, 64), machine.size(65536, 100)
    prompts = machine.random(machine.size(16, 2), machine.size(512, 8), width)
    model = layers(machine, machine.size(8, 2), width, causal)
    vocabulary = place(machine, lambda: nn.Linear(width, words, bias=False))

    def prefilling(last_first: bool) -> Step:
        @torch.no_grad()
        def step() -> Tensor:
            hidden = model(prompts)
            scores = vocabulary(hidden[:, -1]) if last_first else vocabulary(hidden)[:, -1]  # cause
            return scores.float().log_softmax(-1).amax(-1).mean()

        return step

    return Program(prefilling(False), prefilling(True), tolerance=5e-2)
