"""The transformer layer of the post as a program, by the figures that it gives: 383 us a layer, 30 of them idle."""

from tests.gate.programs import Program

_NORM, _GEMM = "vectorized_layer_norm_kernel<Half>", "sm90_xmma_gemm_f16f16_f16f32_tn_n"
_ADD, _SILU, _MUL = (
    f"void at::native::vectorized_elementwise_kernel<8, at::native::{name}>(int)"
    for name in ("CUDAFunctor_add<c10::Half>", "silu_kernel<c10::Half>", "BinaryFunctor<c10::Half, MulFunctor<float>>")
)
# What the post says of each phase, in us; gate and up are 135 together, the two norms 18, adds and SiLU times up 15.
PHASES = {
    "norm_1": ((_NORM, 9.0),), "qkv_proj": ((_GEMM, 85.0),), "o_proj": ((_GEMM, 32.0),),
    "residual_1": ((_ADD, 3.0),), "norm_2": ((_NORM, 9.0),), "gate_proj": ((_GEMM, 67.5),),
    "up_proj": ((_GEMM, 67.5),), "silu_mul": ((_SILU, 4.0), (_MUL, 5.0)), "down_proj": ((_GEMM, 68.0),),
    "residual_2": ((_ADD, 3.0),),
}  # fmt: skip
KERNELS = sum(map(len, PHASES.values()))
IDLE_US = 30.0


def layers(count: int, passes: int = 6) -> Program:
    """So many layers, each phase a range; Python takes as long as a kernel, so each is launched late."""
    program = Program("NVIDIA H100 80GB HBM3", call_us=0.5)
    gap = IDLE_US / KERNELS
    end = program.now + 100
    for number in range(passes):
        begun = end + gap - 1.0
        step = {"name": f"step {number}", "kind": "user_annotation", "at": begun, "facts": {}}
        program.named.append(step)
        for layer in range(count):
            layer_row = {"name": f"L{layer}_layer", "kind": "user_annotation", "at": end + gap - 0.9, "facts": {}}
            program.named.append(layer_row)
            for phase, kernels in PHASES.items():
                row = {"name": phase, "kind": "user_annotation", "at": end + gap - 0.8, "facts": {}}
                program.named.append(row)
                for kernel, us in kernels:
                    program.now = end + gap - 0.7
                    program.launch(kernel, us, late_us=0.2)
                    end = end + gap + us
                row["us"] = end + gap - 1.1 - row["at"]
            layer_row["us"] = end + gap - 1.05 - layer_row["at"]
        step["us"] = end + gap - 1.02 - begun
    return program
