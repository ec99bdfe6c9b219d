"""Programs that guides to profiling follow, none of which knows of timesink; `run_on_gpu.sh` captures them.

    python benchmarks/guides/programs.py NAME [OPTION=VALUE ...]

On a machine without a GPU they run small, on the CPU, as a trial.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.cuda import nvtx

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if ON_GPU else torch.device("cpu")
HALF = torch.float16 if ON_GPU else torch.float32


def large(size: int, small: int) -> int:
    return size if ON_GPU else small


def waited() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


@contextmanager
def named(name: str) -> Iterator[None]:
    """A region that Nsight Systems shows; torch.profiler gets it by its own means, for it keeps no NVTX."""
    if ON_GPU:
        nvtx.range_push(name)
    with torch.profiler.record_function(name):
        yield
    if ON_GPU:
        nvtx.range_pop()


class Samples(torch.utils.data.Dataset[Tensor]):
    """Samples that are read and normalized on the host, half a millisecond each."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        sample = torch.full((large(1024, 64),), float(index % 7))
        until = time.perf_counter() + 5e-4
        while time.perf_counter() < until:
            sample = sample * 0.5 + 0.5
        return sample


def training(workers: str = "0", steps: str = "400") -> None:
    """A loop with the four phases of the lab; `workers=4` is its fix: batch N + 1 is made while batch N computes."""
    width = large(1024, 64)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(8))).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loaded = iter(torch.utils.data.DataLoader(Samples(), 32, num_workers=int(workers), pin_memory=ON_GPU))
    for _ in range(int(steps)):
        with named("data_load"):
            batch = next(loaded).to(DEVICE, non_blocking=True)
        with named("forward"):
            loss = (model(batch) - batch).square().mean()
        with named("backward"):
            loss.backward()
        with named("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def layer(count: str = "100", layers: str = "1") -> None:
    """Layers of a transformer, each phase named, as the post has it: fp16, 2048 tokens, hidden 4096, inner 11008."""
    hidden, inner = large(4096, 64), large(11008, 176)

    def weight(rows: int, columns: int) -> nn.Linear:
        return nn.Linear(columns, rows, device=DEVICE, dtype=HALF)

    shapes = {"qkv_proj": (3 * hidden, hidden), "o_proj": (hidden, hidden), "gate_proj": (inner, hidden)}
    shapes |= {"up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    weights = [{name: weight(*shape) for name, shape in shapes.items()} for _ in range(int(layers))]
    norm = nn.LayerNorm(hidden, device=DEVICE, dtype=HALF)

    def one(x: Tensor, made: dict[str, nn.Linear]) -> Tensor:
        with named("norm_1"):
            h = norm(x)
        with named("qkv_proj"):
            qkv = made["qkv_proj"](h)
        with named("o_proj"):
            attended = made["o_proj"](qkv[:, :, :hidden])
        with named("residual_1"):
            h = x + attended
        with named("norm_2"):
            normed = norm(h)
        with named("gate_proj"):
            gate = made["gate_proj"](normed)
        with named("up_proj"):
            up = made["up_proj"](normed)
        with named("silu_mul"):
            product = F.silu(gate) * up
        with named("down_proj"):
            down = made["down_proj"](product)
        with named("residual_2"):
            return h + down

    def stack(x: Tensor) -> Tensor:
        for number, made in enumerate(weights):
            with named(f"L{number}_layer"):
                x = one(x, made)
        return x

    x = torch.randn(1, large(2048, 32), hidden, device=DEVICE, dtype=HALF)
    with torch.no_grad():
        for _ in range(10):
            stack(x)
        waited()
        begun = time.perf_counter()
        with named("transformer_layer"):
            for _ in range(int(count)):
                stack(x)
            waited()
        print(f"layer_ms {(time.perf_counter() - begun) * 1e3 / int(count) / int(layers):.4f}")


def server(seconds: str = "60") -> None:
    """Answers a request each 50 ms and works on it for a few; it never ends a step, and is ended from outside."""
    width = large(1024, 64)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(6))).to(DEVICE, HALF)
    until = time.monotonic() + float(seconds)
    with torch.no_grad():
        while time.monotonic() < until:
            with named("request"):
                model(torch.randn(64, width).to(DEVICE, HALF)).sum().item()
            time.sleep(0.05)


def bench(count: str = "120") -> None:
    """One Triton kernel by itself: RMSNorm of 4096 rows of 4096."""
    from rmsnorm import normalized

    x = torch.randn(4096, 4096, device=DEVICE, dtype=HALF)
    weight = torch.ones(4096, device=DEVICE, dtype=HALF)
    for _ in range(int(count)):
        out = normalized(x, weight)
    waited()
    wanted = F.rms_norm(x.float(), (4096,), weight.float(), eps=1e-6)
    print(f"bench_error {(out.float() - wanted).abs().max().item():.5f}")


class Block(nn.Module):
    """A transformer MLP and attention output, each split over the ranks: two all-reduces."""

    def __init__(self, width: int, world: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width // world), nn.Linear(width // world, width)
        self.up, self.down = nn.Linear(width, 4 * width // world), nn.Linear(4 * width // world, width)

    def forward(self, x: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + reduce(self.out(F.scaled_dot_product_attention(query, key, value)))
        return x + reduce(self.down(F.gelu(self.up(self.norm(x)))))


def tensor_parallel(mode: str = "eager", steps: str = "400", wait: str = "") -> None:
    """Denoise, recompute and decode over two ranks: `mode` is eager, compiled or broken (a break at each all-reduce).

    `wait=1` waits for the GPU after each block, as profilers of blocks do.
    """
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    if ON_GPU:
        torch.cuda.set_device(DEVICE)
    import torch.distributed._functional_collectives as functional

    def reduce(x: Tensor) -> Tensor:
        return functional.all_reduce(x, "sum", dist.group.WORLD)

    if mode == "broken":
        reduce = torch.compiler.disable(reduce)
    width, world = large(1024, 64), dist.get_world_size()
    torch.manual_seed(0)

    def blocks(count: int) -> nn.ModuleList:
        return nn.ModuleList(Block(width, world) for _ in range(count)).to(DEVICE, HALF)

    stages = {"denoise": blocks(8), "recompute_kv_cache": blocks(2), "decode": blocks(2)}

    def run(stage: nn.ModuleList, x: Tensor) -> Tensor:
        for block in stage:
            x = block(x, reduce)
        return x

    called = run if mode == "eager" else torch.compile(run, dynamic=False)
    x = torch.randn(2, large(256, 16), width, device=DEVICE, dtype=HALF)
    with torch.no_grad():
        for _ in range(int(steps)):
            for name, stage in stages.items():
                with named(name):
                    called(stage, x)
                    if wait:
                        waited()
            waited()
            if "timesink" in sys.modules:
                sys.modules["timesink"].step()  # the agent has loaded it; there is no optimizer that ends a step
    dist.destroy_process_group()


def exchange(megabytes: str = "64", steps: str = "40") -> None:
    """All-reduces of a known size, one a step with a product beside none of them: what the links carry is known."""
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    if ON_GPU:
        torch.cuda.set_device(DEVICE)
    sums = torch.zeros(large(int(megabytes) << 19, 1 << 10), device=DEVICE, dtype=HALF)
    square = torch.zeros(large(4096, 64), large(4096, 64), device=DEVICE, dtype=HALF)
    for _ in range(int(steps)):
        with named("compute"):
            square = square @ square
        with named("exchange"):
            for _ in range(4):
                dist.all_reduce(sums)
        waited()
        if "timesink" in sys.modules:
            sys.modules["timesink"].step()
    dist.destroy_process_group()


PROGRAMS = {one.__name__: one for one in (training, layer, server, bench, tensor_parallel, exchange)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](**dict(word.split("=", 1) for word in sys.argv[2:]))
