"""A pipeline of two GPUs that logs its stages: encode and decode on rank 0, transform on rank 1.

``torchrun --nproc-per-node 2 program.py OUT [DEPTH...]``: for each number of items in flight a log without a profiler,
and a log and a trace of the same items. An item enters when the one DEPTH before it has come back; each way has a
process group of its own, so that a receive may wait while another message leaves. The thread is one item ahead of its
GPU.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from timesink.capture.stage_log import StageLog, stages

SIZE, ENCODE, TRANSFORM, DECODE = 4096, 8, 15, 12  # products an item
PLAIN, TRACED, WARM = 60, 24, 12  # items
Work = Callable[[int], Any]


def worked(value: torch.Tensor, weight: torch.Tensor, products: int) -> torch.Tensor:
    for _ in range(products):
        value = torch.mm(value, weight)
    return value


def first(log: Any, depth: int, items: int, stepped: Callable[[], None], groups: tuple[Any, Any]) -> None:
    """Rank 0: encode, send, and decode what came back."""
    there, back = groups
    frame = torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16)
    weight = torch.eye(SIZE, device="cuda", dtype=torch.bfloat16)
    results = [torch.empty_like(frame) for _ in range(depth + 1)]
    away: deque[tuple[int, Any]] = deque()

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
        dist.isend(latent, 1, group=there)
        away.append((item, dist.irecv(results[item % len(results)], 1, group=back)))
        if len(away) == depth:
            decode()
    while away:
        decode()


def second(log: Any, depth: int, items: int, stepped: Callable[[], None], groups: tuple[Any, Any]) -> None:
    """Rank 1: transform; the next message may come in meanwhile."""
    there, back = groups
    weight = torch.eye(SIZE, device="cuda", dtype=torch.bfloat16)
    frames = [torch.empty(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    coming = dist.irecv(frames[0], 0, group=there)
    for item in range(items):
        with log.recv(item):
            coming.wait()
        if item + 1 < items:
            coming = dist.irecv(frames[(item + 1) % 2], 0, group=there)
        with log.stage("transform", item):
            result = worked(frames[item % 2], weight, TRANSFORM)
        dist.isend(result, 0, group=back)
        stepped()


class Pace:
    """Called after each item: waits until the GPU is through with the one before, as programs that emit items do."""

    def __init__(self, stepped: Callable[[], None]) -> None:
        self.stepped = stepped
        self.before: torch.cuda.Event | None = None

    def __call__(self) -> None:
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


def timed(side: Callable[..., None], log: Any, depth: int, items: int, groups: tuple[Any, Any]) -> float:
    """Seconds of `items` items, from a barrier to the end of the work of this rank."""
    dist.barrier()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    side(log, depth, items, Pace(lambda: None), groups)
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def costs_of_events() -> None:
    """What the calls cost that make up a mark of the device."""
    free = [torch.cuda.Event(enable_timing=True) for _ in range(1000)]
    stream = torch.cuda.current_stream()
    for name, call in (
        ("torch.cuda.Event", lambda _event: torch.cuda.Event(enable_timing=True)),
        ("record", lambda event: event.record(stream)),
        ("current_stream", lambda _event: torch.cuda.current_stream()),
        ("record again", lambda event: event.record(stream)),
        ("query", lambda event: event.query()),
        ("synchronize", lambda event: event.synchronize()),
        ("elapsed_time", free[0].elapsed_time),
    ):
        begin = time.perf_counter_ns()
        for event in free:
            call(event)
        print(f"{name}: {(time.perf_counter_ns() - begin) / len(free):.0f} ns")


def main() -> None:
    faulthandler.dump_traceback_later(60)
    out, depths = Path(sys.argv[1]), [int(text) for text in sys.argv[2:]] or [1, 2, 4]
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    groups = (dist.new_group([0, 1]), dist.new_group([0, 1]))
    side = first if rank == 0 else second
    connect(rank, groups)
    for depth in depths:
        timed(side, NoLog(), depth, WARM, groups)
        bare_s = [timed(side, NoLog(), depth, PLAIN, groups) for _ in range(3)]
        with stages(out / f"depth{depth}.jsonl", depth=depth) as log:
            logged_s = timed(side, log, depth, PLAIN, groups)
        if rank == 0:
            print(f"depth {depth}: {1e3 * min(bare_s) / PLAIN:.3f} ms an item, {1e3 * logged_s / PLAIN:.3f} logged")
        traced(side, depth, out, rank, groups)
    if rank == 0:
        cost(out)
        costs_of_events()
    dist.destroy_process_group()


def connect(rank: int, groups: tuple[Any, Any]) -> None:
    """Load every kernel and open both ways before a receive waits: loading and connecting wait for the device."""
    value = torch.eye(SIZE, device="cuda", dtype=torch.bfloat16)
    worked(value, value, 1)
    for way, sender in zip(groups, (0, 1), strict=True):
        (dist.send if rank == sender else dist.recv)(value, 1 - rank, group=way)
        torch.cuda.synchronize()


def traced(side: Callable[..., None], depth: int, out: Path, rank: int, groups: tuple[Any, Any]) -> None:
    """A log and a trace of the same items."""
    from torch.profiler import ProfilerActivity, profile, schedule

    dist.barrier()
    with (
        profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
            schedule=schedule(wait=2, warmup=2, active=TRACED - 8, repeat=1),
            on_trace_ready=lambda done: done.export_chrome_trace(str(out / f"depth{depth}.rank{rank}.json")),
        ) as profiler,
        stages(out / f"traced{depth}.jsonl", depth=depth) as log,
    ):
        side(log, depth, TRACED, Pace(profiler.step), groups)
        torch.cuda.synchronize()


def cost(out: Path) -> None:
    """What an item of two parts costs the thread that logs it."""
    log: StageLog = stages(out / "cost.jsonl")
    for _ in range(3):
        begin = time.perf_counter_ns()
        for _ in range(2000):
            with log.stage("a"):
                pass
            with log.stage("b"):
                pass
        print(f"{(time.perf_counter_ns() - begin) / 2000:.0f} ns an item of two parts, device time")
    log.close()


if __name__ == "__main__":
    main()
