"""Kernel names for people: short, and saying what the kernel does.

`void at::native::vectorized_elementwise_kernel<8, at::native::AUnaryFunctor<c10::BFloat16, ...>` is an
`elementwise Mul bf16`, `cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1` a `gemm bf16 align1 128×128
(cutlass)`. A short name says the work, the arithmetic type, the tile and the library, as far as the full name does;
names that nobody knows keep their function's name. `short_names` keeps the kernels of one table apart.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from timesink.knowledge import Pattern
from timesink.knowledge.kernel_symbols import function_name, symbol_of
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.startup import regex

_MOST_READ: Final = 2_000  # characters of a name: what tells kernels apart for people stands before that
_MOST_SHOWN: Final = 80
_WORDS_APART = 3
_LONGEST_WORD = 24

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
_FUSED_OPERATORS: Final = """
_adaptive_avg_pool2d _safe_softmax _log_softmax _scaled_mm _to_copy _unsafe_index _unsafe_view
_unsafe_index_put _unsafe_masked_index _native_batch_norm_legit _native_batch_norm_legit_functional
_native_batch_norm_legit_no_training _weight_norm_interface adaptive_avg_pool2d adaptive_max_pool2d as_strided
avg_pool2d batch_norm binary_cross_entropy binary_cross_entropy_with_logits bitwise_and bitwise_not bitwise_or
bitwise_xor broadcast_to clamp_max clamp_min constant_pad_nd cross_entropy_loss embedding_bag embedding_dense
floor_divide full_like fma_rn group_norm huber_loss index_add index_fill index_put index_select
inductor_lookup_seed inductor_random inductor_seeds kl_div layer_norm leaky_relu lift_fresh_copy log_sigmoid
log_softmax logical_and logical_not logical_or masked_fill masked_scatter max_pool2d_with_indices mse_loss
nan_to_num native_batch_norm native_dropout native_group_norm native_layer_norm new_full new_ones new_zeros
nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward ones_like prepare_softmax_online pow_tensor rand_like
randn_like reflection_pad2d repeat_interleave rms_norm scalar_tensor scatter_add scatter_reduce select_scatter
slice_scatter smooth_l1_loss split_with_sizes std_mean sum_to_size type_as upsample_bilinear2d
upsample_nearest2d var_mean zeros_like
"""
"""Operators of PyTorch that compilers fuse and whose names hold more than one word, apart from "backward"."""
_LIBRARIES: Final = {
    "nvjet": Pattern(
        "^nvjet_", "of cuBLAS, matmuls of Hopper and later",
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "void nvjet",
    ),
    "xmma": Pattern(
        r"^sm\d+_xmma_", "of cuBLAS and cuDNN, generated matmuls and convolutions",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "xmma_gemm",
    ),
    "cutlass": Pattern(
        "cutlass", "of CUTLASS, or of a library that is built with it",
        "cutlass_80_simt_sgemm_128x128_8x4_nn_align1", "cute_gemm",
    ),
    "Tensile": Pattern("^Cijk_", "of hipBLASLt and rocBLAS", "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32", "ijk_gemm"),
    "MIOpen": Pattern(
        "^igemm_|^miopen", "of AMD's library for convolutions",
        ("igemm_fwd_gtcx3_nhwc_bf16", "miopenSp3AsmConv"), "void igemm_",
    ),
    "cudnn": Pattern(
        "scudnn|^cudnn|cudnn::|fft2d_(?:r2c|c2r)_|mult_and_sum_complex|implicit_convolve",
        "of cuDNN, old names included",
        ("volta_scudnn_128x64_relu_interior_nn_v1", "cudnn::cnn::wgrad2d_grouped_direct_kernel",
         "implicit_convolve_sgemm"), "volta_sgemm_128x64_nn",
    ),
    "cublas": Pattern(
        r"^(?:volta|turing|ampere|maxwell|hopper|sm\d+)_\w*gemm|cublas",
        "of cuBLAS by the generation of a GPU, or by its own name",
        ("ampere_sgemm_128x64_tn", "cublasLt::splitKreduce_kernel"), "pascal_axpy",
    ),
}
_ALIGNED: Final = Pattern(
    r"_align(\d+)", "the elements that operands are aligned to (CUTLASS)",
    "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256_32x3_nn_align8", "_aligned",
)
_TILES: Final = (
    Pattern(
        r"(?:GemmShape|MatrixShape)<(?:\(int\))?(\d+), ?(?:\(int\))?(\d+)",
        "the tile of a matmul as an argument of CUTLASS 2",
        "cutlass::gemm::GemmShape<(int)64, (int)64, (int)32>", "GemmShape<M, N>",
    ),
    Pattern(
        r"Shape<cute::C<(?:\(int\))?(\d+)>, ?cute::C<(?:\(int\))?(\d+)>",
        "the tile of a matmul as an argument of CUTLASS 3",
        "cute::Shape<cute::C<128>, cute::C<256>, cute::C<64>>", "Shape<int, int>",
    ),
    Pattern(
        r"_bt(\d+)x(\d+)x", "the tile of a convolution (MIOpen)",
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex0_bt256x128x32_wt32x32", "_bt256_",
    ),
    Pattern(
        r"_(\d{2,4})x(\d{1,4})_", "the tile of a matmul in a name of words",
        "ampere_bf16_s16816gemm_128x64_ldg8_tn", ("_1x2_", "_64x4"),
    ),
)
_DIRECTIONS: Final = {
    "conv fprop": Pattern(
        r"xmma_fprop|\dfprop|igemm_fwd", "a convolution forward",
        ("sm90_xmma_fprop_implicit_gemm_bf16", "igemm_fwd_gtcx3"), "fprop",
    ),
    "conv dgrad": Pattern(
        r"xmma_dgrad|\ddgrad|igemm_bwd", "the gradient of a convolution's input",
        "sm90_xmma_dgrad_implicit_gemm_bf16", "dgrad",
    ),
    "conv wgrad": Pattern(
        r"xmma_wgrad|\dwgrad|igemm_wrw", "the gradient of a convolution's weight",
        "cutlass_tensorop_s1688wgrad_optimized", "wgrad",
    ),
    "conv winograd": Pattern(
        "scudnn_winograd", "a convolution by Winograd's method",
        "volta_scudnn_winograd_128x128", "winograd",
    ),
    "conv": Pattern(
        r"scudnn_\d", "a convolution whose direction its name does not say",
        "volta_scudnn_128x64_relu", "scudnn_winograd",
    ),
}
_BACKWARD: Final = Pattern(
    "(?i)bprop|bwd|backward|cutlassB|do_o|convert_dq", "work of a backward pass",
    ("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "fmha_cutlassB_bf16", "cunn_SoftMaxBackward"), "flash_fwd_kernel",
)
_ATTENTION: Final = {
    "flash": Pattern(
        "(?:^|[^a-z])flash(?:::|_fwd|_bwd)|FlashAttn", "FlashAttention",
        ("flash::flash_fwd_kernel", "void FlashAttnFwdSm90"), "cacheflash_fwd",
    ),
    "cudnn": Pattern("cudnn", "the attention of cuDNN", "cudnn_native_sdpa_sm90", "sdpa"),
    "cutlass": Pattern(
        "fmha_cutlass|AttentionKernel", "memory-efficient attention",
        ("fmha_cutlassF_bf16_aligned_64x64", "AttentionKernel<cutlass::bfloat16_t>"), "cutlass_80",
    ),
}
_APPLIED: Final = Pattern(
    r"CUDAFunctor(?:OnSelf)?_(?P<c>\w+)|(?P<a>\w+?)CUDAKernelImpl\b"
    r"|(?P<b>[a-z]\w*?)(?:_cuda)?_kernel(?:_(?:cuda|impl))*\b|(?P<d>[A-Z]\w*?)Functor\b|launch_(?P<e>\w+)"
    r"|(?P<f>arange)_cuda_out|(?P<g>copy)_device_to_device",
    "what an element-wise kernel applies, in the ways that ATen names it",
    ("at::native::CUDAFunctor_add<float>", "at::native::GeluCUDAKernelImpl",
     "at::native::BinaryFunctor<float, MulFunctor<float>>", "bfloat16_copy_kernel_cuda"), "at::native::unrolled",
)
_WRAPPERS: Final = Pattern(
    "elementwise|^gpu|^(?:[AB]Unary|Binary|Opaque|Scalar|Math)$|^reduce$|^multi_tensor_apply$|multi_outputs",
    "what stands around it and says nothing of it",
    ("vectorized_elementwise", "gpu_kernel_impl", "Binary", "reduce"), ("mul", "reduced"),
)
_REDUCED: Final = Pattern(
    r"(\w+?)Ops<|(\w+?)_functor<|::(\w+?)_kernel(?:_cuda|_impl)\b", "what a reduction computes (ATen)",
    ("at::native::MeanOps<float, float>", "func_wrapper_t<float, sum_functor<float>>"), "ReduceOp<float>",
)
_FOREACH: Final = Pattern(
    r"(Fused\w+?)(?:Math)?Functor|Functor<[^>]*>, ?(?:at::native::|std::)?(\w+?)(?:Functor)?[<>]",
    "what a kernel over lists of tensors computes (ATen)",
    ("FusedAdamMathFunctor<float, 4>", "BinaryOpScalarFunctor<float, 1, 1, 0>, std::multiplies<float>"),
    "multi_tensor_apply_kernel",
)
_LOG_SOFTMAX: Final = Pattern(
    r"LogSoftMax|softmax_warp_\w+<[^,]+,[^,]+,[^,]+, ?(?:\(int\))?\d+, ?(?:\(bool\)1|true)",
    "a softmax that yields logarithms (ATen)",
    ("cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>",
     "softmax_warp_forward<float, float, float, 9, true, false>"),
    "softmax_warp_forward<float, float, float, 9, false, false>",
)
_TRITON: Final = Pattern(
    r"^triton_(?P<kind>poi|red|per|tem)_fused_?(?P<rest>\w*?)_?(?P<number>\d+)$",
    "a kernel that TorchInductor generated, with the operators that it fuses",
    ("triton_poi_fused_add_cos_mul_sigmoid_0", "triton_per_fused_7"), "triton_poi_fused_add",
)
_ENDS: Final = Pattern(
    "(?i)(?:_?cuda)?_?kernel(?:_?(?:template|impl|cuda))*$", "what ends the name of a function that is a kernel",
    ("embedding_kernel", "index_kernel_impl", "fooKernel"), "kernel_of",
)
_ELEMENTS: Final = Pattern(
    r"(?:lambda\(|Functor<|ReduceOp<|(?:kernel|contig|vectorized|Copy|_add)<)(?:\w+::)*(\w+)\b(?!::)",
    "the type of the elements that a kernel of ATen works on",
    ("CUDAFunctor_add<c10::BFloat16>", "ReduceOp<c10::BFloat16, float>", "lambda(double)"), "unrolled",
)
_OPAQUE: Final = Pattern(
    r"OpaqueType<(?:\(unsigned int\))?(\d+)", "how many bytes an element has whose type does not matter (ATen)",
    ("OpaqueType<(unsigned int)4>", "OpaqueType<8>"), "OpaqueType<T>",
)
_SCALAR: Final = Pattern(
    "[AB]UnaryFunctor|FunctorOnSelf|Scalar", "an operand is a number",
    ("AUnaryFunctor<float>", "CUDAFunctorOnSelf_add<float>", "BinaryOpScalarFunctor"), "BinaryFunctor<float>",
)
_LAYOUT: Final = Pattern(
    "_([nt]{2})(?:_|$|>)|_([NT]{3})(?:_|$)", "which operands of a matmul are transposed",
    ("ampere_sgemm_128x64_tn", "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"), "_n_",
)
# fmt: on
_OF_WORDS: Final = sorted(_FUSED_OPERATORS.split(), key=len, reverse=True)
_OPERATOR: Final = regex(rf"(?P<name>(?:{'|'.join(_OF_WORDS)}|_?[A-Za-z0-9]+)(?:_backward(?:_data)?)?)(?:_|$)")
_TRITON_WORK: Final = {"poi": "fused", "red": "fused reduce", "per": "fused reduce", "tem": "fused gemm"}
_TYPES: Final = {
    "float": "fp32", "double": "fp64", "BFloat16": "bf16", "Half": "fp16", "__nv_bfloat16": "bf16",
    **{name: name for name in ("long", "bool", "int", "short", "unsigned", "signed", "char")},
}  # fmt: skip
_TYPE_WORDS: Final = frozenset(_TYPES.values())
_TYPES_TOLD: Final = _TYPE_WORDS | {"tf32", "fp8", "fp4", "int8"}
_BY_FAMILY: Final = {
    **{family: family.value for family in (KernelFamily.CONVOLUTION, KernelFamily.ATTENTION, KernelFamily.COPY)},
    **dict.fromkeys((KernelFamily.GEMM, KernelFamily.GEMV), KernelFamily.GEMM.value),
}
_WORD: Final = regex(r"\w+")
_PART: Final = regex(r"[A-Za-z0-9]+")


@lru_cache(maxsize=65536)
def short_name(name: str) -> str:
    """The work of a kernel in a few words: `gemm bf16 128×128 (nvjet)`. Two kernels may share it: `short_names`."""
    read = name[:_MOST_READ]
    form = _gemm if read.startswith("void cutlass::") else _FORMS.get(decode(read).family)
    short = (form(read) if form else "") or _triton(read) or _by_function(read)
    return short if len(short) <= _MOST_SHOWN else f"{short[: _MOST_SHOWN - 1]}…"


@lru_cache(maxsize=65536)
def work_of(name: str) -> str:
    """What a kernel does, whatever its type, tile and library: those of one family that compute a product do one."""
    read = decode(name)
    if read.family in _BY_FAMILY:
        return _BY_FAMILY[read.family]
    return " ".join(word for word in short_name(name).split() if word != read.math and word not in _TYPE_WORDS)


def types_told(short: str) -> frozenset[str]:
    """The types among the words of a short name: `bf16`."""
    return frozenset(short.split()) & _TYPES_TOLD


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The short name of each kernel of a table. Different kernels get different ones: where two would share one, the
    words that only one of them has are added, and a number where there is no such word."""
    named: dict[str, str] = {}
    for short, group in _group_by_text((short_name(name), name) for name in sorted(set(names))):
        named.update(_tell_apart(short, group, _WORDS_APART))
    for text, group in _group_by_text((text, name) for name, text in named.items()):
        if len(group) > 1:
            named.update((name, f"{text} #{number}") for number, name in enumerate(group, start=1))
    return named


def _tell_apart(short: str, group: list[str], words_left: int) -> dict[str, str]:
    """The short name with the first word that not all of the group have, and so on while some still share theirs."""
    if len(group) == 1 or not words_left:
        return dict.fromkeys(group, short)
    words = {name: list(dict.fromkeys((*_details(name), *_words(name[:_MOST_READ])))) for name in group}
    common = set.intersection(*map(set, words.values()))
    own = ((next((word for word in words[name] if word not in common), ""), name) for name in group)
    named: dict[str, str] = {}
    for word, alike in _group_by_text(own):
        named.update(_tell_apart(_join_words(short, word[:_LONGEST_WORD]), alike, words_left - 1))
    return named


def _group_by_text(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """The second of each pair by the first, both in order."""
    groups: dict[str, list[str]] = {}
    for text, name in pairs:
        groups.setdefault(text, []).append(name)
    return list(groups.items())


def _words(name: str) -> list[str]:
    """The identifiers of a declaration; of a bare name its parts."""
    words = (_WORD if "<" in name or "::" in name else _PART).findall(name)
    return [word for word in words if not word.endswith("elementwise_kernel")]


def _details(name: str) -> list[str]:
    """What people would name first to tell two kernels of the same work apart."""
    details = ["scalar"] if _SCALAR.search(name) else []
    if layout := _LAYOUT.search(name):
        details.append((layout[1] or layout[2]).lower())
    if "elementwise_kernel" in name:
        details.append(next((word for word in ("unrolled", "vectorized") if f"{word}_elementwise" in name), "strided"))
    return details


def _join_words(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def library_of(name: str) -> str:
    """The library whose naming the kernel follows: cublas, cutlass, nvjet, ...; '' where that is not known."""
    return next((library for library, pattern in _LIBRARIES.items() if pattern.search(name)), "")


def _tile(name: str) -> str:
    tile = decode(name).tile or next(((m[1], m[2]) for pattern in _TILES if (m := pattern.search(name))), None)
    return f"{tile[0]}×{tile[1]}" if tile else ""


def _product(name: str, work: str) -> str:
    """A matrix product or convolution of a library; '' where no library is known."""
    if not (library := library_of(name)):
        return ""
    aligned = _ALIGNED.search(name)
    return _join_words(work, decode(name).math, aligned and f"align{aligned[1]}", _tile(name), f"({library})")


def _gemm(name: str) -> str:
    if "splitkreduce" in name.lower():
        return _join_words("gemm split-k reduce", decode(name).math)
    return _product(name, "gemm") if "gemm" in name.lower() or name.startswith(("nvjet", "Cijk")) else ""


def _convolution(name: str) -> str:
    work = next((word for word, pattern in _DIRECTIONS.items() if pattern.search(name)), "")
    return _product(name, work) if work else ""


def _attention(name: str) -> str:
    library = next((word for word, pattern in _ATTENTION.items() if pattern.search(name)), "")
    if not library or "fusion::" in name:
        return ""
    direction = "backward" if _BACKWARD.search(name) else "forward"
    return _join_words("attention", direction, decode(name).math, _tile(name), f"({library})")


def _elementwise(name: str) -> str:
    if "elementwise" not in name or "::" not in name:
        return ""
    applied = (next(filter(None, match.groups())) for match in _APPLIED.finditer(name))
    work = next((word for word in applied if not _WRAPPERS.search(word)), "")
    return _join_words("elementwise", work.removeprefix("direct_"), _type(name)) if work else ""


def _filled(name: str) -> str:
    return _join_words("fill", _type(name)) if "FillFunctor" in name else ""


def _reduced(name: str) -> str:
    if "reduce_kernel<" not in name:
        return ""
    match = _REDUCED.search(name, name.index("reduce_kernel<"))
    return _join_words("reduce", match and next(filter(None, match.groups())), _type(name))


def _foreach(name: str) -> str:
    match = _FOREACH.search(name)
    return _join_words("foreach", match and next(filter(None, match.groups())), _type(name))


def _softmax(name: str) -> str:
    if "softmax" not in name.lower() or "triton" in name:
        return ""
    work = "log_softmax" if _LOG_SOFTMAX.search(name) else "softmax"
    return _join_words(work, "backward" if _BACKWARD.search(function_name(name)) else "forward", decode(name).math)


def _concat(name: str) -> str:
    if "CatArray" not in name:
        return ""
    opaque = _OPAQUE.search(name)
    return _join_words("concat", f"{opaque[1]}-byte" if opaque else _type(name))


def _communication(name: str) -> str:
    function = function_name(name)
    return f"nccl {function.split('_', 1)[1]}" if re.match(r"nccl(?:Dev)?Kernel_\w", function) else ""


def _triton(name: str) -> str:
    """TorchInductor names its kernels after what it fused, and numbers them in its code."""
    match = _TRITON.match(name)
    if not match:
        return ""
    words = ", ".join(fused_operators(name)) or match["rest"]
    return f"{_TRITON_WORK[match['kind']]} {match['number']}{': ' if words else ''}{words} (triton)"


def fused_operators(name: str) -> tuple[str, ...]:
    """The operators in the name of a kernel that TorchInductor generated; none where they cannot be told apart.

    It sorts them: a list that is not in order was read wrongly.
    """
    match = _TRITON.match(name)
    rest, operators = match["rest"] if match else "", list[str]()
    while rest and (found := _OPERATOR.match(rest)) is not None:
        operators.append(found["name"])
        rest = rest[found.end() :]
    return tuple(operators) if not rest and operators == sorted(operators) else ()


def _by_function(name: str) -> str:
    """The function without what every kernel's name ends in, and the arithmetic type where it does not say it."""
    function = symbol_of(name).path.split("::")[-1].split("[")[0] or function_name(name)
    bare = _ENDS.sub("", function) or function
    math = decode(name).math
    return _join_words(bare, None if math is None or math in bare else math)


def _type(name: str) -> str:
    """The type of the elements, else the arithmetic type that the name speaks of anywhere."""
    for match in _ELEMENTS.finditer(name):
        if match[1] in _TYPES:
            return _TYPES[match[1]]
    return decode(name).math or ""


_FORMS: Final[dict[KernelFamily, Callable[[str], str]]] = {
    KernelFamily.GEMM: _gemm,
    KernelFamily.CONVOLUTION: _convolution,
    KernelFamily.ATTENTION: _attention,
    KernelFamily.POINTWISE: _elementwise,
    KernelFamily.COPY: _elementwise,
    KernelFamily.LOSS: _elementwise,
    KernelFamily.INDEX: _elementwise,
    KernelFamily.RANDOM: _elementwise,
    KernelFamily.NORM: _elementwise,
    KernelFamily.FILL: _filled,
    KernelFamily.REDUCTION: _reduced,
    KernelFamily.FOREACH: _foreach,
    KernelFamily.SOFTMAX: _softmax,
    KernelFamily.CONCAT: _concat,
    KernelFamily.COMMUNICATION: _communication,
}
