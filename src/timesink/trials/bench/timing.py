"""How a call is timed: microseconds of the device, on which the host has put all calls before the first begins; and
microseconds of the host."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any, Final

import torch

_REPEATS: Final = 5
_LEAST_S: Final = 0.004  # of the device, in each repeat
_QUEUED: Final = 400  # launches that a stream takes before the host has to wait
_CYCLES_PER_S: Final = 2.0e9  # of the GPU's clock, at most
_CPU_S: Final = 0.02
_MANY: Final = 200
_TURNS, _IN_A_TURN = 40, 3

Call = Callable[[], Any]
Question = dict[str, Any]


def on_gpu() -> bool:
    """Whether operators are run on a GPU: else on the CPU, as tests do."""
    return bool(torch.cuda.is_available())


def synchronize() -> None:
    """Wait for the device."""
    if on_gpu():
        torch.cuda.synchronize()


def timed_us(calls: Sequence[Call], launches: int = 4) -> float:
    """Microseconds of one call, each with operands of its own: the median of some repeats."""
    for call in calls[:3]:
        call()
    synchronize()
    began = time.perf_counter()
    calls[0]()
    queued_s = time.perf_counter() - began
    synchronize()
    once_s = max(time.perf_counter() - began, 1e-6)
    if not on_gpu():
        return _timed_by_host(calls, once_s)
    most = max(_QUEUED // launches, 1)
    count = max(1, min(most, int(_LEAST_S / once_s) + 1))
    count = min(max(count, len(calls)), most)
    times = []
    for _ in range(_REPEATS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int((2e-4 + 1.5 * count * queued_s) * _CYCLES_PER_S))  # the host is ahead when it ends
        begin.record()
        for number in range(count):
            calls[number % len(calls)]()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / count)
    return float(median(times))


def _timed_by_host(calls: Sequence[Call], once_s: float) -> float:
    count, times = max(1, min(50, int(_CPU_S / once_s))), []
    for _ in range(3):
        began = time.perf_counter()
        for number in range(count):
            calls[number % len(calls)]()
        times.append((time.perf_counter() - began) * 1e6 / count)
    return median(times)


def host_us(call: Call, count: int = _MANY) -> list[float]:
    """Microseconds of the host for a call: the tenth, fiftieth and ninetieth percentile, the device always idle."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e6)
        if len(times) % 20 == 0:
            synchronize()
    synchronize()
    return _percentiles(times)


def in_turns(calls: dict[str, Call], base: str, rounds: int = _TURNS) -> dict[str, list[float]]:
    """Microseconds of the host for each of some calls, made in turns, as three percentiles; and as `NAME more` what it
    takes more than the call `base` of the same turn, which says more where the host's speed changes meanwhile."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            synchronize()
            began = time.perf_counter()
            for _ in range(_IN_A_TURN):
                call()
            if number:
                times[name].append((time.perf_counter() - began) * 1e6 / _IN_A_TURN)
    more = {f"{name} more": [own - of for own, of in zip(times[name], times[base], strict=True)] for name in calls}
    return {name: _percentiles(found) for name, found in (times | more).items()}


def _percentiles(times: list[float]) -> list[float]:
    times = sorted(times)
    return [times[int(share * (len(times) - 1))] for share in (0.1, 0.5, 0.9)]


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """fp32 products as TF32 or not."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32, cudnn.allow_tf32 = allowed, allowed
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def is_sticky(error: BaseException) -> bool:
    """Whether the GPU answers nothing any more."""
    return any(words in str(error) for words in ("illegal memory access", "device-side assert", "misaligned address"))
