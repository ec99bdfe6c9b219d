"""What kind of program a capture is of, by the names of its kernels, ranges and threads: whose idioms it knows."""

from enum import StrEnum
from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
XLA: Final = Pattern(
    r"^wrapped_\w+$|fusion(?:_\w+)?(?:_\d+)?$|^triton_(?:gemm|softmax)"
    r"|^(?:XlaModule|XlaCompile|TSL:|Xla)",
    "a kernel or a range that XLA makes (JAX, XLA)",
    ("loop_multiply_fusion_3", "input_reduce_fusion", "gemm_fusion_dot_5", "triton_softmax_2", "XlaModule:jit_step"),
    ("fused_force_kernel(const float *)", "input_pipeline", "void at::native::reduce_kernel<512>"),
)
OFFLOADED: Final = Pattern(
    r"^__omp_offloading_|^nvkernel_\w+_F\d+L\d+|_\d+_gpu(?:__red)?$|^__omp_outlined",
    "a loop that a compiler made a kernel of, for OpenMP or OpenACC (LLVM, GCC, NVHPC)",
    ("__omp_offloading_10302_2ca4_main_l42", "nvkernel_main_F1L34_2", "push_125_gpu", "main_34_gpu__red"),
    ("volta_sgemm_128x64_nn", "softmax_warp_forward"),
)
OF_SYCL: Final = Pattern(
    "^_ZTS|^typeinfo name for |sycl::|__sycl_",
    "a kernel that is named after a type, as SYCL names them (DPC++, AdaptiveCpp)",
    ("_ZTSZZ4mainENKUlRN4sycl", "typeinfo name for main::axpy"), "_Z4axpyPf",
)
OF_TORCH: Final = Pattern(
    r"\b(?:at|c10|vllm|flashinfer|sgl_kernel)::|^triton_(?:poi|red|per|tem|mm|spl|for|unk|fused|\d*)_|^aten::"
    r"|^pt_(?:main|autograd|data)|^ProfilerStep#",
    "a kernel, range or thread of PyTorch or what stands on it (PyTorch, Triton, vLLM)",
    ("void at::native::reduce_kernel<512>", "triton_poi_fused_add_0", "triton__0d1d2de", "aten::mm", "pt_autograd_0",
     "ProfilerStep#3"), ("triton_softmax_2", "saxpy(double*, int)"),
)
BY_PYTHON: Final = Pattern(
    r"^(?:i?python[\d.]*t?|torchrun|jupyter\S*)$", "a thread of a Python interpreter",
    ("python", "python3.13", "torchrun"), ("./python_c_nvidia", "cuda-EvtHandlr"),
)
# fmt: on


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

SIGNS: Final = (
    (ProgramKind.PYTORCH, OF_TORCH),
    (ProgramKind.OFFLOAD, OFFLOADED),
    (ProgramKind.SYCL, OF_SYCL),
    (ProgramKind.JAX, XLA),
)
"""In the order in which they are asked: what stands on PyTorch may launch kernels of others."""
