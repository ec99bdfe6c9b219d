"""Kinds of sentences that public programs in C++ showed to be false or unsure, each in shapes that no capture has."""

import json
from pathlib import Path

import pytest
from tests.gate.programs import Program

from timesink import diagnose, read
from timesink.cli.app import run
from timesink.diagnosis.plan.ladder import plan
from timesink.model.trace import Trace

MB = 1 << 20
BOTH = pytest.mark.parametrize("profiler", ["kineto", "nsys"])


def recorded(program: Program, profiler: str, folder: Path) -> Trace:
    return read(getattr(program, profiler)(folder), cache=False)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize(
    "sent",
    [(4, 2, 4, 100, 7600), (8, 1, 2, 8, 640), (5, 1, 1, 16, 1300), (6, 3, 3, 1, 90), (16, 1, 4, 12, 950)],
    ids="{0[0]} pieces of {0[3]} MB".format,
)
def test_pieces_that_are_sent_ahead_are_no_data_that_comes_back(
    sent: tuple[int, int, int, int, float], in_turn: bool, profiler: str, tmp_path: Path
) -> None:
    """Pieces of one array were "data that leaves the GPU and comes back": all were sent before the first result was
    there. Where each is sent after the result before it, they may be the same."""
    pieces, inputs, streams, size, us = sent
    program = Program(gpu="NVIDIA GeForce RTX 4060 Ti")
    for piece in range(pieces):
        stream = 13 + piece % streams
        for _ in range(inputs):
            program.copy("HtoD", size * MB, us, stream=stream)
        program.launch("add_parallel(float*)", us / 60, stream=stream)
        program.copy("DtoH", size * MB, us, stream=stream, blocking=in_turn)
    program.wait()
    messages = [finding.message for _, finding in diagnose(recorded(program, profiler, tmp_path)).findings]
    assert any("round-trip copies" in message for message in messages) is in_turn
    assert messages and not any("comes back" in message for message in messages)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(
    ("kernel_us", "code_us"), [(9000, 4000), (700, 900), (2500, 12000), (3000, 1500), (60000, 25000)]
)
def test_code_of_the_cpu_that_nobody_knows_is_nothing_that_a_plan_is_sure_of(
    kernel_us: float, code_us: float, profiler: str, tmp_path: Path
) -> None:
    """A plan won all of it for certain by a wait that goes, where the finding said "at most"."""
    program = Program(gpu="Tesla T4")
    for _ in range(14):
        program.launch("__omp_offloading_31_18a8104__Z_1", kernel_us, call="cuLaunchKernel")
        program.wait("cuStreamSynchronize")
        program.pause(code_us)
    trace = recorded(program, profiler, tmp_path)
    diagnosis = diagnose(trace)
    assert "code" in diagnosis.statement and "at most" in diagnosis.statement
    made = plan(trace, diagnosis)
    assert "remove_sync" not in [rung.id for rung in made.rungs]
    assert any(note.startswith("remove_sync may win another") and "perhaps nothing" in note for note in made.notes)


@BOTH
@pytest.mark.parametrize(
    ("gpu", "call"),
    [("NVIDIA GeForce RTX 4060", "cudaLaunchKernel"), ("Tesla T4", "cuLaunchKernel"),
     ("AMD Instinct MI300X", "hipLaunchKernel"), ("NVIDIA H100 80GB HBM3", "cudaLaunchKernelExC"),
     ("AMD Radeon PRO W7900", "hipModuleLaunchKernel")],
)  # fmt: skip
def test_a_profiler_that_recorded_calls_was_told_to_record_the_gpu(
    gpu: str, call: str, profiler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said that the option may have been left out without which no call is recorded."""
    program = Program(gpu=gpu)
    for _ in range(20):
        program.launch("square", 10, call=call)
    program.work.clear()
    assert run(["diagnose", str(getattr(program, profiler)(tmp_path))]) == 2
    said = capsys.readouterr().err
    assert "20 of which launch or copy" in said and "find out why" in said
    assert "left out" not in said


@pytest.mark.parametrize(
    "phases", ["be", "b", "ST", "NOD", "P"], ids=["requests", "begun", "old requests", "objects", "samples"]
)
def test_events_that_are_no_profilers_are_events(
    phases: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server's log of requests held "no trace event" in 2,000 of them."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{"name": "1", "cat": "resnet50", "id": "1", "ph": ph, "ts": 5.5, "pid": 0}
                                for ph in phases * 30]))  # fmt: skip
    assert run(["diagnose", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"its array of {30 * len(phases)} holds no event with a duration" in said


@pytest.mark.parametrize(
    ("pages", "gap_us", "kernel_us"),
    [(400, 700, 90000), (90, 2500, 40000), (250, 260, 9000), (60, 900, 30000), (900, 150, 2e4)],
)
def test_what_takes_most_of_a_window_is_told_on_the_screen(
    pages: int, gap_us: float, kernel_us: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three quarters of a window, in which the CPU read pages back one by one, stood with -v only."""
    program = Program(gpu="NVIDIA A100-SXM4-40GB")
    program.launch("add(int, float*, float*)", kernel_us, grid=[1, 1, 1])
    program.wait()
    for page in range(pages):
        program.page(program.now + page * gap_us, 15, way="pages out")
    assert run(["diagnose", "--no-color", str(program.nsys(tmp_path))]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert " % of the window the CPU only reads results" in said
