"""Captures in which every kernel communicates: what could run beside them was not recorded."""

from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_kinds_of_captures import recorded
from tests.gate.test_kinds_of_hosts import SGEMM, of_rule

from timesink import diagnose
from timesink.diagnosis.verdicts import Undecided

RING, GENERIC = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_Generic(x)"


def exchanging(
    kernel: str, turns: int, us: float, pause_us: float, *, copies: bool = False, devices: int = 1
) -> Program:
    program = Program()
    for _ in range(turns):
        for device in range(devices):
            program.launch(kernel, us, device=device)
        if copies:
            program.copy("HtoD", 1 << 20, 60)
        program.pause(pause_us)
    program.wait()
    return program


@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize(
    "program",
    [
        lambda: exchanging(RING, 20, 2000, 100),
        lambda: exchanging(GENERIC, 21, 1960, 4000, devices=4),
        lambda: exchanging("ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)", 12, 800, 900),
        lambda: exchanging("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", 30, 300, 40, copies=True),
        lambda: exchanging("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", 14, 5000, 10, devices=2),
    ],
)
def test_nothing_is_exposed_where_no_computation_was_recorded(
    program: type[Program], profiler: str, tmp_path: Path
) -> None:
    """A file of collectives alone: "with no computation beside it; 0.00 % of all communication is overlapped"."""
    found = diagnose(recorded(program(), profiler, tmp_path))
    assert of_rule(found, "COM101") is None
    verdict = next(ruling.verdict for ruling in found.rulings if ruling.card.code == "COM101")
    assert isinstance(verdict, Undecided) and "every kernel that was recorded communicates" in verdict.why
    assert verdict.most_ratio > 0.05 and "no bottleneck" not in found.statement


@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize("us", [60, 900, 3000])
def test_beside_little_computation_it_is(us: float, profiler: str, tmp_path: Path) -> None:
    program = Program()
    for _ in range(20):
        program.launch(SGEMM, us)
        program.launch(RING, 2000)
    program.wait()
    assert of_rule(diagnose(recorded(program, profiler, tmp_path)), "COM101") is not None
