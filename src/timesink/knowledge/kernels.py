"""What a kernel's name says: family, arithmetic type, tile. What a device operation is for says `op_class`.

It needs no Polars, since what verifies a program shows kernels' names where there is none.

Names are conventions of the libraries that launch the kernels, read from public traces (cuBLAS nvjet and xmma, cuDNN,
CUTLASS, FlashAttention, Triton as TorchInductor names it, NCCL and RCCL, ATen, Tensile, MIOpen, CUB). A name that no
pattern knows is `OTHER`; nothing is inferred from silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

from timesink.knowledge import collectives
from timesink.knowledge.pattern import Pattern
from timesink.startup import dataclass, regex


class KernelFamily(StrEnum):
    """What kind of work a kernel does, as far as its name tells."""

    GEMM = "gemm"
    GEMV = "gemv"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    LAYOUT = "layout"
    COPY = "copy"
    FILL = "fill"
    POINTWISE = "pointwise"
    FOREACH = "foreach"
    REDUCTION = "reduction"
    SOFTMAX = "softmax"
    NORM = "norm"
    INDEX = "index"
    CONCAT = "concat"
    SORT_SCAN = "sort_scan"
    RANDOM = "random"
    LOSS = "loss"
    POOLING = "pooling"
    COMMUNICATION = "communication"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class KernelName:
    """`math` is the arithmetic path (fp32 means plain CUDA-core multiply-adds); `tile` is rows x columns as written;
    `fused` names the compiler that generated the kernel, where one did."""

    family: KernelFamily
    math: str | None = None
    tile: tuple[int, int] | None = None
    fused: str | None = None


_NVJET_LETTER = {"t": "bf16", "h": "fp16", "s": "tf32", "q": "fp8", "d": "fp64", "i": "int8"}
_TENSILE_LETTER = {"B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "I": "int8", "F": "fp8"}

_FAMILY_PATTERNS = (
    (KernelFamily.ATTENTION, Pattern(
        r"(?<!cache_)flash_|fmha|FlashAttn|compute_dot_do_o|convert_dq|sdpa|attn_(?:fwd|bwd)|(?:^|_)attention"
        r"|AttentionKernel|efficient_attention|mha_|unified_attention",
        "a fused attention", ("flash_fwd_kernel", "cutlass::fmha_cutlassF_bf16", "cudnn_native_sdpa_sm90"),
        "cache_flash_",
    )),
    (KernelFamily.LAYOUT, Pattern(
        r"nchwToNhwc|nhwcToNchw|batched_transpose|transpose_readWrite|tensorTransform|permute|_transpose_kernel",
        "changes a layout and nothing else", ("nchwToNhwcKernel", "batched_transpose_32x32"), "transposed_gemm",
    )),
    (KernelFamily.CONVOLUTION, Pattern(
        r"implicit_gemm|convolve|xmma_(?:fprop|dgrad|wgrad)|scudnn|cudnn.*(?:fprop|dgrad|wgrad|convolve)"
        r"|(?:dgrad|wgrad)\w*_engine"
        r"|winograd|igemm_(?:fwd|bwd|wrw)|conv(?:olution|2d|_depthwise|_fwd|_bwd)|im2col|depthwise|wgrad_nchw"
        r"|computeW?\w*OffsetsKernel|fft2d_(?:r2c|c2r)|mult_and_sum_complex",
        "a convolution",
        ("implicit_convolve_sgemm", "sm80_xmma_fprop_implicit_gemm", "depthwise_conv2d_fwd", "fft2d_r2c_64x64"),
        "ampere_sgemm_128x64_tn",
    )),
    (KernelFamily.GEMV, Pattern(
        r"gemv|dot_kernel|reduce_1Block_kernel",
        "a product with a vector", ("gemv2T_kernel_val", "dot_kernel"), "ampere_sgemm_128x64_tn",
    )),
    (KernelFamily.GEMM, Pattern(
        r"nvjet|gemm|^Cijk_|cutlass.*(?:Gemm|gemm)|splitK_?reduce|_matmul|matmul_|triton_tem_fused|triton_mm",
        "a matrix product", ("nvjet_tst_128x64_h_bz_TNT", "Cijk_Ailk_Bljk_BBS_MT128x128x32", "triton_tem_fused_mm_0"),
        "vectorized_elementwise_kernel",
    )),
    (KernelFamily.NORM, Pattern(
        r"layer_?norm|rms_?norm|group_?norm|batch_?norm|GammaBeta|bn_(?:fw|bw)|RowwiseMoments|instance_norm",
        "a normalisation", ("vectorized_layer_norm_kernel", "bn_fw_tr_1C11_kernel_NCHW", "rmsnorm_kernel"),
        "vectorized_elementwise_kernel",
    )),
    (KernelFamily.LOSS, Pattern(
        r"nll_?(?:loss|criterion)|cross_entropy|mse_(?:backward_)?(?:cuda_)?kernel|bce_",
        "a loss", ("nll_loss_forward_reduce_cuda_kernel_2d", "triton_red_fused_cross_entropy_0"), "cunn_SoftMaxForward",
    )),
    (KernelFamily.SOFTMAX, Pattern(
        r"softmax",
        "a softmax", "softmax_warp_forward", "softplus_kernel",
    )),
    (KernelFamily.FOREACH, Pattern(
        r"multi_tensor_apply|FusedOptimizer|FusedAdam|foreach",
        "one operation on many tensors", "multi_tensor_apply_kernel", "vectorized_elementwise_kernel",
    )),
    (KernelFamily.CONCAT, Pattern(
        r"CatArray|concat|split_with_sizes",
        "puts tensors together or takes one apart", ("CatArrayBatchedCopy", "split_with_sizes_copy_out"),
        "vectorized_elementwise_kernel",
    )),
    (KernelFamily.RANDOM, Pattern(
        r"distribution_elementwise|dropout|philox|curand|randperm",
        "draws random numbers", ("distribution_elementwise_grid_stride_kernel", "fused_dropout_kernel_vec"),
        "vectorized_elementwise_kernel",
    )),
    (KernelFamily.POOLING, Pattern(
        r"pool(?:ing)?_|_pool|MaxPool|avg_pool",
        "pools", ("max_pool_forward_nhwc", "avg_pool2d_out_cuda_frame"), "threadpool",
    )),
    (KernelFamily.SORT_SCAN, Pattern(
        r"RadixSort|bitonicSort|Device(?:Scan|Compact|Select|UniqueByKey|MergeSort)|cumsum|scan_|topk|sort",
        "sorts or sums up along an axis", ("DeviceRadixSortOnesweepKernel", "tensor_kernel_scan_innermost_dim_cumsum"),
        "reduce_kernel",
    )),
    (KernelFamily.POINTWISE, Pattern(
        r"rotary",
        "turns positions into phases", "rotary_embedding_kernel", "embedding_backward_kernel",
    )),
    (KernelFamily.INDEX, Pattern(
        r"index|gather|scatter|embedding|compute_grad_weight|krn_partial|segment|masked_|put_|take_|store_kvcache"
        r"|reshape_and_cache|arange",
        "reads or writes by indices", ("indexSelectLargeIndex", "embedding_backward_kernel", "store_kvcache"),
        "reduce_kernel",
    )),
    (KernelFamily.FILL, Pattern(
        r"FillFunctor|cupy_fill|memset|OpTensorKernel.*fill",
        "fills", ("vectorized_elementwise_kernel<4, FillFunctor<float>>", "cupy_fill"), "fillet_kernel",
    )),
    (KernelFamily.COPY, Pattern(
        r"copy_kernel|direct_copy|copy_device_to_device|cupy_copy|triton_poi_fused__to_copy_\d+$|OpWithCast",
        "copies", ("bfloat16_copy_kernel_cuda", "direct_copy_kernel_cuda"), "copysign_kernel",
    )),
    (KernelFamily.REDUCTION, Pattern(
        r"reduce_kernel|reduction|triton_(?:red|per)_|DeviceReduce|nvfuser_\w*(?:reduction|persistent)"
        r"|reduce_segments|_reduce_",
        "reduces", ("reduce_kernel<512, 1>", "triton_red_fused_add_0", "DeviceReduceKernel"),
        "vectorized_elementwise_kernel",
    )),
    (KernelFamily.POINTWISE, Pattern(
        r"elementwise|triton_poi_|nvfuser_pointwise|act_and_mul|Functor|cupy_\w+__|scalePackedTensor|SubTensorOp"
        r"|saxpy",
        "works element by element", ("vectorized_elementwise_kernel", "triton_poi_fused_add_0"), "reduce_kernel",
    )),
)  # fmt: skip
_FAMILIES = (
    (KernelFamily.COMMUNICATION, regex(collectives.COMMUNICATION)),
    *((family, regex(pattern, re.IGNORECASE)) for family, pattern in _FAMILY_PATTERNS),
)

_FUSED = (
    ("inductor", regex(r"^triton_(?:poi|red|per|tem)_fused|^triton_mm")),
    ("nvfuser", regex(r"nvfuser_")),
)

_MATH: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fp8", regex(r"e4m3|e5m2|fp8|f8f8|float8", re.IGNORECASE)),
    ("tf32", regex(r"tf32|xmma_\w*f32f32_tf32|s1688gemm(?!_f16|_bf16)|s1688tf32", re.IGNORECASE)),
    ("bf16", regex(r"bf16|bfloat16|__nv_bfloat|BFloat16", re.IGNORECASE)),
    (
        "fp16",
        regex(
            r"h(?:884|1688|16816)(?:gemm|fprop|dgrad|wgrad|cudnn)?|_fp16|f16f16|_half\b|c10::Half|__half|s16816gemm_f16|s884",
            re.IGNORECASE,
        ),
    ),
    ("int8", regex(r"imma|int8|s8s8|i8816|i16832", re.IGNORECASE)),
    ("fp64", regex(r"dgemm|f64f64|d884gemm|\bdouble\b", re.IGNORECASE)),
    ("fp32", regex(r"sgemm|scudnn|f32f32_f32f32|ffma|gcgemm|cutlass_\d+_simt|\bfloat2?\b|_f32\b", re.IGNORECASE)),
)

_TILES = (
    regex(r"nvjet_(?:sm\d+_)?[a-z]{3,6}_(\d+)x(\d+)_"),
    regex(r"tilesize(\d+)x(\d+)x\d+"),
    regex(r"_MT(\d+)x(\d+)x\d+"),
    regex(r"gemm(?:_[a-z]\w*?)?_(\d+)x(\d+)(?:_|$)"),
)
_NVJET = regex(r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2,5}_\d+x\d+")
_TENSILE = regex(r"^Cijk_\w+?_([A-Z])_?[A-Z]*_")


_LONGEST = 16384  # the longest name seen in a capture has a third of that


@lru_cache(maxsize=65536)
def decode(name: str) -> KernelName:
    """What the name says. Demangled, mangled and short names are all accepted; templates are read as text.

    Of a longer name than compilers write, the beginning is read.
    """
    name = name[:_LONGEST]
    family = next((family for family, pattern in _FAMILIES if pattern.search(name)), KernelFamily.OTHER)
    return KernelName(
        family=family,
        math=None if family is KernelFamily.COMMUNICATION else _math(name),
        tile=next(((int(m[1]), int(m[2])) for p in _TILES if (m := p.search(name))), None),
        fused=next((tool for tool, pattern in _FUSED if pattern.search(name)), None),
    )


def _math(name: str) -> str | None:
    if nvjet := _NVJET.search(name):
        return _NVJET_LETTER.get(nvjet[1])
    if tensile := _TENSILE.search(name):
        return _TENSILE_LETTER.get(tensile[1])
    return next((math for math, pattern in _MATH if pattern.search(name)), None)


_CASTS = regex(r"\((?:unsigned )?(?:int|long|long long|bool|char|short|unsigned)\)(?=[-\d])")
_UNNAMED = ("(anonymous namespace)::", "<unnamed>::")


def function_name(demangled: str) -> str:
    """The bare name: without return type, namespaces, template arguments and parameters."""
    name = demangled
    for unnamed in _UNNAMED:
        name = name.replace(unnamed, "")
    bare = "".join(_outside_brackets(name)).strip()
    last = re.split(r"\s|::", bare)[-1]
    return last or demangled


def plain_name(demangled: str) -> str:
    """The whole name with the differences between demanglers removed: casts before numbers, blanks, unnamed scopes."""
    name = _CASTS.sub("", demangled)
    for unnamed in _UNNAMED:
        name = name.replace(unnamed, "")
    return re.sub(r"\s+", "", name)


def _outside_brackets(name: str) -> Iterator[str]:
    depth = 0
    for letter in name:
        if letter in "<(":
            if depth == 0 and letter == "(":
                return
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif depth == 0:
            yield letter
