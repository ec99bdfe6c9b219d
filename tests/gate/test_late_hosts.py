"""A host that is late, and a read that waits: which of the two is named, and that withholding the step without the
profiler changes nothing of it. The same program is written twice, with what recording costs and without."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.gate.programs import Program

from timesink import diagnose, read
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.verdicts import Bottleneck

BOTH = pytest.mark.parametrize("profiler", ["kineto", "nsys"])
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
PAID_US = {"kineto": (1.8, 1.8, 50.0), "nsys": (0.2, 2.8, 3.0)}  # for an operator, a call, and a marked step
STEPS = 12


def written(step: Callable[[Program, float], None], profiler: str = "") -> Program:
    """The program with what a profiler costs it; without one where none is named."""
    operator_us, call_us, step_us = PAID_US.get(profiler, (0.0, 0.0, 0.0))
    program = Program(gpu="NVIDIA H100 80GB HBM3", call_us=2.0 + call_us)
    for number in range(STEPS):
        program.pause(step_us)
        with program.range(f"ProfilerStep#{number}"):
            step(program, operator_us)
    return program


def step_ms(program: Program) -> float:
    """What a step takes."""
    begins = [row["at"] for row in program.named if row["name"].startswith("ProfilerStep")]
    return (begins[-1] - begins[2]) / (len(begins) - 3) / 1e3


def launch(program: Program, count: int, dispatch_us: float, kernel_us: float, paid_us: float) -> None:
    """So many operators, with so long between two launches."""
    for _ in range(count):
        with program.range("aten::mm", "cpu_op"):
            program.pause(dispatch_us / 2 + paid_us)
            program.launch(GEMM, kernel_us)
        program.pause(dispatch_us / 2)


def read_value(program: Program, paid_us: float) -> None:
    with program.range("aten::item", "cpu_op"), program.range("aten::_local_scalar_dense", "cpu_op"):
        program.pause(2.0 + 2 * paid_us)
        program.copy("DtoH", 4, 1.5, memory="Pageable")
        program.wait("cudaStreamSynchronize")


class Loop(NamedTuple):
    """`reads` times a step: launches, a value that is read, and `after_us` of other work of the host."""

    launches: int
    dispatch_us: float
    kernel_us: float
    reads: int
    after_us: float
    limit: Bottleneck

    def step(self, program: Program, paid_us: float) -> None:
        for _ in range(self.reads):
            launch(program, self.launches // self.reads, self.dispatch_us, self.kernel_us, paid_us)
            read_value(program, paid_us)
            program.pause(self.after_us)


WAITS, LAUNCHES = Bottleneck.HOST_SYNC, Bottleneck.LAUNCH_BOUND
LOOPS = [
    Loop(26, 14, 20, 1, 60, WAITS),
    Loop(60, 12, 17, 1, 200, WAITS),
    Loop(40, 9, 14, 2, 40, WAITS),
    Loop(48, 12, 16, 8, 15, WAITS),
    Loop(30, 20, 20, 3, 50, LAUNCHES),
    Loop(40, 30, 12, 1, 10, LAUNCHES),
    Loop(120, 22, 6, 4, 10, LAUNCHES),
]


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("loop", LOOPS)
def test_without_the_known_step_the_headline_is_the_same(profiler: str, loop: Loop, tmp_path: Path) -> None:
    """A replay of the program without its reads wins by them (`WAITS`), or its launches stay late all the same."""
    trace = read(getattr(written(loop.step, profiler), profiler)(tmp_path), cache=False)
    known_ms = step_ms(written(loop.step))
    assert [diagnose(trace, unprofiled_step_ms=ms).bottleneck for ms in (None, known_ms)] == [loop.limit] * 2


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop.limit is LAUNCHES])
@pytest.mark.parametrize("is_known", [False, True])
def test_no_rung_ends_below_the_work_of_the_gpu(profiler: str, loop: Loop, is_known: bool, tmp_path: Path) -> None:
    """No change of the host takes any of it away, whatever the step is without the profiler."""
    trace = read(getattr(written(loop.step, profiler), profiler)(tmp_path), cache=False)
    if is_known:
        trace = trace.with_unprofiled_step(1e6 * step_ms(written(loop.step)))
    work_ms = (loop.launches * loop.kernel_us + loop.reads * 1.5) / 1e3
    made = plan(trace)
    assert made.rungs and all(rung.after.low >= 0.99 * work_ms for rung in made.rungs)
    assert made.floor_ms >= 0.9 * work_ms
