"""What kind of program a capture is of, by the names of its kernels, ranges and threads: whose idioms it knows."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from timesink.knowledge.pattern import Pattern


class ProgramKind(StrEnum):
    """Texts of rules have variants by these names (`diagnosis.rule.rule_texts`). Nothing shows a `NATIVE` one to be
    any other: CUDA or HIP in C++, say."""

    PYTORCH = "pytorch"
    JAX = "jax"
    OFFLOAD = "offload"
    SYCL = "sycl"
    NATIVE = "native"


FRAMEWORKS: Final = (ProgramKind.PYTORCH, ProgramKind.JAX)
"""Programs that are fed with batches, and written in Python."""

XLA: Final = Pattern(
    r"^(?:loop|input|wrapped|fused)_\w+|fusion(?:_\d+)?$|^(?:XlaModule|XlaCompile|TSL:|Xla)",
    "a kernel or a range that XLA makes", ("loop_multiply_fusion_3", "input_reduce_fusion", "XlaModule:jit_step"),
    ("saxpy(double*, int)", "void at::native::reduce_kernel<512>"), "JAX, XLA",
)  # fmt: skip
OFFLOADED: Final = Pattern(
    r"^__omp_offloading_|^nvkernel_\w+_F\d+L\d+|_\d+_gpu(?:__red)?$|^__omp_outlined",
    "a loop that a compiler made a kernel of, for OpenMP or OpenACC",
    ("__omp_offloading_10302_2ca4_main_l42", "nvkernel_main_F1L34_2", "push_125_gpu", "main_34_gpu__red"),
    ("volta_sgemm_128x64_nn", "softmax_warp_forward"), "LLVM, GCC, NVHPC",
)  # fmt: skip
OF_SYCL: Final = Pattern(
    r"^_ZTS|^typeinfo name for |sycl::|__sycl_", "a kernel that is named after a type, as SYCL names them",
    ("_ZTSZZ4mainENKUlRN4sycl", "typeinfo name for main::axpy"), "_Z4axpyPf", "DPC++, AdaptiveCpp",
)  # fmt: skip
OF_TORCH: Final = Pattern(
    r"\b(?:at|c10|vllm|flashinfer|sgl_kernel)::|^triton_|^aten::|^pt_(?:main|autograd|data)|^ProfilerStep#",
    "a kernel, range or thread of PyTorch or what stands on it",
    ("void at::native::reduce_kernel<512>", "triton_poi_fused_add_0", "aten::mm", "pt_autograd_0", "ProfilerStep#3"),
    "saxpy(double*, int)", "PyTorch, Triton, vLLM",
)  # fmt: skip
SIGNS: Final = (
    (ProgramKind.PYTORCH, OF_TORCH),
    (ProgramKind.OFFLOAD, OFFLOADED),
    (ProgramKind.SYCL, OF_SYCL),
    (ProgramKind.JAX, XLA),
)
"""In the order in which they are asked: what stands on PyTorch may launch kernels of others."""
