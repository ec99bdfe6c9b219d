"""What a capture of a few records, or of one pass, says: what it shows, and that nobody knows what comes back."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gate.answers import answers_of
from tests.gate.laws import broken
from tests.gate.programs import Program

from timesink import diagnose, read
from timesink.diagnosis.verdicts import Bottleneck

SGEMM = "ampere_sgemm_128x64_nn"
HALF_WARPS = {"grid": [100_000, 1, 1], "block": [16, 1, 1]}
IN = pytest.mark.parametrize("profiler", ["kineto", "nsys"])
GPU = pytest.mark.parametrize("gpu", ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "Tesla T4", ""])


def one_product(program: Program) -> None:
    program.launch(SGEMM, 45.0)


def one_collective(program: Program) -> None:
    program.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50.0)


def two_events(program: Program) -> None:
    program.launch(SGEMM, 500.0)
    program.pause(18_500.0)
    program.launch(SGEMM, 500.0, stream=8)


def copies_between_kernels(program: Program) -> None:
    for _ in range(3):
        program.copy("HtoD", 4_000_000, 350.0, memory="Pageable", blocking=True)
        program.pause(2_000.0)
        program.launch(SGEMM, 90.0)


def short_burst(program: Program) -> None:
    for _ in range(12):
        program.launch(SGEMM, 1.5)
        program.pause(1.0)


def waits_between(program: Program) -> None:
    for _ in range(4):
        program.launch(SGEMM, 60.0)
        program.wait()
        program.pause(300.0)


FEW: list[Callable[[Program], None]] = [
    one_product, one_collective, two_events, copies_between_kernels, short_burst, waits_between,
]  # fmt: skip


@pytest.mark.slow
@IN
@GPU
@pytest.mark.parametrize("runs", FEW, ids=lambda runs: runs.__name__)
def test_a_few_records_make_no_headline(
    runs: Callable[[Program], None], gpu: str, profiler: str, tmp_path: Path
) -> None:
    program = Program(gpu)
    runs(program)
    trace = read(getattr(program, profiler)(tmp_path), cache=False)
    of = answers_of("few", trace)
    assert of.diagnosis.bottleneck is Bottleneck.UNDECIDED, of.verdict
    assert "record ten steps" in of.verdict and "A fix saves" not in of.verdict
    assert broken(of) == []


@IN
def test_one_kernel_that_takes_long_by_itself_is_a_headline(profiler: str, tmp_path: Path) -> None:
    program = Program()
    program.launch("stencil_rows(float*)", 1_315_000.0, **HALF_WARPS)
    found = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert found.bottleneck is Bottleneck.UNUSED_LANES, found.statement


@pytest.mark.slow
@IN
@pytest.mark.parametrize("stands_us", [200_000.0, 1_600_000.0])
@pytest.mark.parametrize("at", [4, 12, 19])
def test_of_one_pass_a_long_stretch_is_said_to_be_one(at: int, stands_us: float, profiler: str, tmp_path: Path) -> None:
    """Like 22 kernels of one pass through a program, in whose middle the CPU reads a file."""
    program = Program()
    for number in range(22):
        program.launch(f"stage_{number}(float*)", 900.0 + 37 * number)
        program.pause(stands_us if number == at else 2_500.0 + 210.0 * number)
    found = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert " may be start-up. A fix saves at most" in found.statement


@IN
def test_stretches_that_come_back_are_not_said_to_be_one(profiler: str, tmp_path: Path) -> None:
    program = Program()
    for number in range(22):
        program.launch(f"stage_{number}(float*)", 900.0 + 37 * number)
        program.pause(2_500.0 + 210.0 * number)
    found = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert "A fix saves" in found.statement and "at once" not in found.statement


@IN
@GPU
@pytest.mark.parametrize("rows", ["kernels", "all"])
def test_of_rows_without_a_time_no_window_is_told(rows: str, gpu: str, profiler: str, tmp_path: Path) -> None:
    program = Program(gpu)
    for _ in range(20):
        program.launch(SGEMM, 650.0)
        program.wait()
    for row in (*program.work, *(program.calls if rows == "all" else ())):
        row["at"] = row["us"] = 0.0
    found = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert found.bottleneck is Bottleneck.UNDECIDED
    assert "0 ns" not in found.statement and "20 kernels take no time" in found.statement


OF_BF16 = (
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn_align8>",
    "void cutlass::Kernel<cutlass_70_tensorop_bf16_s884gemm_bf16_256x128_tn_align8>",
    "turing_bf16_s1688gemm_bf16_128x128_ldg8_f2f_nn",
)


@pytest.mark.slow
@IN
@pytest.mark.parametrize("kernel", OF_BF16)
@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        ("", "nothing tells which types this GPU has tensor cores for"),
        ("GPU", "nothing tells which types this GPU has tensor cores for"),
        ("Tesla T4", "bf16 matmuls, which this GPU emulates"),
        ("Tesla V100-SXM2-16GB", "bf16 matmuls, which this GPU emulates"),
    ],
)
def test_bf16_is_no_clean_bill_on_a_gpu_that_may_emulate_it(
    gpu: str, says: str, kernel: str, profiler: str, tmp_path: Path
) -> None:
    program = Program(gpu)
    for _ in range(8):
        with program.range("step"):
            for _ in range(5):
                program.launch(kernel, 9_000.0)
            program.wait()
    found = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert says in found.statement
