"""What a capture of a few records, or of one pass, says: what it shows, and that nobody knows what comes back."""

from __future__ import annotations

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
    assert "record ten steps" in of.verdict and "a fix saves" not in of.verdict
    assert broken(of) == []


@IN
def test_one_kernel_that_takes_long_by_itself_is_a_headline(profiler: str, tmp_path: Path) -> None:
    program = Program()
    program.launch("stencil_rows(float*)", 1_315_000.0, **HALF_WARPS)
    found = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert found.bottleneck is Bottleneck.OCCUPANCY, found.statement


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
    assert " of it at once, which nothing shows to come back; a fix saves at most" in found.statement


@IN
def test_stretches_that_come_back_are_not_said_to_be_one(profiler: str, tmp_path: Path) -> None:
    program = Program()
    for number in range(22):
        program.launch(f"stage_{number}(float*)", 900.0 + 37 * number)
        program.pause(2_500.0 + 210.0 * number)
    found = diagnose(read(getattr(program, profiler)(tmp_path), cache=False))
    assert "a fix saves" in found.statement and "at once" not in found.statement
