"""A pipeline of two GPUs that logs its stages: encode and decode on rank 0, transform on rank 1.

``torchrun --nproc-per-node 2 program.py OUT [DEPTH...]``: for each number of items in flight a log without a profiler,
and a log and a trace of the same items. An item enters when the one DEPTH before it has come back; each way has a
process group of its own, so that a receive may wait while another message leaves. The thread is one item ahead of its
GPU. ``WORK=8,15,12`` are the products of encode, transform and decode.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from timesink.capture.stage_log import StageLog, stages

CUDA = torch.cuda.is_available()
SIZE = 4096 if CUDA else 64
ENCODE, TRANSFORM, DECODE = (int(text) for text in os.environ.get("WORK", "8,15,12").split(","))  # products an item
PLAIN, TRACED, WARM = 60, 20, 12  # items
DEVICE, DTYPE = ("cuda", torch.bfloat16) if CUDA else ("cpu", torch.float32)
Work = Callable[[int], Any]


def worked(value: torch.Tensor, weight: torch.Tensor, products: int) -> torch.Tensor:
    for _ in range(products):
        value = torch.mm(value, weight)
    return value


def first(log: Any, depth: int, items: int, stepped: Callable[[], None], groups: tuple[Any, Any]) -> None:
    """Rank 0: encode, send, and decode what came back."""
    there, back = groups
    frame = torch.randn(SIZE, SIZE, device=DEVICE, dtype=DTYPE)
    weight = torch.eye(SIZE, device=DEVICE, dtype=DTYPE)
    results = [torch.empty_like(frame) for _ in range(depth + 1)]
    away: deque[tuple[int, Any]] = deque()
    sent: deque[Any] = deque(maxlen=depth + 1)

    def decode() -> None:
        item, received = away.popleft()
        with log.recv(item):
            received.wait()
        with log.stage("decode", item):
            worked(results[item % len(results)], weight, DECODE)
        stepped()

    for item in range(items):
        with log.stage("encode", item):
            latent = worked(frame, weight, ENCODE)
        sent.append(dist.isend(latent, 1, group=there))
        away.append((item, dist.irecv(results[item % len(results)], 1, group=back)))
        if len(away) == depth:
            decode()
    while away:
        decode()
    for message in sent:
        message.wait()


def second(log: Any, depth: int, items: int, stepped: Callable[[], None], groups: tuple[Any, Any]) -> None:
    """Rank 1: transform; the next message may come in meanwhile."""
    there, back = groups
    weight = torch.eye(SIZE, device=DEVICE, dtype=DTYPE)
    frames = [torch.empty(SIZE, SIZE, device=DEVICE, dtype=DTYPE) for _ in range(2)]
    coming = dist.irecv(frames[0], 0, group=there)
    sent: deque[Any] = deque(maxlen=depth + 1)
    for item in range(items):
        with log.recv(item):
            coming.wait()
        if item + 1 < items:
            coming = dist.irecv(frames[(item + 1) % 2], 0, group=there)
        with log.stage("transform", item):
            result = worked(frames[item % 2], weight, TRANSFORM)
        sent.append(dist.isend(result, 0, group=back))
        stepped()
    for message in sent:
        message.wait()


class Pace:
    """Called after each item: waits until the GPU is through with the one before, as programs that emit items do."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        self.stepped = stepped
        self.before: torch.cuda.Event | None = None

    def __call__(self) -> None:
        if CUDA:
            now = torch.cuda.Event()
            now.record()
            if self.before is not None:
                self.before.synchronize()
            self.before = now
        self.stepped()


class NoLog:
    """In place of a log: nothing is recorded."""

    def stage(self, _name: str, _item: int) -> Any:
        return nullcontext()

    recv = send = lambda self, _item: nullcontext()


class Ranged:
    """A log whose parts are ranges of the profiler too."""

    def __init__(self, log: StageLog, rank: int) -> None:
        self.log, self.rank = log, rank

    @contextmanager
    def stage(self, name: str, item: int) -> Iterator[None]:
        with record_function(f"pp:stage{self.rank}:{name}"), self.log.stage(name, item):
            yield

    def send(self, item: int) -> Any:
        return self.log.send(item)

    def recv(self, item: int) -> Any:
        return self.log.recv(item)


def synchronize() -> None:
    if CUDA:
        torch.cuda.synchronize()


def timed(side: Callable[..., None], log: Any, depth: int, items: int, groups: tuple[Any, Any]) -> float:
    """Seconds of `items` items, from a barrier to the end of the work of this rank."""
    dist.barrier()
    synchronize()
    begin = time.perf_counter()
    side(log, depth, items, Pace(lambda: None), groups)
    synchronize()
    return time.perf_counter() - begin


def costs_of_events() -> None:
    """What the calls cost that make up a mark of the device."""
    base = torch.cuda.Event.__base__
    free = [torch.cuda.Event(enable_timing=True) for _ in range(200)]
    stream = torch.cuda.current_stream()
    driver = ctypes.PyDLL("libcuda.so.1")
    driver.cuEventRecord.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    numbers: list[Any] = []
    for name, call in (
        ("torch.cuda.Event", lambda _event: torch.cuda.Event(enable_timing=True)),
        ("first record", lambda event: event.record(stream)),
        ("record", lambda event: event.record(stream)),
        ("record in C", lambda event: base.record(event, stream)),
        ("cuda_event", lambda event: numbers.append(event.cuda_event)),
        ("cuEventRecord", lambda _event: driver.cuEventRecord(numbers.pop(), stream.cuda_stream)),
        ("current_stream", lambda _event: torch.cuda.current_stream()),
        ("raw stream", lambda _event: torch._C._cuda_getCurrentRawStream(0)),
        ("query", lambda event: event.query()),
        ("synchronize", lambda event: event.synchronize()),
        ("elapsed_time", free[0].elapsed_time),
    ):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for event in free:
            call(event)
        print(f"{name}: {(time.perf_counter_ns() - begin) / len(free):.0f} ns")


def main() -> None:
    faulthandler.dump_traceback_later(60)
    out, depths = Path(sys.argv[1]), [int(text) for text in sys.argv[2:] if text.isdigit()] or [1, 2, 4]
    measured: dict[int, list[float]] = {}
    rank = int(os.environ["RANK"])
    if CUDA:
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    else:
        dist.init_process_group("gloo")
    groups = (dist.new_group([0, 1]), dist.new_group([0, 1]))
    side = first if rank == 0 else second
    connect(rank, groups)
    for depth in depths:
        timed(side, NoLog(), depth, WARM, groups)
        bare_s = [timed(side, NoLog(), depth, PLAIN, groups) for _ in range(3)]
        with stages(out / f"depth{depth}.jsonl", depth=depth) as log:
            logged_s = timed(side, log, depth, PLAIN, groups)
        if rank == 0:
            measured[depth] = [round(1e3 * value / PLAIN, 4) for value in (*bare_s, logged_s)]
            print(f"depth {depth}: {measured[depth][:3]} ms an item, {measured[depth][3]} logged")
        traced(side, depth, out, rank, groups)
    if rank == 0:
        (out / "measured.json").write_text(json.dumps(measured))
        if "--cost" in sys.argv:
            for every in (1, 4, 10):
                cost(out, every)
            costs_of_events()
    dist.destroy_process_group()


def connect(rank: int, groups: tuple[Any, Any]) -> None:
    """Load every kernel and open both ways before a receive waits: loading and connecting wait for the device."""
    value = torch.eye(SIZE, device=DEVICE, dtype=DTYPE)
    worked(value, value, 1)
    for way, sender in zip(groups, (0, 1), strict=True):
        (dist.send if rank == sender else dist.recv)(value, 1 - rank, group=way)
        synchronize()


def traced(side: Callable[..., None], depth: int, out: Path, rank: int, groups: tuple[Any, Any]) -> None:
    """A log and a trace of the same items."""
    dist.barrier()
    with (
        profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if CUDA else [])],
            schedule=schedule(wait=2, warmup=2, active=TRACED - 8, repeat=1),
            on_trace_ready=lambda done: done.export_chrome_trace(str(out / f"depth{depth}.rank{rank}.json")),
        ) as profiler,
        stages(out / f"traced{depth}.jsonl", depth=depth) as log,
    ):
        side(Ranged(log, rank), depth, TRACED, Pace(profiler.step), groups)
        synchronize()


def cost(out: Path, every: int) -> None:
    """What an item of two parts costs the thread that logs it, between kernels that it launches; and what is left."""
    log = stages(out / "cost.jsonl", every=every)
    value = torch.ones(256, 256, device=DEVICE)
    each: list[int] = []
    for item in range(2000):
        value.mul_(1.0)
        begin = time.perf_counter_ns()
        with log.stage("a"):
            pass
        with log.stage("b"):
            pass
        each.append(time.perf_counter_ns() - begin)
        if item % 20 == 19:  # a program whose items take milliseconds does not fill the device's queue with marks
            synchronize()
    spilled = [value for value in each if value > 1_000_000]
    rest = sorted(value for value in each if value <= 1_000_000)
    mean, median, p99 = sum(rest) / len(rest), rest[len(rest) // 2], rest[int(0.99 * len(rest))]
    print(
        f"two of {every} items timed: mean {mean:.0f}, median {median}, p99 {p99} ns; {len(spilled)} spilled {spilled}"
    )
    begin = time.perf_counter_ns()
    log.close()
    print(f"close: {(time.perf_counter_ns() - begin) / 2000:.0f} ns an item of two parts")


if __name__ == "__main__":
    main()
