"""Advice that cannot be followed where it is given, in shapes that no capture here has."""

from pathlib import Path

import pytest
from tests.gate.programs import Program

from timesink import diagnose, read
from timesink.diagnosis.plan.ladder import plan


@pytest.mark.parametrize(
    ("gpu", "kernel", "own"),
    [
        ("Tesla T4", "matmul_k(float*, float*, float*, int, int, int)", True),
        ("NVIDIA A100-SXM4-80GB", "sgemm_naive(int, int, int, float, const float *, const float *, float *)", True),
        ("NVIDIA H100 80GB HBM3", "void gemm_tiled(float const*, float const*, float*, int)", True),
        ("NVIDIA GeForce RTX 4090", "matmul_shared(float *, float *, float *, unsigned int)", True),
        ("Tesla V100-SXM2-32GB", "batched_matmul(const float*, const float*, float*, int)", True),
        ("Tesla T4", "volta_sgemm_128x64_tn", False),
        ("NVIDIA A100-SXM4-80GB", "ampere_sgemm_128x64_tn", False),
    ],
)
def test_types_are_asked_of_operators_and_not_of_kernels_that_people_wrote(
    gpu: str, kernel: str, own: bool, tmp_path: Path
) -> None:
    """Autocast was planned for a product of plain pointers, which it does not reach."""
    program = Program(gpu=gpu)
    for step in range(8):
        with program.range(f"ProfilerStep#{step}"):
            for _ in range(4):
                with program.range("aten::mm", "cpu_op"):
                    program.launch(kernel, 2000)
            program.wait()
    trace = read(program.kineto(tmp_path), cache=False)
    diagnosis = diagnose(trace)
    asked = [finding.advice for card, finding in diagnosis.findings if card.name == "precision"]
    types = {"fp16", "bf16", "bf16_weights", "tf32"} & {rung.id for rung in plan(trace, diagnosis).rungs}
    assert (bool(asked), bool(types)) == (not own, not own)


@pytest.mark.parametrize(
    ("optimizer", "fused"),
    [("Shampoo", False), ("Lion", False), ("Muon", False), ("SOAP", False), ("AdamWScheduleFree", False),
     ("AdamW", True), ("SGD", True)],
)  # fmt: skip
def test_fused_steps_are_asked_of_optimizers_that_have_one(optimizer: str, fused: bool, tmp_path: Path) -> None:
    """`fused=True` and `foreach=True` were planned for a Shampoo, which knows neither."""
    program = Program()
    for step in range(8):
        with program.range(f"ProfilerStep#{step}"):
            with program.range("aten::mm", "cpu_op"):
                program.launch("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", 400)
            with program.range(f"Optimizer.step#{optimizer}.step"):
                for number in range(60):
                    program.pause(8)
                    with program.range("aten::mul_" if number % 2 else "aten::add_", "cpu_op"):
                        program.launch(
                            "void at::native::vectorized_elementwise_kernel<4, at::native::"
                            f"{'AUnary' if number % 2 else 'CUDA'}Functor_{'mul' if number % 2 else 'add'}<float>>", 3
                        )  # fmt: skip
            program.wait()
    trace = read(program.kineto(tmp_path), cache=False)
    diagnosis = diagnose(trace)
    (advice,) = {finding.advice for card, finding in diagnosis.findings if card.name == "optimizer-unfused"}
    assert advice.startswith("Pass fused=True to the optimizer" if fused else "Compile optimizer.step()")
    made = {rung.id for rung in plan(trace, diagnosis).rungs}
    assert bool({"fused_optimizer", "foreach"} & made) is fused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "sent", "turns", "call"),
    [
        ("nvkernel_solve_F1L210_2", 2, 50, "cuMemcpyHtoDAsync_v2"),
        ("__omp_offloading_10302_2ca4_main_l42", 3, 30, "cuMemcpyHtoDAsync_v2"),
        ("push_125_gpu", 3, 12, "cuMemcpyHtoDAsync_v2"),
        ("nvkernel__Z6jacobiPdS_i_F1L88_4", 4, 80, "cudaMemcpy"),
        ("main_34_gpu__red", 2, 20, "cudaMemcpy"),
    ],
)
@pytest.mark.parametrize("way", ["HtoD", "DtoH"])
def test_directives_that_copy_once_are_told_to_pin(
    way: str, kernel: str, sent: int, turns: int, call: str, tmp_path: Path
) -> None:
    """Data that was mapped once, before the loop, was to be mapped once around the loop."""
    program = Program(gpu="Tesla T4")
    for _ in range(sent if way == "HtoD" else 0):
        program.copy("HtoD", 512_000_000, 106_000, memory="Pageable", call=call, blocking=True)
    for _ in range(turns):
        program.launch(kernel, 4200, call="cuLaunchKernel")
        program.wait("cuStreamSynchronize")
    for _ in range(sent if way == "DtoH" else 0):
        program.copy("DtoH", 512_000_000, 108_000, memory="Pageable", call=call, blocking=True)
    found = diagnose(read(program.nsys(tmp_path), cache=False))
    (advice,) = [finding.advice for card, finding in found.findings if card.name == "pageable-copies"]
    assert advice.startswith("Pin what is")
