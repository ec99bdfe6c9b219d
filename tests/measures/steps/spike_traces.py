"""Training loops simulated launch by launch, with one slow step: what was planted, and where, is known."""

import random
from dataclasses import dataclass, field
from typing import Any, Final

from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import Trace

US, MS = 1_000, 1_000_000
KINDS: Final = ("gc", "allocator_retry", "checkpoint", "slow_batch", "recompile")


@dataclass
class Loop:
    """A host that runs ahead of one GPU. `now` is the host's time, `free` when the GPU has nothing left to do."""

    chance: random.Random
    now: int = 0
    free: int = 0
    calls: list[dict[str, Any]] = field(default_factory=list)
    ops: list[dict[str, Any]] = field(default_factory=list)
    ranges: list[dict[str, Any]] = field(default_factory=list)

    def about(self, length_ns: int) -> int:
        return int(length_ns * self.chance.uniform(0.97, 1.03))

    def call(self, name: str, length_ns: int, correlation: int | None = None) -> None:
        end = self.now + self.about(length_ns)
        self.calls.append({"name": name, "start_ns": self.now, "end_ns": end, "correlation": correlation})
        self.now = end

    def range(self, name: str, length_ns: int) -> None:
        start = self.now
        self.now += self.about(length_ns)
        self.mark(name, start)

    def mark(self, name: str, start: int) -> None:
        self.ranges.append({"name": name, "start_ns": start, "end_ns": self.now, "depth": 0})

    def launch(self, name: str, length_ns: int, **copy: Any) -> None:
        number = len(self.ops) + 1
        self.call("cudaMemcpyAsync" if copy else "cudaLaunchKernel", 5 * US, number)
        start = max(self.now + 3 * US, self.free + 1 * US)
        self.free = start + self.about(length_ns)
        kind = "copy" if copy else "kernel"
        self.ops.append(
            {"name": name, "kind": kind, "start_ns": start, "end_ns": self.free, "correlation": number, **copy}
        )

    def wait(self) -> None:
        self.call("cudaStreamSynchronize", max(self.free - self.now, 0) + 2 * US)

    def strike(self, kind: str, length_ns: int) -> None:
        """The planted cause, about `length_ns` long once the device has nothing left to do."""
        if kind == "gc":
            self.range("Python GC", length_ns)
        elif kind == "recompile":
            self.range("_compile.compile_inner (dynamo_timed)", length_ns)
        elif kind == "allocator_retry":
            self.wait()
            for name in ("cudaFree",) * 6 + ("cudaMalloc",) * 2:
                self.call(name, length_ns // 8)
        elif kind == "checkpoint":
            for _ in range(8):
                to_host = {"bytes": 16 << 20, "copy_kind": "d2h", "src_memory": "device", "dst_memory": "pageable"}
                self.launch("Memcpy DtoH (Device -> Pageable)", length_ns // 24, **to_host)
                self.wait()
            self.now += self.about(length_ns * 2 // 3)

    def trace(self) -> Trace:
        place = {"rank": 0, "process": 1}
        ops = [{"bytes": None, "copy_kind": None, "src_memory": None, "dst_memory": None, **op} for op in self.ops]
        tables = {
            DEVICE_OPS: DEVICE_OPS.build({**place, "device": 0, "stream": 7, **columns(ops)}),
            API_CALLS: API_CALLS.build({**place, "thread": 1, **columns(self.calls)}),
            RANGES: RANGES.build({**place, "thread": 1, "kind": "push_pop", **columns(self.ranges)}),
        }
        return Trace("simulated", tables)


def columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def slowed(seed: int, factor: float) -> tuple[Trace, int]:
    """A loop in which all kernels of one step take longer by one factor."""
    return simulated(seed, None, clock=factor)


def simulated(
    seed: int, kind: str | None, steps: int = 40, clock: float = 1.0, load_ns: int = 30 * US, kernels: int = 1
) -> tuple[Trace, int]:
    """A loop whose step number `at` is slow for the reason `kind`, and `at`; without a kind all steps are alike.

    Each step takes `load_ns` to fetch its batch; `kernels` are so many times as long.
    """
    chance = random.Random(seed)
    loop = Loop(chance)
    at = chance.randrange(4, steps - 3) if steps > 7 else chance.randrange(1, steps - 1)
    lengths = [kernels * chance.randrange(8, 120) * US for _ in range(chance.randrange(8, 16))]
    step_ns, read_every = sum(lengths) + len(lengths) * 10 * US, chance.choice((1, 4, 8) if steps > 13 else (1, 4))
    length_ns = int((read_every + 1 + chance.uniform(1.0, 20.0)) * step_ns)
    for number in range(steps):
        begin, strikes = loop.now, kind is not None and number == at
        slow_batch = strikes and kind == "slow_batch"
        loop.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", load_ns + slow_batch * length_ns)
        place = chance.randrange(len(lengths))
        for index, kernel_ns in enumerate(lengths):
            if strikes and index == place and kind is not None:
                loop.chance = random.Random(seed)  # all other steps are as without it
                loop.strike(kind, length_ns)
                loop.chance = chance
            loop.now += loop.about(4 * US)
            loop.launch(f"kernel_{index}", int(kernel_ns * (clock if number == at else 1.0)))
        if number % read_every == 0:
            loop.wait()
        loop.mark(f"ProfilerStep#{number}", begin)
    return loop.trace(), at
