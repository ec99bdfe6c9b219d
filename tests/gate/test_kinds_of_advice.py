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
