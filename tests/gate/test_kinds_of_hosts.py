"""Programs whose host sets the pace, each kind in several shapes: what is said of them is what their rows bear out."""

import re
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
from tests.gate.programs import Program

from timesink import diagnose, read
from timesink.cli.app import run
from timesink.diagnosis.plan.ladder import plan
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis, Finding, Quantity
from timesink.views.plan import headline

SGEMM = "volta_sgemm_128x64_nn"


def of_rule(found: Diagnosis, code: str) -> Finding | None:
    return next((one for card, one in found.findings if card.code == code), None)


def offloaded(
    program: Program, *, alloc_us: float, launch_us: float, copy_us: float, wait: str, pause_us: float
) -> None:
    """One turn of a loop as directives make it: each of its calls takes longer than the work that it asks for."""
    program.call("cuMemAlloc", alloc_us)
    program.pause(pause_us / 2)
    program.call_us = launch_us
    program.launch("fill_42_gpu", 2.3, call="cuLaunchKernel")
    program.call_us = copy_us
    program.copy("HtoD", 1300, 1.2, call="cuMemcpyHtoDAsync")
    program.call_us = 5.0
    program.wait(wait)
    program.pause(pause_us / 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "turn",
    [
        {"alloc_us": 6.6, "launch_us": 11.0, "copy_us": 8.0, "wait": "cuStreamSynchronize", "pause_us": 17},
        {"alloc_us": 6.0, "launch_us": 10.6, "copy_us": 7.9, "wait": "cuStreamSynchronize", "pause_us": 10},
        {"alloc_us": 3.0, "launch_us": 9.0, "copy_us": 9.0, "wait": "cuCtxSynchronize", "pause_us": 30},
        {"alloc_us": 9.0, "launch_us": 12.0, "copy_us": 6.0, "wait": "cudaStreamSynchronize", "pause_us": 12},
        {"alloc_us": 5.0, "launch_us": 8.0, "copy_us": 10.0, "wait": "cudaDeviceSynchronize", "pause_us": 20},
        {"alloc_us": 4.0, "launch_us": 14.0, "copy_us": 7.0, "wait": "cuStreamSynchronize", "pause_us": 40},
    ],
)
def test_a_wait_is_not_charged_with_the_calls_after_it(turn: dict[str, float | str], tmp_path: Path) -> None:
    """The host could never be ahead: what the wait costs is what a step without it saves, whatever follows the wait."""
    program = Program(gpu="Tesla V100-SXM2-32GB")
    for _ in range(300):
        offloaded(program, **turn)  # type: ignore[arg-type]
    found = diagnose(read(program.nsys(tmp_path), cache=False))
    waits = of_rule(found, "IDL102")
    if waits is None:
        return
    told = re.search(r"waits ([\d.]+) us of the ([\d.]+) us guessed step after blocking calls", waits.message)
    assert told is not None
    share = 100 * float(told[1]) / float(told[2])
    gain, of_ms = waits.recoverable, waits.of_ms
    assert gain is not None and of_ms and share <= 100 * gain.most / of_ms + 2.0
    assert waits.advice.startswith(
        "Remove the wait" if "Stream" not in str(turn["wait"]) else "Remove the synchronization"
    )


LOADS_MS = [
    (0.2, 17.0, 43.6),
    (47.4, 22.3, 61.7),
    (0.0, 12.0, 30.0),
    (9.0, 20.0, 52.0),
    (30.0, 0.1, 44.0),
    (5.0, 28.0, 61.0),
]


@pytest.mark.slow
@pytest.mark.parametrize("profiler", ["kineto", "nsys"])
@pytest.mark.parametrize("loads_ms", LOADS_MS)
def test_a_loader_that_is_late_at_most_steps_is_no_outlier(
    loads_ms: tuple[float, ...], profiler: str, tmp_path: Path
) -> None:
    """Three marked steps, the last without an end: of two nobody knows which is usual, and both wait for data."""
    program = Program(gpu="Tesla T4", call_us=10.0)
    for number, load_ms in enumerate(loads_ms):
        with program.range(f"ProfilerStep#{number + 2}"):
            with program.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                program.pause(1000 * load_ms)
            for _ in range(30):
                with program.range("aten::addmm", "cpu_op"):
                    program.pause(100)
                    program.launch(SGEMM, 60)
    trace = read(getattr(program, profiler)(tmp_path), cache=False)
    found = diagnose(trace)
    assert found.bottleneck is Bottleneck.INPUT_PIPELINE
    assert not any("outlier" in note.message for note in found.notes)
    waited, alone = of_rule(found, "IDL101"), plan(trace).rungs[0]
    assert waited is not None and waited.recoverable is not None and alone.id == "loader_workers"
    assert waited.recoverable.value == pytest.approx(alone.before_ms - alone.after.value, rel=0.05)


def unmarked(program: Program, dispatch_us: float, kernels: tuple[tuple[str, float], ...]) -> None:
    for kernel, us in kernels:
        with program.range("aten::mm", "cpu_op"):
            program.pause(dispatch_us)
            program.launch(kernel, us)


PASSES: list[Callable[[Program], None]] = [
    lambda program: unmarked(program, 40, tuple((f"{SGEMM}_{n}", 15.0 + n % 7) for n in range(60))),
    lambda program: unmarked(program, 90, tuple((f"volta_sgemm_64x64_nn_{n}", 30.0 + n) for n in range(50))),
    lambda program: unmarked(program, 25, tuple((f"volta_scudnn_128x32_relu_small_nn_v1_{n}", 8.0) for n in range(80))),
    lambda program: unmarked(program, 200, tuple((f"volta_sgemm_128x128_tn_{n}", 150.0 - n) for n in range(40))),
    lambda program: unmarked(program, 60, tuple((f"turing_sgemm_{n}", 20.0 + 3 * (n % 5)) for n in range(70))),
]


@pytest.mark.parametrize("work", PASSES)
def test_kernels_of_one_pass_that_waits_for_its_host_are_a_bound(
    work: Callable[[Program], None], tmp_path: Path
) -> None:
    """Without a step to replay nothing says what the host needs: shorter kernels may win all of their time, or none."""
    program = Program(gpu="Tesla T4")
    work(program)
    found = diagnose(read(program.kineto(tmp_path), cache=False))
    assert found.steps.count == 0
    of_kernels = [one for card, one in found.findings if card.code.startswith("KRN")]
    assert of_kernels
    assert all(
        one.recoverable and not one.recoverable.low and one.recoverable.value == one.recoverable.most
        for one in of_kernels
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["cuMemHostAlloc", "cuStreamSynchronize", "cuLaunchKernel", "cudaMallocManaged", "cuModuleLoadData", ""]
)
@pytest.mark.parametrize("command", ["diagnose", "plan", "show"])
def test_a_refusal_names_a_program_as_it_is_started(
    name: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no sign shows to be Python was asked for `python train.py`."""
    program = Program(gpu="Quadro RTX 6000")
    with program.range("main"):
        program.call(name) if name else program.pause(5)
    path = program.nsys(tmp_path)
    assert run([command, *(["idle"] if command == "show" else []), str(path)]) == 2
    said = capsys.readouterr().err
    assert "-- ./program" in said and "python" not in said


@pytest.mark.parametrize(
    "rungs",
    [
        [(7.1, 7.1, 19.0)],
        [(9.0, 8.0, 10.0), (7.0, 7.0, 9.0)],
        [(6.0, 6.0, 12.0), (5.0, 4.0, 6.0)],
        [(0.2, 0.2, 18.9)],
        [(9.0, 9.0, 10.0), (8.0, 7.0, 9.0), (4.0, 4.0, 8.0)],
    ],
)
def test_a_plan_of_bounds_is_won_at_most(rungs: list[tuple[float, float, float]]) -> None:
    made = Mock(refused="", step_ms=19.0)
    made.rungs = [
        Mock(after=Quantity(value, "ms", low=low, high=high), cumulative_ms=19.0 - value) for value, low, high in rungs
    ]
    assert "(at most " in headline(made)
    made.rungs = [Mock(after=Quantity(9.0, "ms", low=8.0, high=10.0), cumulative_ms=10.0)]
    assert "at most" not in headline(made)
