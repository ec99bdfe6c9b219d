"""Twenty-two programs that are changed once each and become slower by it, and what a comparison owes of each.

A builder `name(machine, changed) -> Step` makes the program as it was or as it is now. `owed.json` says which kinds of
change may stand first, of kernels without operators which others too, what the sentence must name where it can, and
the setting that was changed. It was written, and the pairs split by a hash of the name, before the first capture.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

BUSY: Final = "GPU_BUSY_FLAG"
Step = Callable[[], object]


OWED: Final = json.loads((Path(__file__).parent / "owed.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Machine:
    """The GPU, or the CPU at tiny sizes, to try every builder without one."""

    tiny: bool = False

    @property
    def device(self) -> str:
        return "cpu" if self.tiny else "cuda"

    def size(self, full: int, tiny: int = 8) -> int:
        return min(full, tiny) if self.tiny else full

    def rand(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return torch.randn(*shape, device=self.device).to(dtype)


def reset() -> None:
    """Undo what a program may have set for the whole process."""
    if "torch._dynamo" in sys.modules:  # which takes seconds to import
        torch._dynamo.reset()
    torch.use_deterministic_algorithms(False)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    for backend in ("flash", "mem_efficient", "cudnn", "math"):
        getattr(torch.backends.cuda, f"enable_{backend}_sdp", lambda _: None)(True)
    if torch.cuda.is_available():
        torch.cuda.memory.caching_allocator_enable(True)
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError):
        Path(os.environ.get(BUSY, "")).unlink()


def trained(model: nn.Module, *inputs: Tensor, rate: float = 1e-4) -> Step:
    """A step of training towards a smaller mean square of the output."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, foreach=True)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = model(*inputs).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def tf32_off(machine: Machine, changed: bool) -> Step:
    """An autoencoder of pictures in float32; now without TF32."""
    torch.set_float32_matmul_precision("highest" if changed else "high")
    torch.backends.cudnn.allow_tf32 = not changed
    wide = machine.size(128)
    model = nn.Sequential(
        nn.Conv2d(3, wide, 4, 2, 1), nn.ReLU(), nn.Conv2d(wide, 2 * wide, 4, 2, 1), nn.ReLU(),
        nn.Conv2d(2 * wide, 4 * wide, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(4 * wide, 2 * wide, 4, 2, 1), nn.ReLU(),
        nn.ConvTranspose2d(2 * wide, wide, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(wide, 3, 4, 2, 1),
    ).to(machine.device)  # fmt: skip
    return trained(model, machine.rand(machine.size(32, 2), 3, machine.size(128, 8), machine.size(128, 8)).float())


def benchmark_off(machine: Machine, changed: bool) -> Step:
    """Clips through three-dimensional convolutions; now without the search for the fastest algorithm."""
    torch.backends.cudnn.benchmark = not changed
    wide = machine.size(48)
    model = nn.Sequential(
        nn.Conv3d(3, wide, (3, 7, 7), (1, 2, 2), (1, 3, 3)), nn.ReLU(),
        nn.Conv3d(wide, wide, 3, 1, 1, groups=wide // 4), nn.Conv3d(wide, 2 * wide, 1), nn.ReLU(),
        nn.Conv3d(2 * wide, 2 * wide, 3, 1, 2, dilation=2), nn.ReLU(),
        nn.Conv3d(2 * wide, 2 * wide, (5, 1, 1), 1, (2, 0, 0)),
    ).to(machine.device)  # fmt: skip
    frames, edge = machine.size(12, 3), machine.size(96, 12)
    return trained(model, machine.rand(machine.size(4, 1), 3, frames, edge, edge).float())


def deterministic_on(machine: Machine, changed: bool) -> Step:
    """Messages summed along the edges of a graph; now with deterministic algorithms only."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(changed, warn_only=True)
    nodes, edges, wide = machine.size(60_000, 50), machine.size(900_000, 200), machine.size(64)
    ends = torch.randint(0, nodes, (2, edges), device=machine.device)
    layers = nn.ModuleList(nn.Linear(wide, wide) for _ in range(2)).to(machine.device)
    state = machine.rand(nodes, wide).float()
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4, foreach=True)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        seen = state
        for layer in layers:
            told = layer(seen).relu()[ends[0]]
            seen = torch.zeros_like(seen).index_add(0, ends[1], told)
        loss = seen.square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


class Residual(nn.Module):
    """Two convolutions with norms around a way past them."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(),
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide),
        )  # fmt: skip

    def forward(self, seen: Tensor) -> Tensor:
        return (seen + self.inner(seen)).relu()


def channels_last_lost(machine: Machine, changed: bool) -> Step:
    """Residual blocks in bfloat16 with channels last; now with channels first."""
    form = torch.contiguous_format if changed else torch.channels_last
    wide, edge = machine.size(256), machine.size(56, 4)
    model = nn.Sequential(*[Residual(wide) for _ in range(4)]).to(machine.device, torch.bfloat16, memory_format=form)
    return trained(model, machine.rand(machine.size(32, 2), wide, edge, edge).contiguous(memory_format=form))


def sorted_for_topk(machine: Machine, changed: bool) -> Step:
    """The nearest of many documents to some queries; now by sorting all scores."""
    documents = machine.rand(machine.size(400_000, 100), machine.size(256))
    queries = machine.rand(machine.size(64), machine.size(256))

    def step() -> object:
        with torch.no_grad():
            scores = (queries @ documents.T).float()
            if changed:
                best = scores.sort(dim=1, descending=True).indices[:, :10]
            else:
                best = scores.topk(10, dim=1).indices if scores.shape[1] > 10 else scores
            return documents[best].float().mean(1)

    return step


class Block(nn.Module):
    """A layer of a transformer; `drop` of its activations, and copies made on the way where `clones`."""

    def __init__(self, wide: int, heads: int, drop: float = 0.0, clones: bool = False) -> None:
        super().__init__()
        self.heads, self.clones = heads, clones
        self.before, self.after = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.joint, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.drop = nn.Dropout(drop) if drop else nn.Identity()

    def forward(self, seen: Tensor) -> Tensor:
        count, length, wide = seen.shape
        joint = self.joint(self.before(seen)).view(count, length, 3, self.heads, wide // self.heads)
        query, key, value = (part.transpose(1, 2) for part in joint.unbind(2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(count, length, wide)
        seen = seen + self.drop(self.out(mixed))
        hidden = self.up(self.after(seen))
        if self.clones:
            hidden, seen = hidden.clone().clone(), seen.clone()
        return seen + self.drop(self.down(F.gelu(hidden)))


def decoder(machine: Machine, layers: int, wide: int, **kinds: Any) -> nn.Sequential:
    wide = machine.size(wide, 16)
    blocks = [Block(wide, max(wide // 64, 2), **kinds) for _ in range(layers)]
    return nn.Sequential(*blocks).to(machine.device, torch.bfloat16)


def gpu_shared(machine: Machine, changed: bool) -> Step:
    """Large products of matrices; now another process works on the GPU."""
    if flag := os.environ.get(BUSY):
        Path(flag).write_text("") if changed else Path(flag).unlink(missing_ok=True)
        time.sleep(0.3 if changed else 0.0)
    edge = machine.size(6144, 16)
    weights, state = [machine.rand(edge, edge) / edge**0.5 for _ in range(6)], machine.rand(edge, edge)

    def step() -> object:
        seen = state
        for weight in weights:
            seen = torch.tanh(seen @ weight)
        return seen

    return step


def wait_added(machine: Machine, changed: bool) -> Step:
    """A ranking model of features; now with a pause between batches."""
    wide = machine.size(2048)
    model = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(wide, wide), nn.ReLU())])
    step = trained(model.to(machine.device, torch.bfloat16), machine.rand(machine.size(4096), wide))

    def paused() -> object:
        loss = step()
        if changed:
            time.sleep(0.004)
        return loss

    return paused


def batch_grown(machine: Machine, changed: bool) -> Step:
    """An encoder of patches; now 40 pictures in a batch for 32."""
    return trained(decoder(machine, 6, 768), machine.rand(machine.size(40 if changed else 32, 5 if changed else 4),
                                                          machine.size(256), machine.size(768, 16)))  # fmt: skip


def length_grown(machine: Machine, changed: bool) -> Step:
    """A language model; now texts of 1,280 tokens for 1,024."""
    length = (10 if changed else 8) if machine.tiny else (1280 if changed else 1024)
    return trained(decoder(machine, 6, 1024), machine.rand(machine.size(8, 2), length, machine.size(1024, 16)))


class Mixer(nn.Module):
    """Mixes tokens, then channels."""

    def __init__(self, tokens: int, wide: int) -> None:
        super().__init__()
        self.norm, self.over = nn.LayerNorm(wide), nn.Linear(tokens, tokens)
        self.inner = nn.Sequential(nn.LayerNorm(wide), nn.Linear(wide, 4 * wide), nn.GELU(), nn.Linear(4 * wide, wide))

    def forward(self, seen: Tensor) -> Tensor:
        seen = seen + self.over(self.norm(seen).transpose(1, 2)).transpose(1, 2)
        return seen + self.inner(seen)


def precision_up(machine: Machine, changed: bool) -> Step:
    """A mixer of patches in bfloat16; now in float32."""
    kind, tokens, wide = torch.float32 if changed else torch.bfloat16, machine.size(196), machine.size(512)
    model = nn.Sequential(*[Mixer(tokens, wide) for _ in range(4)]).to(machine.device, kind)
    return trained(model, machine.rand(machine.size(64, 2), tokens, wide, dtype=kind))


def table_uploaded(machine: Machine, changed: bool) -> Step:
    """Beams of light traced through a table of densities; now the table is sent anew each time."""
    table = np.random.default_rng(0).random((machine.size(256), machine.size(256), machine.size(128)), np.float32)
    kept = torch.from_numpy(table).to(machine.device)
    places = torch.rand(machine.size(4_000_000, 64), 3, device=machine.device)
    limits = torch.tensor(table.shape, device=machine.device)

    def step() -> object:
        there = torch.from_numpy(table).to(machine.device) if changed else kept
        seen = torch.zeros(places.shape[0], device=machine.device)
        for shift in range(4):
            at = ((places + 0.1 * shift) * limits).long() % limits
            seen = seen + there[at[:, 0], at[:, 1], at[:, 2]]
        return torch.exp(-seen).mean()

    return step


def loss_by_hand(machine: Machine, changed: bool) -> Step:
    """A head over a large vocabulary; now with its loss written out."""
    rows, wide, words = machine.size(8192), machine.size(1024), machine.size(32_000, 40)
    head = nn.Linear(wide, words).to(machine.device, torch.bfloat16)
    seen, owed = machine.rand(rows, wide), torch.randint(0, words, (rows,), device=machine.device)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-4, foreach=True)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        scores = head(seen).float()
        if changed:
            shifted = scores - scores.amax(1, keepdim=True)
            chances = shifted.exp() / shifted.exp().sum(1, keepdim=True)
            loss = -(chances.gather(1, owed[:, None]) + 1e-9).log().mean()
        else:
            loss = F.cross_entropy(scores, owed)
        loss.backward()
        optimizer.step()
        return loss

    return step


def experts_in_turn(machine: Machine, changed: bool) -> Step:
    """Sixty-four experts of a layer in one product; now one after the other."""
    experts, rows, wide = machine.size(64), machine.size(128), machine.size(1024)
    weights = [machine.rand(experts, wide, wide) / wide**0.5 for _ in range(4)]
    state = machine.rand(experts, rows, wide)

    def step() -> object:
        seen = state
        for weight in weights:
            if changed:
                seen = torch.stack([F.silu(seen[at] @ weight[at]) for at in range(experts)])
            else:
                seen = F.silu(torch.bmm(seen, weight))
        return seen

    return step


def gradients_checked(machine: Machine, changed: bool) -> Step:
    """A language model; now the program asks of each gradient whether it is finite."""
    model = decoder(machine, 8, 768)
    inner = trained(model, machine.rand(machine.size(4, 2), machine.size(256), machine.size(768, 16)))

    def step() -> object:
        loss = inner()
        if changed:
            for weight in model.parameters():
                if weight.grad is not None and not torch.isfinite(weight.grad).all():
                    raise FloatingPointError
        return loss

    return step


def caching_off(machine: Machine, changed: bool) -> Step:
    """A denoiser of sound; now memory is taken from the driver each time."""
    if not machine.tiny:
        torch.cuda.memory.caching_allocator_enable(not changed)
    wide = machine.size(128)
    model = nn.Sequential(
        nn.Conv1d(1, wide, 9, 4, 4), nn.ReLU(), nn.Conv1d(wide, 2 * wide, 9, 4, 4), nn.ReLU(),
        nn.ConvTranspose1d(2 * wide, wide, 8, 4, 2), nn.ReLU(), nn.ConvTranspose1d(wide, 1, 8, 4, 2),
    ).to(machine.device)  # fmt: skip
    return trained(model, machine.rand(machine.size(16, 2), 1, machine.size(32_768, 256)).float())


class Spectra(torch.utils.data.Dataset[Tensor]):
    """Sounds, each turned to a spectrum by the host as it is asked for."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, at: int) -> Tensor:
        drawn = np.random.default_rng(at).standard_normal(self.length)
        return torch.from_numpy(np.abs(np.fft.rfft(drawn.reshape(-1, 256), axis=1)).astype(np.float32))


def _batches(size: int, length: int, workers: int) -> Iterator[Tensor]:
    more: dict[str, Any] = {"prefetch_factor": 8} if workers else {}
    loader = torch.utils.data.DataLoader(Spectra(length), size, num_workers=workers, pin_memory=False, **more)
    return iter(loader)


def workers_gone(machine: Machine, changed: bool) -> Step:
    """A classifier of sounds fed by eight workers; now by none."""
    batches = _batches(machine.size(24, 2), 256 * machine.size(96, 4), 0 if changed else machine.size(8, 1))
    model = nn.Sequential(nn.Linear(129, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 35))
    model = model.to(machine.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        loss = model(next(batches).to(machine.device)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


class Gated(nn.Module):
    """Many small operations on large activations, between two products."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.gate, self.back = nn.Linear(wide, 2 * wide), nn.Linear(wide, wide)
        self.scale = nn.Parameter(torch.ones(wide))

    def forward(self, seen: Tensor) -> Tensor:
        normed = seen * torch.rsqrt(seen.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        one, other = self.gate(normed).chunk(2, -1)
        return seen + self.back(torch.sigmoid(one) * one * torch.tanh(other) + 0.1 * other)


def compile_off(machine: Machine, changed: bool) -> Step:
    """Gated layers that are compiled; now as they are written."""
    wide = machine.size(1024)
    model = nn.Sequential(*[Gated(wide) for _ in range(3)]).to(machine.device, torch.bfloat16)
    run = model if changed or machine.tiny else torch.compile(model)
    return trained(run, machine.rand(machine.size(16_384), wide))


def attention_forced(machine: Machine, changed: bool) -> Step:
    """A language model over long texts; now with one implementation of attention that somebody forced."""
    wanted = [SDPBackend.EFFICIENT_ATTENTION] if changed else [SDPBackend.FLASH_ATTENTION]
    step = trained(
        decoder(machine, 3, 512), machine.rand(machine.size(4, 2), machine.size(4096), machine.size(512, 16))
    )

    def chosen() -> object:
        with contextlib.nullcontext() if machine.tiny else sdpa_kernel(wanted):
            return step()

    if changed and not machine.tiny:  # as a program forces it, for whoever asks for its settings
        for backend in ("flash", "cudnn", "math"):
            getattr(torch.backends.cuda, f"enable_{backend}_sdp")(False)
    return chosen


def accumulated(machine: Machine, changed: bool) -> Step:
    """A language model; now its batch in four pieces."""
    model, pieces = decoder(machine, 4, 768), 4 if changed else 1
    batch = machine.rand(machine.size(32), machine.size(128), machine.size(768, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=True)

    def step() -> object:
        optimizer.zero_grad(set_to_none=True)
        for part in batch.chunk(pieces):
            (model(part).float().square().mean() / pieces).backward()
        optimizer.step()
        return batch

    return step


def bookkeeping_added(machine: Machine, changed: bool) -> Step:
    """A world model's rollout; now the program keeps a table of what it did, in Python."""
    cell, wide = nn.GRUCell(256, 256).to(machine.device), 256
    state = machine.rand(machine.size(256), wide).float()
    kept: dict[str, int] = {}

    def step() -> object:
        seen = state
        with torch.no_grad():
            for turn in range(12):
                seen = cell(seen, seen)
                if changed:
                    for number in range(2_500):
                        kept[f"{turn}:{number}"] = kept.get(f"{turn}:{number}", 0) + number
        return seen

    return step


def clones_added(machine: Machine, changed: bool) -> Step:
    """A language model; now activations are copied between its layers."""
    return trained(
        decoder(machine, 6, 1024, clones=changed),
        machine.rand(machine.size(8, 2), machine.size(512), machine.size(1024, 16)),
    )


def dropout_added(machine: Machine, changed: bool) -> Step:
    """A language model; now a tenth of the activations is dropped."""
    model = decoder(machine, 6, 768, drop=0.1 if changed else 0.0)
    return trained(model, machine.rand(machine.size(16, 2), machine.size(512), machine.size(768, 16)))


BUILDERS: Final[dict[str, Callable[[Machine, bool], Step]]] = {name: globals()[name] for name in OWED}
