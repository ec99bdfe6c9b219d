"""The machine a program runs on: a CUDA device, or the CPU with tiny sizes, to try every builder without a GPU.

Under torchrun it is one rank of a job: its device, and what the ranks do together.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

import torch
import torch.distributed as dist
from torch import Tensor

REPLAY_WARMUPS = 3
PEERS_LIMIT = timedelta(seconds=60)
"""How long ranks wait for each other before the job is given up."""


class Ranges(StrEnum):
    """Which tool, if any, sees the program's phases."""

    OFF = "off"
    NVTX = "nvtx"
    PROFILER = "profiler"


@dataclass(frozen=True, slots=True)
class Machine:
    device: torch.device
    tiny: bool = False
    ranges: Ranges = Ranges.OFF
    rank: int = 0
    ranks: int = 1

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    def size(self, full: int, tiny: int = 8) -> int:
        """`full`, or at most `tiny` on the CPU."""
        return min(full, tiny) if self.tiny else full

    @contextmanager
    def phase(self, name: str, own: bool = False) -> Iterator[None]:
        """Mark a phase: always for NVTX; for torch.profiler only an author's `own` range: it names others itself."""
        if self.ranges is Ranges.NVTX and self.cuda:
            torch.cuda.nvtx.range_push(name)
            try:
                yield
            finally:
                torch.cuda.nvtx.range_pop()
        elif self.ranges is Ranges.PROFILER and own:
            with torch.profiler.record_function(name):
                yield
        else:
            yield

    def synchronize(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def meet(self) -> None:
        """The device is done, and so are those of all ranks."""
        self.synchronize()
        if self.ranks > 1:
            dist.barrier()
            self.synchronize()

    def slowest(self, value: float) -> float:
        """The largest of all ranks' values."""
        return self._together(value, dist.ReduceOp.MAX)

    def total(self, value: Tensor) -> float:
        """The sum of all ranks' values."""
        return self._together(float(value), dist.ReduceOp.SUM)

    def _together(self, value: float, how: dist.ReduceOp.RedOpType) -> float:
        if self.ranks == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(shared, op=how)
        return float(shared)

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
        """Normal numbers made on the device; the same for the same shape, type and seed."""
        generator = torch.Generator(self.device).manual_seed(seed)
        return torch.randn(*shape, generator=generator, device=self.device, dtype=torch.float32).to(dtype)

    def pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.cuda else tensor

    def stream(self) -> torch.cuda.Stream | None:
        return torch.cuda.Stream() if self.cuda else None

    def on(self, stream: torch.cuda.Stream | None) -> AbstractContextManager[object]:
        return torch.cuda.stream(stream) if stream is not None else nullcontext()

    def join(self, waiting: torch.cuda.Stream | None, source: torch.cuda.Stream | None) -> None:
        """Let `waiting` (None: the current stream) wait for what `source` (None: the current stream) holds now."""
        if self.cuda:
            current = torch.cuda.current_stream()
            (waiting or current).wait_stream(source or current)

    def graphed(self, work: Callable[[], Tensor], warmups: int = REPLAY_WARMUPS) -> Callable[[], Tensor]:
        """`work` as a CUDA graph, after `warmups` ordinary runs; on the CPU, after these, `work` itself."""
        if not self.cuda:
            for _ in range(warmups):
                work()
            return work
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warmups):
                work()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = work()

        held = (graph, work)  # the graph reads the weights that `work` holds: they must live as long as it does

        def replay() -> Tensor:
            held[0].replay()
            return result

        return replay


def choose(ranges: Ranges, dry: bool) -> Machine:
    """The GPU, or with `dry` the CPU at tiny sizes; of a job under torchrun, this rank's."""
    if not dry and not torch.cuda.is_available():
        raise SystemExit("no CUDA device is visible; --dry runs tiny sizes on the CPU")
    device = torch.device("cpu" if dry else "cuda")
    if "LOCAL_RANK" not in os.environ:
        return Machine(device, tiny=dry, ranges=ranges)
    if dry:
        dist.init_process_group("gloo", timeout=PEERS_LIMIT)
    else:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device, timeout=PEERS_LIMIT)
    return Machine(device, dry, ranges, dist.get_rank(), dist.get_world_size())


def leave() -> None:
    """Part from the other ranks, where there are any."""
    if dist.is_initialized():
        dist.destroy_process_group()


def reset() -> None:
    """Undo what a program may have set for the whole process, and free its memory."""
    gc.unfreeze()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()  # compiled code is kept by source, and severities share theirs
    gc.collect()
    torch.set_float32_matmul_precision("highest")
    if torch.cuda.is_available():
        torch.backends.cudnn.allow_tf32 = False
        torch.cuda.empty_cache()
