"""What this host and its GPU take for calls of some kinds, whatever program runs."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch

from timesink.trials.bench.timing import Call, host_us, on_gpu, timed_us


class _Block(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A layer as people write them: a norm, two products, an activation, a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            torch.nn.LayerNorm(_SIZE),
            torch.nn.Linear(_SIZE, _SIZE),
            torch.nn.Linear(_SIZE, _SIZE),
        )

    def forward(self, hidden: Any) -> Any:
        """A layer's result."""
        return hidden + self.down(torch.nn.functional.gelu(self.up(self.norm(hidden))))


_BLOCKS, _SIZE, _TIMES = 6, 64, 60
_PASSES: Final = {"inferred": False, "trained": True}


def _stepper(layers: torch.nn.Module, trains: bool, casts: bool) -> Call:
    """A pass through some layers, and back where it trains: the host's work alone, of tiny tensors."""
    where = "cuda" if on_gpu() else "cpu"
    data = torch.randn(_SIZE, _SIZE, device=where)

    def step() -> None:
        with torch.set_grad_enabled(trains):
            with torch.autocast(where, dtype=torch.bfloat16, enabled=casts):
                made = layers(data)
            if trains:
                for weight in layers.parameters():
                    weight.grad = None
                made.sum().backward()

    for _ in range(3):
        step()
    return step


def machine() -> dict[str, Any]:
    """What this host and device take for calls of some kinds, each as three percentiles in microseconds."""
    layers, small = _layers(), torch.randn(_SIZE, _SIZE, device="cuda" if on_gpu() else "cpu")
    found: dict[str, Any] = {"blocks": _BLOCKS}
    with torch.no_grad():
        found["operator"] = host_us(lambda: small.add_(1.0))
    for name, trains in _PASSES.items():
        found[name] = host_us(_stepper(layers, trains, False), _TIMES)
        found[f"{name}_cast"] = host_us(_stepper(layers, trains, True), _TIMES)
    handles = [layer.register_forward_hook(lambda *_: None) for layer in layers]
    found["hooked"] = host_us(_stepper(layers, False, False), _TIMES)
    for handle in handles:
        handle.remove()
    found["frames"] = host_us(lambda: [_frame(number) for number in range(100)], _TIMES)
    return {**found, **_of_gpu(small)} if on_gpu() else found


def _frame(number: int) -> int:
    return number


def _layers() -> Any:
    return torch.nn.Sequential(*(_Block() for _ in range(_BLOCKS))).to("cuda" if on_gpu() else "cpu")


def _of_gpu(small: Any) -> dict[str, Any]:
    """What a graph costs the host and its GPU; bandwidths, bytes a microsecond; products, operations a microsecond."""
    found: dict[str, Any] = {}
    for count in (20, 220):
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            for _ in range(count):
                small.add_(1.0)
        graph.replay()
        found[f"graph_{count}"] = host_us(graph.replay, _TIMES)
        found[f"graph_{count}_device"] = timed_us([graph.replay], 1)
    for name, size in (("dram", 1 << 28), ("l2", 1 << 22)):
        own = torch.zeros(size // 4, device="cuda")
        found[f"{name}_bandwidth"] = 2 * size / timed_us([partial(own.mul_, 1.0)], 1)
    pinned, there = torch.zeros(1 << 25, pin_memory=True), torch.zeros(1 << 25, device="cuda")
    found["copy_bandwidth"] = (1 << 27) / timed_us([partial(there.copy_, pinned, non_blocking=True)], 1)
    for kind, type_of in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        for size in (512, 2048, 8192):
            own = torch.randn(size, size, device="cuda", dtype=type_of)
            found[f"product_{kind}_{size}"] = 2 * size**3 / timed_us([partial(torch.matmul, own, own)], 1)
    return found


def regions() -> dict[str, Any]:
    """What the host takes for layers that are compiled one by one, without and with gradients: microseconds of all."""
    found: dict[str, Any] = {"blocks": _BLOCKS}
    for name, trains in _PASSES.items():
        layers = _layers()
        found[name] = host_us(_stepper(layers, trains, False), _TIMES)
        for layer in layers:
            layer.compile(dynamic=False)
        found[f"{name}_compiled"] = host_us(_stepper(layers, trains, False), _TIMES)
    return found
