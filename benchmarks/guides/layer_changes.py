"""The four actions of the post on its layer, each alone and all of them, measured: milliseconds a layer, in turns.

    python benchmarks/guides/layer_changes.py [ROUNDS]

A CUDA graph, SiLU and product in one kernel, gate and up on two streams, and products with tuned tiles.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F  # noqa: N812
from programs import DEVICE, HALF, ON_GPU, large, waited
from torch import Tensor, nn

HIDDEN, INNER, TOKENS = large(4096, 64), large(11008, 176), large(2048, 32)
SHAPES = {"qkv": (3 * HIDDEN, HIDDEN), "o": (HIDDEN, HIDDEN), "gate": (INNER, HIDDEN), "up": (INNER, HIDDEN)}
CALLS = 60 if ON_GPU else 2


def gated(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


class Layer:
    """One layer with the actions named, ready to be called."""

    def __init__(self, x: Tensor, weights: dict[str, nn.Module], actions: Iterable[str]) -> None:
        self.x, self.actions = x, frozenset(actions)
        self.norm = nn.LayerNorm(HIDDEN, device=DEVICE, dtype=HALF)
        self.beside = torch.cuda.Stream() if ON_GPU and "streams" in self.actions else None
        self.gated = torch.compile(gated) if ON_GPU and "fused" in self.actions else gated
        self.weights = weights
        if ON_GPU and "tiles" in self.actions:
            mode = "max-autotune-no-cudagraphs"
            self.weights = {name: torch.compile(one, mode=mode, dynamic=False) for name, one in weights.items()}
        self.call: Callable[[], object] = self.run
        for _ in range(3):
            self.run()
        waited()
        if ON_GPU and "graph" in self.actions:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.run()
            self.call = graph.replay

    def run(self) -> Tensor:
        made = self.weights
        h = self.x + made["o"](made["qkv"](self.norm(self.x))[:, :, :HIDDEN])
        normed = self.norm(h)
        if self.beside is None:
            gate, up = made["gate"](normed), made["up"](normed)
        else:
            main = torch.cuda.current_stream()
            self.beside.wait_stream(main)
            with torch.cuda.stream(self.beside):
                up = made["up"](normed)
            gate = made["gate"](normed)
            main.wait_stream(self.beside)
        return h + made["down"](self.gated(gate, up))


def print_times(layers: dict[str, Layer], rounds: int) -> None:
    """The median over rounds of the mean call, and the least and the most, as lines."""
    times: dict[str, list[float]] = {name: [] for name in layers}
    for _ in range(rounds):
        for name, layer in layers.items():
            waited()
            begun = time.perf_counter()
            for _ in range(CALLS):
                layer.call()
            waited()
            times[name].append((time.perf_counter() - begun) * 1e3 / CALLS)
    for name, taken in times.items():
        print(f"{name} {sorted(taken)[rounds // 2]:.4f} ms, {min(taken):.4f} to {max(taken):.4f}", flush=True)


@torch.no_grad()
def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    shapes = SHAPES | {"down": (HIDDEN, INNER)}
    weights: dict[str, nn.Module] = {
        name: nn.Linear(inside, outside, device=DEVICE, dtype=HALF) for name, (outside, inside) in shapes.items()
    }
    x = torch.randn(1, TOKENS, HIDDEN, device=DEVICE, dtype=HALF)
    ways = {"plain": (), "graph": ("graph",), "fused": ("fused",), "streams": ("streams",)}
    layers = {name: Layer(x, weights, actions) for name, actions in ways.items()}
    print_times(layers, rounds)
    layers = {"plain": layers["plain"], "tiles": Layer(x, weights, ("tiles",))}
    layers["all"] = Layer(x, weights, ("graph", "fused", "streams", "tiles"))
    print_times(layers, rounds)


if __name__ == "__main__":
    main()
