"""What a profiler lost or wrote wrong: it is counted, and neither a clean bill nor a fault is made of it.

Siblings of the minimal inputs 06b (durations over the next start), 07 (device times of zero) and 09 (kernels lost): in
both profilers' files, on GPUs of several makers, of few rows and of many. The program itself has no fault.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.gate.programs import Program
from tests.gate.test_siblings import GEMM, steps

from timesink import diagnose, read
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis
from timesink.errors import UsageError
from timesink.model.trace import Trace

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>>"
PAIRS = 10  # a product and a sum, in each of the eight steps
GPUS = [
    ("NVIDIA A100-SXM4-80GB", "cudaLaunchKernel", "cudaDeviceSynchronize"),
    ("NVIDIA H100 80GB HBM3", "cuLaunchKernelEx", "cuCtxSynchronize"),
    ("AMD Instinct MI355X", "hipLaunchKernel", "hipDeviceSynchronize"),
    ("NVIDIA L4", "cudaLaunchKernelExC", "cudaStreamSynchronize"),
    ("Intel(R) Data Center GPU Max 1550", "urEnqueueKernelLaunch", "urQueueFinish"),
    ("", "cudaLaunchKernel", "cudaStreamSynchronize"),
]
KNOWN = {"NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L4"}  # by whose peaks the products are judged
ON = pytest.mark.parametrize("gpu", GPUS)
IN = pytest.mark.parametrize("profiler", ["kineto", "nsys"])
Damage = Callable[[int, dict[str, float]], None]


def sound(gpu: str, call: str, wait: str) -> Program:
    program = Program(gpu)

    def step() -> None:
        for _ in range(PAIRS):
            for kernel, us in ((GEMM, 650.3), (ADD, 70.1)):
                with program.range("aten::mm", "cpu_op"):
                    program.launch(kernel, us, call=call)
        program.wait(wait)

    return steps(program, step)


def damaged(program: Program, profiler: str, folder: Path, hurt: Damage) -> tuple[Trace, Diagnosis]:
    """The program's file, with each kernel's times, in us, as `hurt` leaves them; one without `at` is taken out."""
    path: Path = getattr(program, profiler)(folder)
    if profiler == "kineto":
        document = json.loads(path.read_text())
        kept: list[dict[str, Any]] = []
        number = 0
        for event in document["traceEvents"]:
            if event["cat"] == "kernel":
                times = {"at": event["ts"], "us": event["dur"]}
                hurt(number, times)
                number += 1
                if "at" not in times:
                    continue
                event["ts"], event["dur"] = times["at"], times["us"]
            kept.append(event)
        path.write_text(json.dumps({**document, "traceEvents": kept}))
    else:
        table = "CUPTI_ACTIVITY_KIND_KERNEL"
        with closing(sqlite3.connect(path)) as db, db:
            for row, start, end in db.execute(f"SELECT rowid, start, end FROM {table} ORDER BY start").fetchall():
                times = {"at": start / 1000, "us": (end - start) / 1000}
                hurt(row - 1, times)
                if "at" in times:
                    new = (round(1000 * times["at"]), round(1000 * (times["at"] + times["us"])), row)
                    db.execute(f"UPDATE {table} SET start = ?, end = ? WHERE rowid = ?", new)
                else:
                    db.execute(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    trace = read(path, cache=False)
    return trace, diagnose(trace)


def lost(trace: Trace) -> list[int]:
    return [note.count for note in trace.notes if note.kind.is_loss]


@pytest.mark.slow
@IN
@ON
@pytest.mark.parametrize(("every", "us"), [(1000, 1e6), (40, 9e4), (40, 1e6), (10, 9e4), (10, 13e3)])
def test_durations_over_the_next_start_are_clipped(
    profiler: str, gpu: tuple[str, str, str], every: int, us: float, tmp_path: Path
) -> None:
    def overflow(number: int, times: dict[str, float]) -> None:
        if number % every == 4:
            times["us"] = us

    trace, diagnosis = damaged(sound(*gpu), profiler, tmp_path, overflow)
    count = len(range(4, 16 * PAIRS, every))
    assert (lost(trace), diagnosis.findings) == ([count], ())
    is_lost, is_judged = count > 0.01 * 16 * PAIRS, gpu[0] in KNOWN
    assert (diagnosis.bottleneck is Bottleneck.UNDECIDED) == (is_lost or not is_judged)
    assert ("how long it ought to take" in diagnosis.statement) == (not is_lost and not is_judged)


def _at_zero(times: dict[str, float]) -> None:
    times["at"] = times["us"] = 0.0


def _a_day_late(times: dict[str, float]) -> None:
    times["at"] += 28 * 3600e6


def _without_length(times: dict[str, float]) -> None:
    times["us"] = 0.0


def _end_before_start(times: dict[str, float]) -> None:
    times["us"] = -50.0


def _gone(times: dict[str, float]) -> None:
    del times["at"]


@pytest.mark.slow
@IN
@ON
@pytest.mark.parametrize("wrong", [_at_zero, _a_day_late, _without_length, _end_before_start, _gone])
@pytest.mark.parametrize("rows", [range(80, 160), range(0, 160, 6), range(0, 160, 2)], ids=["half", "some", "products"])
def test_rows_that_cannot_be_are_neither_a_fault_nor_a_clean_bill(
    profiler: str, gpu: tuple[str, str, str], wrong: Callable[[dict[str, float]], None], rows: range, tmp_path: Path
) -> None:
    def hurt(number: int, times: dict[str, float]) -> None:
        if number in rows:
            wrong(times)

    trace, diagnosis = damaged(sound(*gpu), profiler, tmp_path, hurt)
    assert diagnosis.findings == ()
    assert wrong is _gone or len(rows) in lost(trace)
    if (
        gpu[2].endswith(("DeviceSynchronize", "CtxSynchronize")) or rows[-1] < 159
    ):  # what waits for one stream may leave
        assert diagnosis.bottleneck is Bottleneck.UNDECIDED


@IN
@ON
def test_launches_without_any_record_name_their_gpu(profiler: str, gpu: tuple[str, str, str], tmp_path: Path) -> None:
    product, call, _ = gpu
    with pytest.raises(UsageError) as said:
        damaged(sound(*gpu), profiler, tmp_path, lambda _, times: _gone(times))
    runtime = "HIP" if "hip" in call else "Level Zero" if "ur" in call else "CUDA"
    assert f"168 {runtime} calls, 160 of which launch or copy, and no record of what the GPU did" in str(said.value)
    assert product in str(said.value)
    assert "on a machine with a GPU" not in str(said.value.remedy)
