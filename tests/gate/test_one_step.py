"""One step: what is shown is what is priced, a phase is no step, and once is told from always by place and recurrence.

Programs that no capture here has, in both profilers' files.
"""

import re
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_siblings import BOTH, GEMM, named, told

from timesink.diagnosis import headline
from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.steps import steps
from timesink.measures.timeline.replay import pricers
from timesink.measures.timeline.start_up import start_up

NEXT_BATCH = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
WAITS = [  # ms, in each step: uneven as a loader of several workers gives batches
    [3, 17, 43.6],
    [43.6, 17, 3],
    [20, 1, 1, 30, 1],
    [9, 9, 9, 60, 9, 9],
    [1, 70, 2],
    [5, 6, 40, 7, 35],
]


def trained(program: Program, waits: list[float], kernels: int = 30) -> Program:
    """A training loop that waits so long for each batch; the last step is cut off."""
    for number, wait_ms in enumerate([*waits, 1]):
        with program.range(f"ProfilerStep#{number}"):
            with program.range(NEXT_BATCH):
                program.pause(1000 * wait_ms)
            for _ in range(kernels):
                with program.range("aten::mm", "cpu_op"):
                    program.launch(GEMM, 150)
            program.wait()
    return program


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("waits", WAITS)
def test_the_steps_that_are_shown_are_those_that_are_priced(waits: list[float], profiler: str, tmp_path: Path) -> None:
    trace, found = told(trained(Program(), waits), profiler, tmp_path)
    shown_ns = sorted(steps(trace).windows["period_ns"].to_list())
    assert sorted(pricers(trace)[0].periods_ns.tolist()) == pytest.approx(shown_ns, rel=0.01)
    assert not any("slows this run" in note.message for note in found.notes)  # 30 launches cost no tenth of such steps
    first = named(found, "input-pipeline")
    assert first.recoverable is not None
    assert found.bottleneck is Bottleneck.INPUT_PIPELINE
    claimed_ms = float(re.findall(r"idle for ([\d.]+) ms", first.message)[0])
    assert first.recoverable.value == pytest.approx(claimed_ms, rel=0.15)
    budget = found.budgets[0]
    assert budget.period_ns / 1e6 == pytest.approx(first.of_ms, rel=0.01)  # the bar and the headline are of one step


@BOTH
@pytest.mark.parametrize(
    ("lengths", "kernels"), [([1, 4, 2, 7, 3, 9, 2, 5], 8), ([6, 1, 1, 1, 12, 2], 5), ([3, 2, 1, 5, 8, 1, 4], 3)]
)
def test_optimizer_steps_are_steps_however_long(
    lengths: list[int], kernels: int, profiler: str, tmp_path: Path
) -> None:
    program = Program()
    for number, length in enumerate([*lengths, 1]):
        for layer in range(length * kernels):
            program.launch(f"layer_{(layer * 7 + number * 3) % 11}", 40.0 + 13 * (layer % 5), grid=[64 * length, 1, 1])
        with program.range("Optimizer.step#AdamW.step"):
            program.launch("multi_tensor_apply_kernel_adam", 90)
    trace, found = told(program, profiler, tmp_path)
    assert steps(trace).count >= len(lengths) - 2
    assert not any("no steps found" in note.message for note in found.notes)
    if found.steps.spread_ms:
        least, most = found.steps.spread_ms
        assert most > 1.5 * least


@BOTH
@pytest.mark.parametrize(("copies", "kernel_ms"), [(60, 5000), (24, 800), (200, 90), (12, 400)])
def test_copies_ahead_of_one_kernel_are_no_steps(copies: int, kernel_ms: float, profiler: str, tmp_path: Path) -> None:
    program = Program(gpu="NVIDIA GeForce RTX 3060")
    for _ in range(copies):
        program.copy("HtoD", 80_000, 4, memory="Pageable", blocking=True)
    program.launch("simulate(float*, int)", 1000 * kernel_ms)
    program.wait()
    trace, found = told(program, profiler, tmp_path)
    assert not steps(trace).frame.height
    assert "step" not in found.statement


@BOTH
@pytest.mark.parametrize(
    ("versions", "launches", "us", "copies"),
    [(5, 101, 14, 1), (4, 30, 200, 2), (7, 12, 90, 1), (3, 250, 8, 1), (9, 5, 900, 3)],
)
def test_versions_of_an_algorithm_that_are_timed_in_turn_are_no_steps(
    versions: int, launches: int, us: float, copies: int, profiler: str, tmp_path: Path
) -> None:
    program = Program()
    for version in range(versions):
        for _ in range(copies):
            program.copy("HtoD", 4_000_000, 300, blocking=True)
        for _ in range(launches):
            program.launch(f"transpose_{'abcdefghi'[version]}(float*, float*)", us + version)
        program.copy("DtoH", 4_000_000, 300, blocking=True)
        program.pause(2000)
    trace, found = told(program, profiler, tmp_path)
    assert not steps(trace).frame.height
    assert "step" not in found.statement


@BOTH
@pytest.mark.parametrize(("small", "late"), [(12, 900), (6, 60), (20, 300)])
def test_work_behind_the_marked_steps_is_said_first(small: int, late: int, profiler: str, tmp_path: Path) -> None:
    program = Program(gpu="NVIDIA H100 80GB HBM3")
    for number in range(8):
        with program.range(f"ProfilerStep#{number}"):
            for _ in range(small):
                program.launch("small", 3)
            program.pause(3000)
    for _ in range(late):
        program.launch(GEMM, 120)
    _, found = told(program, profiler, tmp_path)
    assert re.match(r"[89]\d(\.\d+)? % of the GPU's work \(.*\) lies outside of the marked steps", found.statement)
    assert found.bottleneck is Bottleneck.UNDECIDED or found.findings


def test_a_tenth_outside_of_the_steps_is_a_note(tmp_path: Path) -> None:
    program = Program()
    for _ in range(6):
        program.launch(GEMM, 400)
    program.wait()
    trained(program, [1, 1, 1, 1, 1], kernels=20)
    trace, found = told(program, "kineto", tmp_path)
    assert not headline.preface(trace, None)
    assert any("outside of the marked steps: figures per step leave it out" in note.message for note in found.notes)


RECURRING = [
    ("cudaHostAlloc", 9000), ("cudaGraphLaunch", 6000), ("cudaLaunchKernel", 8000), ("cudaFree", 60_000),
    ("cudaMallocAsync", 55_000), ("cuModuleLoadData", 900),
]  # fmt: skip


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(("call", "us"), RECURRING)
def test_what_comes_in_every_step_never_happens_once(call: str, us: float, profiler: str, tmp_path: Path) -> None:
    program = Program()
    for number in range(6):
        with program.range(f"ProfilerStep#{number}"):
            launches = call.endswith(("Launch", "Kernel"))
            if not launches:
                program.call(call, us)
            program.call_us = us if launches else 5
            program.launch("first", 300, call=call if launches else "cudaLaunchKernel")
            program.call_us = 5
            for _ in range(20):
                program.launch(GEMM, 100)
            program.wait()
    trace, found = told(program, profiler, tmp_path)
    assert start_up(trace).share < 0.2
    assert "happens once" not in found.statement
    assert not any("happens once" in note.message for note in found.notes)


@BOTH
@pytest.mark.parametrize(
    ("call", "ms", "at"),
    [("cudaMallocAsync", 560, 40), ("cudaMalloc", 200, 9), ("cudaFree", 90, 50), ("hipMalloc", 300, 20)],
)
def test_a_long_call_in_the_middle_is_no_start(call: str, ms: float, at: int, profiler: str, tmp_path: Path) -> None:
    program = Program()
    for number in range(60):
        if number == at:
            program.call(call, 1000 * ms)
        for layer in range(4):
            program.launch(f"layer_{layer}", 700)
        program.wait()
    trace, found = told(program, profiler, tmp_path)
    assert not start_up(trace).idle_ns
    assert steps(trace).count > 50
    assert found.bottleneck is Bottleneck.ALLOCATOR
    assert found.statement.startswith("typical steps are fine; 1 of ")


@pytest.mark.parametrize("load_ms", [100, 30, 400])
@pytest.mark.parametrize("operator", ["aten::cudnn_convolution", "aten::addmm", "triton_poi_fused_0"])
def test_a_first_run_that_loads_is_start_up(operator: str, load_ms: float, tmp_path: Path) -> None:
    program = Program(gpu="NVIDIA GeForce RTX 3090")
    with program.range("aten::zero_", "cpu_op"):
        program.launch("fill", 2)
    for number in range(14):
        for name in (operator, "aten::relu_"):
            with program.range(name, "cpu_op"):
                program.pause(1000 * load_ms if not number and name == operator else 20)
                program.launch(f"kernel_{name}", 12)
    trace, found = told(program, "kineto", tmp_path)
    assert start_up(trace).share > 0.9
    assert found.bottleneck is Bottleneck.UNDECIDED
    assert operator in found.statement
