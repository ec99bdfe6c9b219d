"""Work of some steps only, a checkpoint or a log, moves no step's beginning: without marks the steps are the same.

In twelve steps what comes in every third is a loop itself.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.measures.steps.library_ranges import bare
from tests.measures.steps.test_stripped_marks import compare

from timesink.measures.steps import steps
from timesink.measures.steps.proof import StepOrigin
from timesink.readers import read

GEMM = "ampere_sgemm_128x64_{}"
CAST = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>"
ADAM = "void at::native::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float>>"


def checkpoint(program: Program) -> None:
    program.copy("DtoH", 1 << 25, 2600, memory="Pageable", blocking=True)


def log(program: Program) -> None:
    program.launch("void at::native::reduce_kernel<512, 1, at::native::NormTwoOps>", 30)
    program.copy("DtoH", 4, 2, blocking=True)


def evaluate(program: Program) -> None:
    program.launch(GEMM.format("nn"), 400, grid=[512, 1, 1])
    program.wait()


def average(program: Program) -> None:
    for _ in range(3):
        program.launch("void at::native::multi_tensor_apply_kernel<at::native::LerpFunctor<float>>", 40)


def step(program: Program, rare: Callable[[Program], None] | None, place: str) -> None:
    """It begins with what runs before every layer and ends with a cast; few kernels run once in it."""
    program.pause(90)
    if rare and place == "begin":
        rare(program)
    for layer in range(12):
        program.launch("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor>", 3)
        program.launch(GEMM.format("tn"), 20, grid=[64, 1, layer // 2 + 1])
        if layer == 0:
            program.launch("void at::native::(anonymous namespace)::indexSelectLargeIndex", 8)
        if rare and place == "middle" and layer == 7:
            rare(program)
    program.launch("void at::native::mse_loss_kernel", 6)
    for layer in range(12):
        program.launch(GEMM.format("nt"), 25, grid=[64, 1, layer // 2 + 1])
    program.launch(ADAM, 50)
    if rare and place == "end":
        rare(program)
    program.launch(CAST, 4)


@pytest.mark.slow
@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize("every", [3, 4])
@pytest.mark.parametrize("numbers", [range(6), range(12), range(1, 13)], ids=str)
@pytest.mark.parametrize("place", ["begin", "middle", "end"])
@pytest.mark.parametrize("rare", [checkpoint, log, evaluate, average])
def test_rare_work_moves_no_step(
    rare: Callable[[Program], None], place: str, numbers: range, every: int, profiler: str, tmp_path: Path
) -> None:
    program = Program()
    for number in numbers:
        with program.range(f"ProfilerStep#{number}"):
            step(program, rare if number % every == 0 else None, place)
    trace = read(getattr(program, profiler)(tmp_path), cache=False)
    marked, found = steps(trace), steps(bare(trace))
    assert marked.origin is StepOrigin.MARKED
    assert found.origin is StepOrigin.FOUND
    compare(marked, found, f"{rare.__name__} at the {place}")
