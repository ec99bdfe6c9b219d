"""The machine a program runs on: a CUDA device, or the CPU with tiny sizes, to try every builder without a GPU."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

REPLAY_WARMUPS = 3


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
    """The GPU, or with `dry` the CPU at tiny sizes."""
    if dry:
        return Machine(torch.device("cpu"), tiny=True, ranges=ranges)
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device is visible; --dry runs tiny sizes on the CPU")
    return Machine(torch.device("cuda"), ranges=ranges)


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
