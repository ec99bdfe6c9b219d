"""What this host and its GPU take for calls of some kinds, whatever program runs."""

import time
from contextlib import suppress
from functools import partial
from statistics import median
from typing import Any, Final

import torch

from timesink.trials.bench.timing import Call, host_us, in_turns, on_gpu, timed_us


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


class _Convolved(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A layer of a network of pictures: a convolution, a norm, an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.weighed = torch.nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(_CHANNELS)

    def forward(self, hidden: Any) -> Any:
        """A layer's result."""
        return torch.nn.functional.relu(self.norm(self.weighed(hidden)))


class _Batches(torch.utils.data.Dataset):  # type: ignore[misc, unused-ignore]
    """Batches of so many bytes, which take no time to load."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return _FETCHES

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.full((self.size,), number, dtype=torch.uint8)


_BLOCKS, _SIZE, _CHANNELS, _TIMES = 6, 64, 16, 60
_FETCHES, _FETCHED = 12, (1 << 20, 1 << 24)
_READY_S: Final = 0.02  # in which a worker has the next batch ready
_PASSES: Final = {"inferred": False, "trained": True}


def _stepper(layers: torch.nn.Module, trains: bool, casts: bool) -> Call:
    """A pass through some layers, and back where it trains: the host's work alone, of tiny tensors."""
    where = "cuda" if on_gpu() else "cpu"
    convolves = isinstance(layers[0], _Convolved)
    data = torch.randn(*((2, _CHANNELS, 8, 8) if convolves else (_SIZE, _SIZE)), device=where)

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
        for kind, own in (("", layers), ("_convolved", _layers(_Convolved))):
            calls = {f"{name}{kind}{cast}": _stepper(own, trains, bool(cast)) for cast in ("", "_cast")}
            found |= in_turns(calls, f"{name}{kind}")
    hooked = _layers()
    for layer in hooked:
        layer.register_forward_hook(lambda *_: None)
    calls = {"inferred": _stepper(layers, False, False), "hooked": _stepper(hooked, False, False)}
    found["hooked"] = in_turns(calls, "inferred")["hooked"]
    found["frames"] = host_us(lambda: [_frame(number) for number in range(100)], _TIMES)
    with suppress(RuntimeError, OSError):  # there may be no memory that processes share
        found["fetched"] = [[size, _fetched_us(size)] for size in _FETCHED]
    return {**found, **_of_gpu(small)} if on_gpu() else found


def _frame(number: int) -> int:
    return number


def _layers(kind: type[torch.nn.Module] = _Block) -> Any:
    return torch.nn.Sequential(*(kind() for _ in range(_BLOCKS))).to("cuda" if on_gpu() else "cpu")


def _of_gpu(small: Any) -> dict[str, Any]:
    """What a graph costs the host and its GPU; and bandwidths, bytes a microsecond."""
    found: dict[str, Any] = {}
    for count in (20, 220):
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            for _ in range(count):
                small.add_(1.0)
        graph.replay()
        found[f"graph_{count}"] = host_us(graph.replay, _TIMES)
        found[f"graph_{count}_device"] = timed_us([graph.replay], 1)
    with suppress(RuntimeError, AttributeError):  # another profiler may hold the GPU
        found["operator_recorded"], found["kernel_recorded"] = _recorded(small)
    for name, size in (("dram", 1 << 28), ("l2", 1 << 22)):
        own = torch.zeros(size // 4, device="cuda")
        found[f"{name}_bandwidth"] = 2 * size / timed_us([partial(own.mul_, 1.0)], 1)
    there = torch.zeros(1 << 25, device="cuda")
    for name, pinned in (("copy", True), ("pageable", False)):
        here = torch.zeros(1 << 25, pin_memory=pinned)
        found[f"{name}_bandwidth"] = (1 << 27) / timed_us([partial(there.copy_, here, non_blocking=pinned)], 1)
    return found


def _fetched_us(size: int) -> float:
    """Microseconds in which a batch of so many bytes that a worker has ready is taken and moved to the device, less
    those of one that this process holds."""
    where = "cuda" if on_gpu() else "cpu"
    held = [torch.zeros(size, dtype=torch.uint8) for _ in range(_FETCHES)]
    loader = torch.utils.data.DataLoader(_Batches(size), batch_size=None, num_workers=2)
    took, own, batches = [], [], iter(loader)
    for one in held:
        time.sleep(_READY_S)
        began = time.perf_counter()
        next(batches).to(where)
        between = time.perf_counter()
        one.to(where)
        took.append((between - began) * 1e6)
        own.append((time.perf_counter() - between) * 1e6)
    return median(took) - median(own)


def _recorded(small: Any) -> tuple[list[float], float]:
    """What an operator takes the host while it is recorded, and its kernel by the record, in microseconds."""
    from torch.profiler import ProfilerActivity, profile

    with torch.no_grad(), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        took = host_us(lambda: small.add_(1.0))
    times = sorted(event.device_time for event in recorded.events() if event.device_type.name == "CUDA")
    return took, float(times[len(times) // 2]) if times else 0.0


def regions() -> dict[str, Any]:
    """What the host takes for layers that are compiled one by one, without and with gradients: microseconds of all."""
    found: dict[str, Any] = {"blocks": _BLOCKS}
    for name, trains in _PASSES.items():
        layers, compiled = _layers(), _layers()
        for layer in compiled:
            layer.compile(dynamic=False)
        calls = {name: _stepper(layers, trains, False), f"{name}_compiled": _stepper(compiled, trains, False)}
        found |= in_turns(calls, name)
    return found
