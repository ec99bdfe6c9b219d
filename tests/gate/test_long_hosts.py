"""Host work that is long by itself has a finding of its own, whatever the call or the operator is called."""

import json
from pathlib import Path

import pytest
from tests.gate.programs import Program
from tests.gate.test_siblings import BOTH, GEMM, told

from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.idle.blame import idle_blame
from timesink.measures.timeline import device_timeline


def marked(program: Program, number: int, kernels: int = 10) -> None:
    for _ in range(kernels):
        program.launch(f"{GEMM}_{number % 1}", 100)


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize(
    ("call", "us", "words"),
    [
        ("cudaGraphInstantiate", 9000, "to be instantiated"),
        ("cudaGraphInstantiateWithFlags", 700, "to be instantiated"),
        ("cuGraphInstantiateWithParams", 4000, "to be instantiated"),
        ("cudaFuncSetAttribute", 900, "runtime calls that take long"),
        ("cuCtxSetLimit", 2500, "runtime calls that take long"),
        ("hipStreamCreateWithFlags", 1500, "runtime calls that take long"),
    ],
)
def test_a_long_call_of_every_step_is_named(call: str, us: float, words: str, profiler: str, tmp_path: Path) -> None:
    program = Program()
    for number in range(8):
        with program.range(f"ProfilerStep#{number}"):
            program.call(call, us)
            marked(program, number)
            program.wait()
    trace, found = told(program, profiler, tmp_path)
    assert found.bottleneck is Bottleneck.RUNTIME_CALLS
    assert words in found.statement and call in found.statement
    assert "CUDA graph" not in found.findings[0][1].advice.replace("CUDA graphs", "")
    assert idle_blame(trace).idle_ns == sum(line.idle_ns for line in device_timeline(trace))


@BOTH
@pytest.mark.parametrize(("call", "times", "pause"), [("cudaEventQuery", 40, 14), ("cuStreamQuery", 25, 30)])
def test_a_loop_of_queries_is_no_launch_problem(
    call: str, times: int, pause: float, profiler: str, tmp_path: Path
) -> None:
    program = Program()
    for number in range(30):
        with program.range(f"ProfilerStep#{number}"):
            for _ in range(times):
                program.call(call, 1.5)
                program.pause(pause)
            program.launch(GEMM, 100)
    _, found = told(program, profiler, tmp_path)
    assert found.bottleneck is Bottleneck.RUNTIME_CALLS
    assert "asks again and again" in found.statement


@pytest.mark.parametrize("call", ["cudaHostAlloc", "cudaHostRegister", "cudaMalloc", "hipHostMalloc", "cudaFreeHost"])
def test_launches_behind_another_thread_name_what_it_calls(call: str, tmp_path: Path) -> None:
    program = Program()
    held = []
    for number in range(6):
        with program.range(f"ProfilerStep#{number}"):
            held.append(program.now)
            program.call_us = 8000
            program.launch("first", 100)
            program.call_us = 5
            marked(program, number, 20)
            program.wait()
    path = program.kineto(tmp_path)
    document = json.loads(path.read_text())
    beside = {"ph": "X", "cat": "cuda_runtime", "name": call, "pid": 4242, "tid": 9001, "dur": 7990, "args": {}}
    document["traceEvents"] += [{**beside, "ts": at} for at in held]
    path.write_text(json.dumps(document))
    program.kineto = lambda folder: path  # type: ignore[method-assign]
    _, found = told(program, "kineto", tmp_path)
    assert found.bottleneck is Bottleneck.RUNTIME_CALLS
    assert f"stand behind {call} on another thread" in found.statement


@pytest.mark.parametrize(
    ("operator", "us", "times", "around"),
    [
        ("aten::_foreach_lerp_", 300, 60, "Optimizer.step#Adam.step"),
        ("aten::linalg_vector_norm", 150, 200, "clip_grad_norm_"),
        ("aten::unbind", 450, 30, "metrics"),
        ("aten::index_put_", 480, 20, "scatter"),
        ("aten::split_with_sizes", 400, 30, "unflatten"),
    ],
)
def test_operators_that_launch_little_are_a_finding(
    operator: str, us: float, times: int, around: str, tmp_path: Path
) -> None:
    program = Program()
    for number in range(6):
        with program.range(f"ProfilerStep#{number}"):
            marked(program, number)
            with program.range(around):
                for at in range(times):
                    with program.range(operator, "cpu_op"):
                        program.pause(us)
                        if at % 4 == 0:
                            program.launch("small", 5)
    _, found = told(program, "kineto", tmp_path)
    assert found.bottleneck is Bottleneck.HOST_OPERATORS
    assert operator in found.statement
    first = found.findings[0][1]
    assert first.recoverable and first.of_ms and first.recoverable.most <= first.of_ms
