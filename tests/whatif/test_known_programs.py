"""Programs on which a longest path over observed gaps goes wrong, with the answer of physics [HTA's in brackets]."""

import numpy as np
import polars as pl
from tests.whatif.programs import Simulated

from timesink.model.tables import API_CALLS, DEVICE_OPS, CopyKind, MemoryKind, OpKind
from timesink.model.trace import Trace
from timesink.whatif import Range, Target
from timesink.whatif.changes.host import ScaleHost
from timesink.whatif.changes.kernels import ScaleKernels
from timesink.whatif.critical_path import path_pieces
from timesink.whatif.graph import Graph
from timesink.whatif.periods import StepWindows
from timesink.whatif.pricing import Pricer

US = 1_000
KERNELS = Target("kernel", "gemm")


def _program(calls: list[tuple[str, int, int]], kernels: list[tuple[int, int, int]]) -> Trace:
    """Calls (name, start, end) in us on one thread; kernels (call, start, end) on one stream."""
    done = Simulated()
    for number, (name, start, end) in enumerate(calls):
        done.calls.append(
            {
                "rank": 0,
                "process": 1,
                "thread": 1,
                "name": name,
                "start_ns": start * US,
                "end_ns": end * US,
                "correlation": number,
            }
        )
    for call, start, end in kernels:
        done.ops.append(
            {"rank": 0, "device": 0, "process": 1, "context": 1, "stream": 7, "kind": "kernel", "name": "gemm",
             "start_ns": start * US, "end_ns": end * US, "correlation": call}
        )  # fmt: skip
    return done.trace()


def _pricer(trace: Trace, until_us: int) -> Pricer:
    return Pricer(Graph.from_trace(trace), StepWindows.alike(np.array([0]), np.array([until_us * US])))


def _on_path(pricer: Pricer, kind: str) -> float:
    return sum(share.ns for share in pricer.path() if share.kind == kind)


def test_python_between_operators_is_the_critical_path() -> None:
    # 10 operators of 200 us host time, each launching a 100 us kernel, 5 ms of Python between them [2 ms, 96 % lost]
    starts = [5_200 * n for n in range(10)]
    trace = _program(
        [("cudaLaunchKernel", s + 190, s + 200) for s in starts], [(n, s + 195, s + 295) for n, s in enumerate(starts)]
    )
    pricer = _pricer(trace, 47_200)
    assert _on_path(pricer, "CPU") == 9 * 5_200 * US  # from the first launch to the last
    faster = pricer.price(ScaleKernels(KERNELS, Range.exact(0.01)))
    assert faster.gain_ns <= 100 * US
    without_python = pricer.price(ScaleHost(Target(), 0.04))
    assert without_python.gain_ns > 44_000 * US


def test_launches_limit_a_program_whose_kernels_become_free() -> None:
    # 100 kernels of 100 us, launched every 20 us; of 1 us they leave the launches [600 us, 16.9 x faster]
    calls = [("cudaLaunchKernel", 20 * n, 20 * n + 15) for n in range(100)]
    kernels = [(n, 5 + 100 * n, 105 + 100 * n) for n in range(100)]
    graph = Graph.from_trace(_program(calls, kernels))
    changed = ScaleKernels(KERNELS, Range.exact(0.01)).rewrite(graph)
    last = int(changed.replay().time_ns.max())
    assert 1_980 * US <= last <= 2_010 * US
    before = int(graph.replay().time_ns.max())
    assert 4.9 <= before / last <= 5.1


def test_a_blocked_copy_is_waiting_and_not_work_of_the_host() -> None:
    # .item(): a pageable copy blocks for 4 990 us behind a kernel of 5 000 us: GPU-bound [100 % cpu_bound]
    trace = _program([("cudaLaunchKernel", 0, 8), ("cudaMemcpyAsync", 30, 5_020)], [(0, 10, 5_010), (1, 5_011, 5_014)])
    ops = trace[DEVICE_OPS].to_dict(as_series=False)
    ops["kind"], ops["name"] = ["kernel", "copy"], ["gemm", "Memcpy DtoH (Device -> Pageable)"]
    ops["bytes"], ops["copy_kind"], ops["dst_memory"] = [None, 4], [None, "d2h"], [None, "pageable"]
    typed = {k: pl.Series(v, dtype=DEVICE_OPS.columns[k].dtype) for k, v in ops.items()}
    assert (typed["kind"].dtype, typed["copy_kind"].dtype, typed["dst_memory"].dtype) == (OpKind, CopyKind, MemoryKind)
    trace = Trace("test", {API_CALLS: trace[API_CALLS], DEVICE_OPS: DEVICE_OPS.build(typed)})
    pricer = _pricer(trace, 5_020)
    assert _on_path(pricer, "GPU") == 5_003 * US
    assert _on_path(pricer, "CPU") == 0
    halved = pricer.price(ScaleKernels(KERNELS, Range.exact(0.5)))
    assert 2_490 * US <= halved.gain_ns <= 2_500 * US


def test_the_critical_path_goes_back_and_forth_between_host_and_device() -> None:
    # a kernel that the host waits for, then host work, then a second kernel: nothing overlaps, so all of it is the path
    trace = _program(
        [("cudaLaunchKernel", 0, 10), ("cudaDeviceSynchronize", 10, 120), ("cudaLaunchKernel", 200, 210)],
        [(0, 5, 115), (2, 204, 300)],
    )
    pricer = _pricer(trace, 301)
    found = path_pieces(pricer.graph, pricer.graph.replay(), pricer.anchors)
    shown = [
        (start // US, end // US, kind, name)
        for start, end, kind, name in zip(found.start_ns, found.end_ns, found.kinds, found.names, strict=True)
    ]
    assert shown == [
        (0, 5, "launch latency", ""),
        (5, 115, "GPU", "gemm"),
        (115, 120, "return from a wait", ""),
        (120, 200, "CPU", "no operator recorded"),
        (200, 204, "launch latency", ""),
        (204, 300, "GPU", "gemm"),
    ]
