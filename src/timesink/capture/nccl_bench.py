"""How long collectives take on these GPUs: one process a GPU, as torchrun starts them, on PyTorch and its NCCL.

``torchrun --nproc-per-node 2 nccl_bench.py PLAN OUT``. PLAN is JSON, ``{"calls": [["allreduce", 26214400], ...]}``: a
kind and the size of nccl-tests (the whole array: what an all-gather puts out and a reduce-scatter takes in). Rank 0
writes OUT. ``time_ns`` is the time of nccl-tests: calls one after another, their time over their number, the mean of
the ranks; of several such blocks the median. The calls of a block wait behind a kernel until all of them are launched:
else small messages take what launching them takes, which moves by half from run to run (nccl-tests: ``-G`` with
``NCCL_GRAPH_REGISTER=0``). Without a GPU the calls are those of gloo.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

KINDS: Final = ("allreduce", "allgather", "reducescatter", "sendrecv", "send")
FORMAT: Final = "timesink_nccl_bench"
_BLOCKS: Final = 5
_BLOCK_NS: Final = 20_000_000  # of calls: long against the clock, short for people
_CALLS: Final = (5, 200)  # of a block, at least and at most; the driver takes about 1,000 launches ahead
_CYCLES_PER_NS: Final = 2.0  # of the fastest clocks: a kernel that waits some cycles too long costs little
_SURE: Final = 1.5  # a wait longer than launching took the last time
_WARM: Final = 5
_ITEM: Final = 2  # bytes of a number
_BFLOAT16, _SUM = 9, 0  # of nccl.h

Call = Callable[[], object]


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_byte * 128),)


class Nccl:
    """NCCL's calls over all ranks of the job, on PyTorch's current stream."""

    def __init__(self, torch: Any, dist: Any) -> None:
        self.torch, self.rank, self.ranks = torch, dist.get_rank(), dist.get_world_size()
        self.library = ctypes.CDLL("libnccl.so.2")  # the one that PyTorch has loaded
        unique = _UniqueId()
        if self.rank == 0:
            self.done(self.library.ncclGetUniqueId(ctypes.byref(unique)))
        sent = [bytes(unique)]
        dist.broadcast_object_list(sent)
        self.comm = ctypes.c_void_p()
        known = _UniqueId.from_buffer_copy(sent[0])
        self.done(self.library.ncclCommInitRank(ctypes.byref(self.comm), self.ranks, known, self.rank))

    def done(self, code: int) -> None:
        """Raise for a call that failed."""
        if code:
            raise RuntimeError(f"NCCL call failed with {code}; run again with NCCL_DEBUG=WARN")

    def call(self, kind: str, size: int, arrays: list[Any]) -> Call:
        """One collective of `size` bytes, from the first array into the second; the next one takes the next part of
        both, as those of nccl-tests do: what was exchanged before may lie in the cache."""
        whole = max(size // _ITEM // self.ranks, 1) * self.ranks
        part = whole // self.ranks
        steps = min(arrays[0].numel() // whole, _CALLS[1])
        first = [array.data_ptr() for array in arrays]
        places = cycle([[ctypes.c_void_p(at + step * whole * _ITEM) for at in first] for step in range(steps)])
        names = {"allreduce": ("ncclAllReduce", whole, (_SUM,)), "allgather": ("ncclAllGather", part, ()),
                 "reducescatter": ("ncclReduceScatter", part, (_SUM,))}  # fmt: skip
        if kind not in names:
            return self._messages(kind, whole, places)
        name, count, operation = names[kind]
        function, comm, stream_of = getattr(self.library, name), self.comm, self._stream

        def collective() -> None:
            self.done(function(*next(places), ctypes.c_size_t(count), _BFLOAT16, *operation, comm, stream_of()))

        return collective

    def _messages(self, kind: str, count: int, places: Iterator[Sequence[ctypes.c_void_p]]) -> Call:
        """`sendrecv`: each rank sends to the next; `send`: the first rank to the second only."""
        following, before = (self.rank + 1) % self.ranks, (self.rank - 1) % self.ranks
        both = kind == "sendrecv"
        sends, receives = both or self.rank == 0, both or self.rank == 1
        library, number = self.library, ctypes.c_size_t(count)

        def messages() -> None:
            stream, (source, target) = self._stream(), next(places)
            self.done(library.ncclGroupStart())
            if sends:
                self.done(library.ncclSend(source, number, _BFLOAT16, following, self.comm, stream))
            if receives:
                self.done(library.ncclRecv(target, number, _BFLOAT16, before, self.comm, stream))
            self.done(library.ncclGroupEnd())

        return messages

    def _stream(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)


def main() -> None:
    """Measure what the plan lists; rank 0 writes what was measured."""
    import torch
    import torch.distributed as dist

    plan, out = json.loads(Path(sys.argv[1]).read_text("utf-8")), Path(sys.argv[2])
    has_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("gloo")
    most = max((size for _, size in plan["calls"]), default=0)
    arrays = [torch.zeros(most // _ITEM + dist.get_world_size(), dtype=torch.bfloat16, device=device) for _ in range(2)]
    nccl = Nccl(torch, dist) if has_gpu else None
    measured = []
    for kind, size in plan["calls"]:
        call = _gloo_call(dist, kind, size, arrays) if nccl is None else nccl.call(kind, size, arrays)
        measured.append({"kind": kind, "bytes": size, "time_ns": _time_ns(torch, dist, call)})
    if dist.get_rank() == 0:
        out.write_text(json.dumps(_head(torch, dist, has_gpu) | {"calls": measured}) + "\n", encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _head(torch: Any, dist: Any, has_gpu: bool) -> dict[str, object]:
    """What the figures hold for."""
    ranks, local = dist.get_world_size(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return {
        FORMAT: 1,
        "ranks": ranks,
        "hosts": max(1, ranks // local),
        "gpu": torch.cuda.get_device_name() if has_gpu else None,
        "library": f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if has_gpu else "gloo",
        "torch": torch.__version__,
    }


def _gloo_call(dist: Any, kind: str, size: int, arrays: list[Any]) -> Call:
    """The same call by gloo, for machines without a GPU."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    count = max(size // _ITEM // ranks, 1) * ranks
    whole, other = arrays[0][:count], arrays[1][:count]
    parts = list(whole.chunk(ranks))
    ways = [dist.P2POp(dist.isend, whole, (rank + 1) % ranks), dist.P2POp(dist.irecv, other, (rank - 1) % ranks)]
    one_way = (lambda: dist.send(whole, 1), lambda: dist.recv(other, 0), lambda: None)[min(rank, 2)]
    return {
        "allreduce": lambda: dist.all_reduce(whole),
        "allgather": lambda: dist.all_gather(parts, other[: count // ranks]),
        "reducescatter": lambda: dist.all_reduce(whole),  # gloo has none in every version
        "sendrecv": lambda: [work.wait() for work in dist.batch_isend_irecv(ways)],
        "send": one_way,
    }[kind]


def _time_ns(torch: Any, dist: Any, call: Call) -> float:
    """Nanoseconds of a call."""
    block = _device_block(torch, call) if torch.cuda.is_available() else _host_block(call)
    for _ in range(_WARM):
        call()

    def block_ns(count: int) -> float:
        dist.barrier()
        total = torch.tensor([block(count) / count], dtype=torch.float64)
        dist.all_reduce(total)
        return float(total.item() / dist.get_world_size())

    count = int(min(max(_BLOCK_NS / block_ns(_CALLS[0]), _CALLS[0]), _CALLS[1]))  # the same on all ranks
    return statistics.median(block_ns(count) for _ in range(_BLOCKS))


def _host_block(call: Call) -> Callable[[int], float]:
    """Nanoseconds of so many calls, one after another."""

    def block(count: int) -> float:
        begin = time.perf_counter_ns()
        for _ in range(count):
            call()
        return time.perf_counter_ns() - begin

    return block


def _device_block(torch: Any, call: Call) -> Callable[[int], float]:
    """Nanoseconds that the device takes for so many calls, all launched before the first of them begins."""
    launch_ns = 1e5  # of a call at first sight; then what it took

    def block(count: int) -> float:
        nonlocal launch_ns
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(int(_CYCLES_PER_NS * (count + 1) * launch_ns))
        call()  # the ranks meet here
        begin.record()
        launched = time.perf_counter_ns()
        for _ in range(count):
            call()
        launch_ns = _SURE * (time.perf_counter_ns() - launched) / count
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end) * 1e6)

    return block


def check_launcher(launcher: Sequence[str]) -> None:
    """`CaptureError` where nothing is there to start processes with."""
    from timesink.capture.errors import refused

    if not launcher:
        raise refused("no launcher to run", "write it after --: torchrun --nproc-per-node=2")
    if shutil.which(launcher[0]) is None:
        raise refused(f"there is no program {launcher[0]!r}", "check the path")


def run_bench(launcher: Sequence[str], calls: Sequence[tuple[str, int]], out: Path, timeout_s: float) -> dict[str, Any]:
    """Start this file by a launcher such as torchrun, and read what it wrote; `CaptureError` where it wrote nothing."""
    from timesink.capture.errors import failure

    check_launcher(launcher)
    with TemporaryDirectory() as folder:
        plan, written = Path(folder) / "plan.json", Path(folder) / "measured.json"
        plan.write_text(json.dumps({"calls": [list(call) for call in calls]}), encoding="utf-8")
        try:
            argv = [*launcher, __file__, str(plan), str(written)]
            ended = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired as error:
            what = f"collectives took more than {timeout_s:g} s"
            raise failure(what, "fewer sizes, or a longer --timeout") from error
        if not written.is_file():
            said = (ended.stderr or ended.stdout).strip().splitlines()[-1:] or ["nothing said why"]
            raise failure(f"the launcher ended with {ended.returncode}: {said[0]}", "start it alone")
        text = written.read_text("utf-8")
    out.write_text(text, encoding="utf-8")
    measured: dict[str, Any] = json.loads(text)
    return measured


if __name__ == "__main__":
    del sys.path[0]  # this file's folder: its modules have names of others
    main()
