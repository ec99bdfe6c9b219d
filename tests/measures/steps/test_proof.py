"""What is a step and what is none: layers of one pass, micro-batches, turns of streams, replays, starts of programs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.strategies import frame

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck, Undecided
from timesink.measures.steps import steps
from timesink.measures.steps.proof import StepOrigin, Work, proven
from timesink.measures.timeline.start_up import start_up
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.readers import read

CASES = Path(__file__).resolve().parents[2] / "data" / "cases"
WHOSE = {"rank": 0, "process": 1}
PERIOD_US = 10
Op = str | tuple[str, int]
"""A kernel, or a kernel and its stream."""


def program(ops: Sequence[Op], ranges: Sequence[tuple[str, int, int]] = (), **more: object) -> Trace:
    """Kernels of 8 us, launched every 10 us by one thread; ranges by name, first kernel and the one after the last."""
    calls, kernels = [], []
    shared_call: Any = more.get("calls") or range(len(ops))
    for at, (op, call) in enumerate(zip(ops, shared_call, strict=True)):
        name, stream = (op, 7) if isinstance(op, str) else op
        begun = 1_000 * PERIOD_US * at
        if call == at:
            what = {"thread": 1, "name": more.get("call", "cudaLaunchKernel"), "correlation": call}
            calls.append(WHOSE | what | {"start_ns": begun, "end_ns": begun + 3_000})
        kind = {"device": 0, "stream": stream, "kind": "kernel", "name": name, "correlation": call}
        kernels.append(WHOSE | kind | {"start_ns": begun + 5_000, "end_ns": begun + 13_000})
    tables = {API_CALLS: frame(API_CALLS, calls), DEVICE_OPS: frame(DEVICE_OPS, kernels)}
    for table, rows in ((RANGES, ranges), (HOST_OPS, more.get("host_ops", ())), (FRAMES, more.get("frames", ()))):
        assert isinstance(rows, Sequence)
        nested = {"kind": "push_pop", "depth": 0} if table is RANGES else {}
        tables[table] = frame(
            table,
            [
                WHOSE | nested | {"thread": 1, "name": name}
                | {"start_ns": 10_000 * first - 1_000, "end_ns": 10_000 * last - 2_000}
                for name, first, last in rows
            ],
        )  # fmt: skip
    return Trace("program", tables)


def said(trace: Trace) -> tuple[StepOrigin | None, int]:
    """How steps are known, and how many begin."""
    found = steps(trace)
    return found.origin, found.frame.height


LAYER = ["gemm_qkv", "flash", "gemm_out", "gemm_up", "gelu", "gemm_down"]
TRAINING = ["embed", *LAYER * 4, "nll_loss_forward", *reversed(LAYER * 4), "fused_adam_cuda"]
LAYERS_OF_ONE_PASS = {
    "an operator looks up once": program(["vectorized_gather", *LAYER * 9], host_ops=[("aten::embedding", 0, 1)]),
    "a kernel looks up once": program(["indexSelectLargeIndex", *LAYER * 9]),
    "another kernel looks up once": program(["embedding_forward_kernel", *LAYER * 12, "norm"]),
    "a head follows": program(["conv", *LAYER * 12, "norm", "gemm_head"]),
    "a module holds them": program([*LAYER * 9], frames=[("nn.Module: VisionTransformer_0", 0, 54)]),
    "a range holds them": program([*LAYER * 9], [("forward", 0, 54)]),
    "one loss": program([*LAYER * 9, "nll_loss_forward_reduce_cuda_kernel_2d"]),
    "one optimizer": program([*LAYER * 9, "fused_adam_cuda"], [("Optimizer.step#AdamW.step", 54, 55)]),
    "one replay": program(LAYER * 9, calls=[0] * 54, call="cudaGraphLaunch"),
    "numbered twice": program(LAYER * 8, [(f"layer {at % 4}", 6 * at, 6 * at + 6) for at in range(8)]),
}


@pytest.mark.parametrize("trace", LAYERS_OF_ONE_PASS.values(), ids=LAYERS_OF_ONE_PASS)
def test_layers_of_one_pass_are_no_steps(trace: Trace) -> None:
    assert said(trace) == (None, 0)


TURNS = {
    "depth first": [(name, stream) for stream in range(4) for name in ("k1", "k2", "k3", "k4")],
    "one kernel, depth first": [("k", stream) for stream in range(4) for _ in range(4)],
    "one kernel, breadth first": [("k", stream) for _ in range(4) for stream in range(4)],
    "eight streams": [(name, stream) for stream in range(8) for name in ("a", "b")],
    "two streams": [(name, at % 2) for at in range(8) for name in ("a", "b", "c")],
}


@pytest.mark.parametrize("ops", TURNS.values(), ids=TURNS)
def test_the_turns_of_streams_are_no_steps(ops: list[Op]) -> None:
    assert said(program(ops)) == (None, 0)


MICRO = ["gemm_a", "flash", "nll_loss_forward", "gemm_b", "gemm_c"]
ACCUMULATED = [*MICRO * 8, "fused_adam_cuda"] * 5


@pytest.mark.parametrize(
    "name", [None, "micro_batch {}", "batch {}", "DeepSpeedEngine.step", "[pl][profile]run_training_batch"]
)
def test_eight_micro_batches_are_one_step(name: str | None) -> None:
    each = [(at // 8 * 41 + at % 8 * 5, at) for at in range(40)]
    ranges = [] if name is None else [(name.format(at), first, first + 5) for first, at in each]
    optimizers = [("Optimizer.step#AdamW.step", 41 * at + 40, 41 * at + 41) for at in range(5)]
    assert said(program(ACCUMULATED, ranges + optimizers)) == (StepOrigin.FOUND, 5)
    assert said(program(ACCUMULATED)) == (StepOrigin.FOUND, 5)


LIBRARIES = (
    "ncclAllGather", "ncclReduceScatter", "cublasGemmEx", "cudnnBackendExecute", "cub::DeviceReduce::Sum",
    "thrust::sort", "FullyShardedDataParallel.forward", "FSDP::all_gather", "TransformerLayer", "te.LayerNormLinear",
    "mlp", "aten::mm, seq = 3, op_id = 9", "DeepSpeedEngine.forward", "[pl][profile][Callback]on_batch_end",
)  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("each", [1, 6])
def test_ranges_of_libraries_are_no_steps(name: str, each: int) -> None:
    """Around every kernel, or around every layer, of six steps."""
    length = len(TRAINING)
    ranges = [(name, at, at + each) for at in range(0, 6 * length - each, each) if at % length not in (0, length - 1)]
    trace = program(TRAINING * 6, ranges)
    assert said(trace) == (StepOrigin.FOUND, 6)
    assert steps(trace).times.p50_ns == 1_000 * PERIOD_US * length


def test_steps_that_the_user_marks_are_marked_whatever_libraries_mark_outside_of_them() -> None:
    length = len(TRAINING)
    inner = [("ncclAllReduce", at, at + 1) for at in range(6 * length)]
    marks = [(f"train step {at}", length * at, length * (at + 1)) for at in range(6)]
    assert said(program(TRAINING * 6, inner + marks)) == (StepOrigin.MARKED, 6)


@pytest.mark.parametrize(
    ("ops", "origin", "count"),
    [
        (["gemm_gate", "flash", "gemm_out", "argmax"] * 12, StepOrigin.GUESSED, 12),  # a token each
        (["conv_in", "flash", "conv_out", "scheduler"] * 20, StepOrigin.GUESSED, 20),  # a step of denoising each
        (["gemm", "nll_loss_forward", "fused_adam_cuda", "gemm_judge", "fused_adam_cuda"] * 6, StepOrigin.FOUND, 6),
        (["indexSelectLargeIndex", *LAYER * 3, "gemm_head"] * 5, StepOrigin.GUESSED, 5),  # requests
        (LAYER, None, 0),  # one pass
    ],
)  # fmt: skip
def test_steps_without_marks_are_found_where_rare_work_proves_them_and_guessed_elsewhere(
    ops: list[str], origin: StepOrigin | None, count: int
) -> None:
    assert said(program(ops)) == (origin, count)


def test_guessed_steps_are_called_so_and_no_slow_step_is_found_in_them() -> None:
    trace = program(["gemm_gate", "flash", "gemm_out", "argmax"] * 12)
    said_of_it = diagnose(trace)
    assert said_of_it.steps.origin == "guessed" and "guessed step" in said_of_it.statement
    assert any("guessed" in str(note) and "--steps" in str(note) for note in said_of_it.notes)
    assert isinstance(next(r.verdict for r in said_of_it.rulings if r.card.code == "SPK101"), Undecided)
    assert "guessed" not in diagnose(program(TRAINING * 6)).statement


@pytest.mark.parametrize(
    "call", ["cudaLaunchKernel", "cuLaunchKernelEx", "hipLaunchKernel", "hipModuleLaunchKernel", "cudaMalloc"]
)
@pytest.mark.parametrize("before", [0, 1])
def test_the_start_of_a_program_is_no_loop_of_steps(call: str, before: int) -> None:
    """A first call of seconds before the first work of the device, or after one kernel, and four layers behind it."""
    calm = program(["first", *LAYER * 4][1 - before :], host_ops=[("aten::to", -200_000, 1)])
    late = calm[API_CALLS].with_columns(start_ns=calm[API_CALLS]["start_ns"] + 0)
    begun = -1_500_000_000
    first = WHOSE | {"thread": 1, "name": call, "correlation": 999, "start_ns": begun, "end_ns": begun + 1_400_000_000}
    tables = {**calm.tables, API_CALLS: frame(API_CALLS, [first, *late.to_dicts()])}
    if before:
        early = calm[DEVICE_OPS].to_dicts()
        early[0] |= {"start_ns": begun - 10_000, "end_ns": begun - 5_000}
        tables[DEVICE_OPS] = frame(DEVICE_OPS, early)
    trace = Trace("cold", tables)
    assert start_up(trace).is_most
    assert said(trace) == (None, 0)
    assert diagnose(trace).bottleneck is Bottleneck.UNDECIDED


def test_a_cold_pass_of_ten_layers_is_the_start_of_a_program() -> None:
    trace = read(CASES / "08_cold_single_pass.json", cache=False)
    found = diagnose(trace)
    assert said(trace) == (None, 0)
    assert found.bottleneck is Bottleneck.UNDECIDED
    assert "98.9 % of the 1.36 s capture is start-up" in found.statement and "1.35 s" in found.statement


def test_sixteen_kernels_on_four_streams_have_no_step() -> None:
    trace = read(CASES / "streams_breadth.sqlite", cache=False)
    found = diagnose(trace)
    assert said(trace) == (None, 0)
    assert "busy 83.8 % of the 77.6 us window" in found.statement


@pytest.mark.parametrize("at_ns", [[], [5], [20], [15], [15, 30], [5, 20, 40]])
@pytest.mark.parametrize("work", Work)
def test_a_round_that_stands_alone_is_a_step_where_its_work_is_in_it(work: Work, at_ns: list[int]) -> None:
    known = proven(np.array([10]), {work: np.array(at_ns)} if at_ns else {})
    assert known is None or known[0].tolist() == [0]
    assert known is not None or at_ns in ([5], [5, 20, 40]) or work in (Work.OPTIMIZER, Work.FIRST_LAYER)
