"""What programs of public threads wait for: the answer of each thread, and four programs more of its kind."""

from pathlib import Path

import pytest
from tests.rules.cases import read_cases

from timesink.diagnosis.engine import diagnose

_HEAD = "| {} | name | correlation | start_us | end_us | times | every_us |\n|--|--|--:|--:|--:|--:|--:|"
Row = tuple[str, int, float, float]


def headline(tmp_path: Path, ops: list[Row], calls: list[Row], *, every: float, times: int) -> tuple[str, str]:
    """What is said first, and advised, of a step that comes back: its operations and calls with correlation, begin and
    end in microseconds. A repetition counts correlations up."""
    text = "## a program\n- Verdict: clear\n"
    for table, rows in (("device_ops", ops), ("api_calls", calls)):
        lines = (
            f"| {at} | `{name}` | {of * 1000} | {a} | {b} | {times} | {every} |"
            for at, (name, of, a, b) in enumerate(rows)
        )
        text += "\n".join(["", _HEAD.format(table), *lines, ""])
    path = tmp_path / "case.md"
    path.write_text(text, encoding="utf-8")
    (case,) = read_cases(path)
    found = diagnose(case.trace)
    assert found.findings, found.statement
    return found.findings[0][1].name, found.findings[0][1].advice


@pytest.mark.parametrize(
    ("sends", "computes", "function", "call"),
    [
        (300, 500, 110, "cudaLaunchHostFunc_v10000"),
        (300, 200, 60, "cudaLaunchHostFunc"),
        (80, 90, 30, "cudaStreamAddCallback_v5000"),
        (2000, 3000, 200, "cuLaunchHostFunc"),
        (150, 800, 300, "cuStreamAddCallback"),
    ],
)
def test_host_functions_that_hold_streams(tmp_path: Path, sends: int, computes: int, function: int, call: str) -> None:
    """nccl 1742: kernels behind a function of the CPU wait for it, and it waits for the exchange."""
    after = 10 + sends + function
    ops: list[Row] = [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 1, 10, 10 + sends),
        ("gemm", 2, after, after + computes),
    ]
    calls: list[Row] = [("cudaLaunchKernel", 1, 0, 5), (call, 3, 6, 10), ("cudaLaunchKernel", 2, 12, 17)]
    _, advice = headline(tmp_path, ops, calls, every=after + computes + 10, times=30)
    assert advice.startswith("Take ") and "host function" in advice


@pytest.mark.parametrize(
    ("length", "copy", "prepares"), [(430, 14, 33), (200, 10, 30), (900, 20, 120), (300, 14, 60), (1500, 30, 400)]
)
def test_a_wait_and_a_small_read_after_each_launch(tmp_path: Path, length: int, copy: int, prepares: int) -> None:
    """numba-cuda-mlir 232."""
    end = 12 + length
    ops: list[Row] = [("busy", 1, 12, end), ("[CUDA memcpy DtoH]", 3, end + 8, end + 9.5)]
    calls: list[Row] = [("cuLaunchKernel", 1, 0, 8), ("cuCtxSynchronize", 2, 9, end + 3)]
    calls.append(("cuMemcpyDtoH_v2", 3, end + 5, end + 5 + copy))
    name, _ = headline(tmp_path, ops, calls, every=end + 5 + copy + prepares, times=30)
    assert name == "host-sync"


@pytest.mark.parametrize(
    ("polls", "call"),
    [
        (60, "cuStreamQuery"),
        (20, "cudaStreamQuery"),
        (90, "cuEventQuery"),
        (35, "cudaEventQuery"),
        (50, "hipStreamQuery"),
    ],
)
def test_polls_before_each_launch(tmp_path: Path, polls: int, call: str) -> None:
    """Oceananigans 1912."""
    begin = 5 * polls
    calls: list[Row] = [(call, 100 + at, 5 * at, 5 * at + 1.5) for at in range(polls)]
    calls.append(("cuLaunchKernel", 1, begin, begin + 6))
    _, advice = headline(tmp_path, [("k", 1, begin + 10, begin + 130)], calls, every=begin + 140, times=20)
    assert "event" in advice and "graph" not in advice.lower()


@pytest.mark.parametrize(("launcher", "length"), [(335, 12), (100, 8), (900, 40), (200, 5), (2000, 90)])
def test_a_launcher_on_the_cpu_that_takes_long(tmp_path: Path, launcher: int, length: int) -> None:
    """triton 3619: nothing but code of the CPU lies between two launches."""
    ops: list[Row] = [("triton_poi_fused_add_0", 1, 11, 11 + length)]
    name, advice = headline(tmp_path, ops, [("cuLaunchKernelEx", 1, 0, 7)], every=launcher + length, times=60)
    assert name in ("unrecorded-code", "launch-bound", "host-code") and "generated" not in advice


@pytest.mark.parametrize(("makes", "runs"), [(10300, 1900), (3000, 900), (500, 600), (20000, 9000), (1200, 300)])
def test_a_graph_that_is_made_anew_in_each_step(tmp_path: Path, makes: int, runs: int) -> None:
    """mlxcel 1545."""
    calls: list[Row] = [("cudaGraphInstantiate", 100, 5, makes), ("cudaGraphLaunch", 1, makes, makes + 8)]
    ops: list[Row] = [("gemm", 1, makes + 12, makes + 12 + runs)]
    _, advice = headline(tmp_path, ops, calls, every=makes + runs + 30, times=12)
    assert advice.startswith("Instantiate the graph once")


@pytest.mark.parametrize(
    ("call", "takes"),
    [
        ("cudaMalloc", 4000),
        ("cudaFree", 2500),
        ("cudaMallocAsync", 9000),
        ("cuMemAlloc_v2", 1000),
        ("cudaHostAlloc", 6000),
    ],
)
def test_memory_that_is_taken_between_steps(tmp_path: Path, call: str, takes: int) -> None:
    """CUDA.jl 1540, rmm 2051."""
    ops: list[Row] = [("stencil", 1, 16, 3016)]
    calls: list[Row] = [
        ("cudaLaunchKernel", 1, 6, 12),
        ("cudaStreamSynchronize", 2, 18, 3018),
        (call, 3, 3020, 3020 + takes),
    ]
    _, advice = headline(tmp_path, ops, calls, every=3030 + takes, times=20)
    assert "llocate once" in advice
