"""What a kernel's name says: family, arithmetic type, tile. What a device operation is for says `op_class`.

It needs no Polars, since what verifies a program shows kernels' names where there is none.

Names are conventions of the libraries that launch the kernels, read from public traces (cuBLAS nvjet and xmma, cuDNN,
CUTLASS, FlashAttention, Triton as TorchInductor names it, NCCL and RCCL, ATen, Tensile, MIOpen, CUB). A name that no
pattern knows is `OTHER`; nothing is inferred from silence.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from timesink.knowledge import Pattern, collectives
from timesink.knowledge.kernel_symbols import Symbol, symbol_of
from timesink.records import Record
from timesink.startup import regex


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
    DELAY = "delay"
    OTHER = "other"


class KernelName(Record):
    """`math` is the arithmetic path (fp32 means plain CUDA-core multiply-adds); `tile` is rows x columns as written;
    `fused` names the compiler that generated the kernel, where one did."""

    family: KernelFamily
    math: str | None = None
    tile: tuple[int, int] | None = None
    fused: str | None = None


_NVJET_LETTER = {"t": "bf16", "h": "fp16", "s": "tf32", "q": "fp8", "d": "fp64", "i": "int8", "o": "fp4"}
_TENSILE_LETTER = {
    "B": "bf16", "H": "fp16", "S": "fp32", "D": "fp64", "C": "fp32", "Z": "fp64", "X": "tf32", "F8": "fp8", "B8": "fp8",
    "I8": "int8", "4xi8": "int8",
}  # fmt: skip

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
_BY_FAMILY: Final = (
    (KernelFamily.DELAY, Pattern(
        "(?:^|::|_)(?:spin|nano_?sleep|sleep|busy_?wait|delay|clock_?block)(?:_?(?:kernel|for|cycles|ns))*$",
        "lets time pass on purpose (torch.cuda._sleep, tests, benchmarks)",
        ("at::cuda::spin_kernel", "nanosleep_kernel", "delay_kernel", "clock_block"),
        ("spinor_kernel", "delayed_scaling", "sleepless"),
    )),
    (KernelFamily.ATTENTION, Pattern(
        r"(?<!cache_)flash_|fmha|FlashAttn|compute_dot_do_o|convert_dq|sdpa|attn_(?:fwd|bwd)|(?:^|_)attention"
        r"|AttentionKernel|efficient_attention|mha_|unified_attention|(?:Prefill|Decode)With\w*KVCache",
        "a fused attention",
        ("flash_fwd_kernel", "cutlass::fmha_cutlassF_bf16", "cudnn_native_sdpa_sm90"), "cache_flash_",
    )),
    (KernelFamily.LAYOUT, Pattern(
        "nchwToNhwc|nhwcToNchw|batched_transpose|transpose_readWrite|tensorTransform|(?<!with)permute"
        "|_transpose_kernel",
        "changes a layout and nothing else",
        ("nchwToNhwcKernel", "batched_transpose_32x32"), ("transposed_gemm", "GemmWithPermute"),
    )),
    (KernelFamily.CONVOLUTION, Pattern(
        r"implicit_gemm|convolve|xmma_(?:fprop|dgrad|wgrad)|scudnn|cudnn.*(?:fprop|dgrad|wgrad|convolve)"
        r"|(?:dgrad|wgrad)\w*_engine|\d(?:fprop|dgrad|wgrad|cudnn)|xmma_\w*cudnn::|winograd|igemm_(?:fwd|bwd|wrw)"
        r"|conv(?:olution|2d|_depthwise|_fwd|_bwd)|AsmConv|naive_conv|im2col|depthwise|wgrad_nchw"
        r"|computeW?\w*OffsetsKernel|fft2d_(?:r2c|c2r)|mult_and_sum_complex",
        "a convolution",
        ("implicit_convolve_sgemm", "sm80_xmma_fprop_implicit_gemm", "depthwise_conv2d_fwd", "fft2d_r2c_64x64"),
        "ampere_sgemm_128x64_tn",
    )),
    (KernelFamily.GEMV, Pattern(
        "gemv|gemmSN_|gemmk1_|dot_kernel|reduce_1Block_kernel", "a matmul with a vector or few columns",
        ("gemv2T_kernel_val", "dot_kernel"), "ampere_sgemm_128x64_tn",
    )),
    (KernelFamily.GEMM, Pattern(
        r"nvjet|gemm|^Cijk_|cutlass.*(?:Gemm|gemm)|splitK_?reduce|_matmul|matmul_|triton_tem_fused|triton_mm|marlin"
        r"|^bmm_(?:mx)?(?:e\dm\d|bfloat16|fp16)",
        "a matmul",
        ("nvjet_tst_128x64_h_bz_TNT", "Cijk_Ailk_Bljk_BBS_MT128x128x32", "triton_tem_fused_mm_0"),
        "vectorized_elementwise_kernel",
    )),
    (KernelFamily.NORM, Pattern(
        "layer_?norm|rms_?norm|group_?norm|batch_?norm|GammaBeta|bn_(?:fw|bw)|RowwiseMoments|instance_norm",
        "a normalization",
        ("vectorized_layer_norm_kernel", "bn_fw_tr_1C11_kernel_NCHW", "rmsnorm_kernel"),
        "vectorized_elementwise_kernel",
    )),
    (KernelFamily.LOSS, Pattern(
        "nll_?(?:loss|criterion)|cross_entropy|mse_(?:backward_)?(?:cuda_)?kernel|bce_", "a loss",
        ("nll_loss_forward_reduce_cuda_kernel_2d", "triton_red_fused_cross_entropy_0"), "cunn_SoftMaxForward",
    )),
    (KernelFamily.SOFTMAX, Pattern("softmax", "a softmax", "softmax_warp_forward", "softplus_kernel")),
    (KernelFamily.FOREACH, Pattern(
        "multi_tensor_apply|FusedOptimizer|FusedAdam|foreach", "one operation on many tensors",
        "multi_tensor_apply_kernel", "vectorized_elementwise_kernel",
    )),
    (KernelFamily.CONCAT, Pattern(
        "CatArray|concat|split_with_sizes", "puts tensors together or takes one apart",
        ("CatArrayBatchedCopy", "split_with_sizes_copy_out"), "vectorized_elementwise_kernel",
    )),
    (KernelFamily.RANDOM, Pattern(
        "distribution_elementwise|dropout|philox|curand|randperm", "draws random numbers",
        ("distribution_elementwise_grid_stride_kernel", "fused_dropout_kernel_vec"), "vectorized_elementwise_kernel",
    )),
    (KernelFamily.POOLING, Pattern(
        "pool(?:ing)?_|_pool|MaxPool|avg_pool", "pools",
        ("max_pool_forward_nhwc", "avg_pool2d_out_cuda_frame"), "threadpool",
    )),
    (KernelFamily.SORT_SCAN, Pattern(
        "RadixSort|bitonicSort|Device(?:Scan|Compact|Select|UniqueByKey|MergeSort)|cumsum|scan_|topk|sort",
        "sorts or sums up along an axis",
        ("DeviceRadixSortOnesweepKernel", "tensor_kernel_scan_innermost_dim_cumsum"), "reduce_kernel",
    )),
    (KernelFamily.POINTWISE, Pattern(
        "rotary", "turns positions into phases",
        "rotary_embedding_kernel", "embedding_backward_kernel",
    )),
    (KernelFamily.INDEX, Pattern(
        "index|gather|scatter|embedding|compute_grad_weight|krn_partial|segment|masked_|put_|take_|store_kvcache"
        "|reshape_and_cache|arange",
        "reads or writes by indices",
        ("indexSelectLargeIndex", "embedding_backward_kernel", "store_kvcache"), "reduce_kernel",
    )),
    (KernelFamily.FILL, Pattern(
        "FillFunctor|cupy_fill|memset|OpTensorKernel.*fill", "fills",
        ("vectorized_elementwise_kernel<4, FillFunctor<float>>", "cupy_fill"), "fillet_kernel",
    )),
    (KernelFamily.COPY, Pattern(
        r"copy_kernel|direct_copy|copy_device_to_device|cupy_copy|triton_poi_fused__to_copy_\d+$|OpWithCast", "copies",
        ("bfloat16_copy_kernel_cuda", "direct_copy_kernel_cuda"), "copysign_kernel",
    )),
    (KernelFamily.REDUCTION, Pattern(
        r"reduce_kernel|reduction|triton_(?:red|per)_|DeviceReduce|nvfuser_\w*(?:reduction|persistent)"
        r"|reduce_segments|_reduce_",
        "reduces",
        ("reduce_kernel<512, 1>", "triton_red_fused_add_0", "DeviceReduceKernel"), "vectorized_elementwise_kernel",
    )),
    (KernelFamily.POINTWISE, Pattern(
        r"elementwise|triton_poi_|nvfuser_pointwise|act_and_mul|Functor|cupy_\w+__|scalePackedTensor|SubTensorOp"
        r"|saxpy",
        "works element by element",
        ("vectorized_elementwise_kernel", "triton_poi_fused_add_0"), "reduce_kernel",
    )),
)
# What libraries write into the names of their products, the narrowest first: `fp16_s1688gemm` has operands of fp16,
# and `s1688gemm` without a type of 32 bits, which go through tensor cores as TF32.
_PRODUCT_TYPES: Final = (
    ("fp4", Pattern(
        "(?i)e2m1|nvfp4|xf4_", "a matmul of operands in fp4, by its library's name",
        ("cutlass3x_sm100_bstensorop_ue4m3xe2m1", "nvfp4_gemm"), "fp8_gemm",
    )),
    ("fp8", Pattern(
        "(?i)e4m3|e5m2|fp8|f8f8|float8", "of operands in fp8",
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32", "fp8_gemm"), "bf16_gemm",
    )),
    ("tf32", Pattern("(?i)tf32", "of operands in TF32", "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n", "f32_gemm")),
    ("bf16", Pattern("(?i)bf16|bfloat16", "of operands in bf16", "ampere_bf16_s16816gemm_bf16_128x128", "fp16_gemm")),
    ("fp16", Pattern(
        "(?i)(?<![a-z])h(?:884|1688|16816|gemm)|fp16|(?<!wgmma_)f16|half(?![a-z])|s884",
        "of operands in fp16, by their size too",
        ("volta_h884gemm_256x64", "turing_fp16_s1688gemm", "volta_s884gemm"), ("wgmma_f16", "halfway"),
    )),
    ("int8", Pattern(
        "(?i)imma|int8|s8s8|i8i8|i8816|i16832", "of operands in int8",
        ("ampere_igemm_int8", "cutlass_tensorop_i16832gemm_s8"), "hmma",
    )),
    ("fp64", Pattern(
        "(?i)(?<![a-z])[dz]gemm|fp64|f64|d884|dmma|(?<!_float_)double", "of operands in fp64",
        ("ampere_dgemm_64x64", "d884gemm"), ("_float_double", "bdgemm"),
    )),
    ("tf32", Pattern(
        "(?i)^(?!.*(?:turing|_75_)).*s1688(?:gemm|fprop|dgrad|wgrad)",
        "of operands of 32 bits which go through tensor cores; those of Turing take fp16",
        "ampere_s1688gemm_128x128", ("turing_s1688gemm_128x128", "cutlass_75_tensorop_s1688gemm"),
    )),
    ("fp32", Pattern(
        r"(?i)(?<![a-z])s(?:gemm|cudnn)|fp32|f32f32|ffma|(?<![a-z])g?cgemm|simt|_float_|_f32(?![a-z\d])",
        "of operands in fp32",
        ("ampere_sgemm_128x64_tn", "volta_scudnn_128x64", "cutlass_80_simt_sgemm"), "bsgemm",
    )),
)
_NARROW_TYPES: Final = (
    ("fp4", Pattern("(?i)e2m1|nvfp4", "an argument or a name in fp4", "cutlass::float_e2m1_t", "fp8")),
    ("fp8", Pattern("(?i)e4m3|e5m2|fp8|float8", "in fp8", ("c10::Float8_e4m3fn", "__nv_fp8_e5m2"), "bf16")),
    ("tf32", Pattern("(?i)tf32|tfloat32", "in TF32", "cutlass::tfloat32_t", "float32")),
    ("bf16", Pattern(
        "(?i)bf16|bfloat|bhalf_t|DF16b", "in bf16, mangled too",
        ("c10::BFloat16", "__nv_bfloat16", "DF16b"), "half",
    )),
    ("fp16", Pattern(
        "(?i)half(?![a-z])|float16|(?<!b)fp?16", "in fp16",
        ("c10::Half", "__half", "cutlass::half_t"), ("bf16", "halfway"),
    )),
)
_WIDE: Final = Pattern(
    r"(?<![\w:])(?:float[24]?|double)(?!\w)", "an argument in fp32 or fp64",
    ("float", "float4", "double"), ("at::float", "floats"),
)
_TILES: Final = (
    ("nvjet", Pattern(
        r"nvjet_(?:sm\d+_)?[a-z]{3,6}_(\d{1,5})x(\d{1,5})_", "the tile of a matmul (nvjet)",
        ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "nvjet_tst_64x32_64x16"), "nvjet_256x128_",
    )),
    ("xmma", Pattern(
        r"tilesize(\d{1,5})x(\d{1,5})x\d+", "the tile of a matmul (xmma)",
        "sm90_xmma_gemm_bf16_tilesize128x256x64_warpgroupsize1x1", "tilesize128",
    )),
    ("Tensile", Pattern(
        r"_MT(\d{1,5})x(\d{1,5})x\d+", "the tile of a matmul (Tensile)",
        "Cijk_Ailk_Bljk_BBS_BH_MT128x96x32", "MT128x96",
    )),
    ("gemm", Pattern(
        r"gemm(?:_[a-z]\w*?)?_(\d{1,5})x(\d{1,5})(?:_|$)", "the tile of a matmul after its word (cuBLAS, CUTLASS)",
        ("ampere_sgemm_128x64_tn", "ampere_bf16_s16816gemm_bf16_128x256_ldg8"), "gemm_128",
    )),
)
_NVJET: Final = Pattern(
    r"nvjet_(?:sm\d+_)?([a-z])[a-z]{2,5}_(?!tf32)", "the letter of the operands' type (nvjet)",
    ("nvjet_sm90_tst_256x128", "nvjet_hsh_128x256"), "nvjet_sm90_tst_tf32",
)
_TENSILE: Final = Pattern(
    r"Cijk_\w+?_B\w{3}_(4xi8|[FB]8|I8|[SDCZHBX](?![a-z]))[A-Z\d]*_(MX_)?",
    "the letters of the operands' type, and whether they are taken apart (Tensile)",
    ("Cijk_Ailk_Bljk_BBS_BH_MT128x96x32", "Cijk_Ailk_Bjlk_SB_MT64x64x16"), "Cijk_MT64x64",
)
_TRTLLM: Final = Pattern(
    r"^(?:bmm|gemm)_(?:Mx)?[A-Z][a-z\d]+_(?:Mx)?([A-Z][a-z]*\d+(?:m\d)?)",
    "the type of the operands, after that of the result (TensorRT-LLM)",
    ("bmm_Bfloat16_E4m3_Fp32_t128x8x128", "gemm_Bfloat16_E2m1E2m1_Fp32"), "gemm_128x64",
)
_FUSED: Final = (
    ("inductor", Pattern(
        "^triton_(?:poi|red|per|tem)_fused|^triton_mm", "a kernel that TorchInductor generated",
        ("triton_poi_fused_add_0", "triton_mm_12"), "triton_kernel",
    )),
    ("nvfuser", Pattern("nvfuser_", "a kernel that nvFuser generated", "nvfuser_pointwise_f0_c1_r0_g0", "nvfuse")),
)
# fmt: on
_FAMILIES: Final = (
    (KernelFamily.COMMUNICATION, regex(collectives.COMMUNICATION)),
    *((family, regex(pattern, re.IGNORECASE)) for family, pattern in _BY_FAMILY),
)
_LONGEST = 16384  # the longest name seen in a capture has a third of that


PRODUCTS = (KernelFamily.GEMM, KernelFamily.CONVOLUTION, KernelFamily.ATTENTION)
"""Families whose libraries write types into their names, and which tensor cores compute."""
PASSES: Final = (
    KernelFamily.GEMV, KernelFamily.LAYOUT, KernelFamily.COPY, KernelFamily.FILL, KernelFamily.POINTWISE,
    KernelFamily.FOREACH, KernelFamily.REDUCTION, KernelFamily.SOFTMAX, KernelFamily.NORM, KernelFamily.CONCAT,
    KernelFamily.LOSS, KernelFamily.POOLING,
)  # fmt: skip
"""Families that do few operations on each byte, whatever the sizes: left of every GPU's ridge."""


@lru_cache(maxsize=65536)
def decode(name: str) -> KernelName:
    """What the name says. Demangled, mangled and short names are all accepted; templates are read as text.

    Of a longer name than compilers write, the beginning is read.
    """
    name = name[:_LONGEST]
    symbol = symbol_of(name)
    operation, family = symbol, KernelFamily.OTHER
    for operation in symbol.operations():
        read = " ".join((operation.path, *operation.types)) if operation.applies else operation.path
        family = next((family for family, pattern in _FAMILIES if pattern.search(read)), KernelFamily.OTHER)
        if family is not KernelFamily.OTHER:
            break
    return KernelName(
        family=family,
        math=None if family is KernelFamily.COMMUNICATION else _math(operation, family),
        tile=next(((int(m[1]), int(m[2])) for _, p in _TILES if (m := p.search(name))), None),
        fused=next((tool for tool, pattern in _FUSED if pattern.search(name)), None),
    )


def _math(symbol: Symbol, family: KernelFamily) -> str | None:
    """The type of the operands: as the library writes it, else as the arguments of the function are typed.

    A 16-bit type is there for operands alone, whatever the library's name says that they are summed in
    (`implicit_convolve_sgemm<__half>`). A float or double may be what a product is summed in: such an argument counts
    where it is the function's own.
    """
    path, types = symbol.path, ", ".join(symbol.types)
    if nvjet := _NVJET.search(path):
        return _NVJET_LETTER.get(nvjet[1])
    if tensile := _TENSILE.search(path):
        named = "tf32" if tensile[2] else _TENSILE_LETTER.get(tensile[1])
        return named if named != "fp32" else _first(_NARROW_TYPES, types) or named
    if llm := _TRTLLM.search(path):
        path = llm[1]
    if family in PRODUCTS and (named := _first(_PRODUCT_TYPES, path)):
        return named if named != "fp32" else _first(_NARROW_TYPES, types) or named
    sized = family in (*PRODUCTS, KernelFamily.LAYOUT)  # or a library means bytes by it
    if narrow := _first(_NARROW_TYPES, types if sized else f"{path} {types}"):
        return narrow
    if symbol.applies:
        wide = next(iter(_WIDE.findall(types)), None)
    else:
        wide = next((text for text in symbol.types if _WIDE.fullmatch(text)), None)
    if wide is None or "splitk" in path.lower():  # sums what others multiplied
        return None
    return "fp64" if wide == "double" else "fp32"


def _first(patterns: tuple[tuple[str, Pattern], ...], text: str) -> str | None:
    return next((kind for kind, pattern in patterns if pattern.search(text)), None)
