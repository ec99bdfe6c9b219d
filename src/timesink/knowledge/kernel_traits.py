"""Single traits that a kernel's name tells: a cast, a strided copy, a fused optimizer, an alignment."""

from typing import Final

from timesink.knowledge import Pattern

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
CAST: Final = Pattern(
    r"(?:b?float|half)\d*\w*_copy_kernel|float8\w*_copy_kernel|_?(?:to_copy|_to_copy)_\d+$"
    r"|direct_copy\w*(?=.*(?:WithCast|gpu_kernel_impl<))|gpu_kernel_impl<[^<]*direct_copy",
    "a copy between types: ATen names it after them, or leaves the conversion to a loader or a kernel that casts",
    ("bfloat16_copy_kernel_cuda", "triton_poi_fused__to_copy_3", "gpu_kernel_impl<direct_copy_kernel_cuda>"),
    "direct_copy_kernel_cuda",
)
CUT: Final = Pattern(
    r"^void .*[^>)\]]$",
    "a function of C++ with what it returns, as kernels of templates have, and without the end of what it takes",
    ("void at::nat", "void cutlass::Kernel2<cutl"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int, float*)",
     "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>",
     "void rocblas_gemm<float>(float*) [clone .kd]", "ampere_sgemm_128x64_tn"),
)
QUANTISES: Final = Pattern(
    r"(?i)float8\w*_copy_kernel|(?:^|[^a-z])(?:\w*_)?quant(?:i[sz]e)?(?:_|$)|cast_(?:transpose|mxfp8|nvfp4)"
    r"|_to_fp[48]|(?:poi|red|per)_fused\w*(?:float8|_to_copy\w*_clamp)",
    "writes eight bits that a matmul reads (PyTorch, Transformer Engine, vLLM)",
    ("float8_copy_kernel_cuda(at::TensorIteratorBase&)", "void transformer_engine::cast_transpose_kernel<fp8>",
     "scaled_fp8_quant_to_fp8", "dynamic_quantize_kernel", "silu_and_mul_scaled_fp4_experts_quant",
     "void transformer_engine::mxfp8_kernel::cast_mxfp8_2D_kernel<false>",
     "void vllm::cvt_fp16_to_fp4<__nv_bfloat16, false>", "triton_poi_fused__scaled_mm__to_copy_clamp_mul_1"),
    ("triton_poi_fused__to_copy_mul_0", "bfloat16_copy_kernel_cuda", "dequant_kernel"),
)
AMAX: Final = Pattern(
    r"(?i)\babs_(?:kernel|cuda)|AbsFunctor|MaxOps|MaxNanFunctor|max_(?:values_)?(?:kernel|functor|reduction)|amax",
    "part of the largest absolute value (PyTorch, Transformer Engine)",
    ("AbsFunctor<c10::BFloat16>", "void vllm::segmented_max_reduction_strided<c10::BFloat16>",
     "reduce_kernel<512, MaxOps<float>>", "amax_kernel",
     "vectorized_elementwise_kernel<4, at::native::abs_kernel_cuda(at::TensorIteratorBase&)>"), "max_pool_forward_nchw",
)
SCALES: Final = Pattern(
    r"MulFunctor|DivFunctor|div_true|clamp|reciprocal|(?:b?float|half)\d*_copy_kernel",
    "multiplies, divides, limits or converts (PyTorch)",
    ("BUnaryFunctor<float, float, float, MulFunctor<float>>", "launch_clamp_scalar", "reciprocal_kernel_cuda"),
    ("CUDAFunctor_add<float>", "gelu_kernel"),
)
NO_CAST: Final = Pattern(
    "gpu_kernel_impl_nocast", "a kernel that does not convert",
    "gpu_kernel_impl_nocast<direct_copy>", "gpu_kernel_impl<",
)
STRIDED: Final = Pattern(
    "(?:^|:)elementwise_kernel", "ATen's kernel for operands that are not contiguous",
    "at::native::elementwise_kernel<128, 2>", "at::native::vectorized_elementwise_kernel<4>",
)
LOG_SOFTMAX: Final = Pattern(
    "(?i)log_?softmax", "part of a loss",
    ("LogSoftMaxForward", "triton_red_fused__log_softmax_0"), "cunn_SoftMaxForward",
)
SOFTMAX_BACKWARD: Final = Pattern(
    r"(?i)softmax\w*backward", "a softmax of a backward pass",
    "cunn_SoftMaxBackward", "cunn_SoftMaxForward",
)
MEAN: Final = Pattern(
    "MeanOps", "a mean",
    "reduce_kernel<512, 1, MeanOps<float>>", "reduce_kernel<512, 1, func_wrapper_t>",
)
FUSED_OPTIMIZER: Final = Pattern(
    r"(?i)FusedOptimizer|Fused\w*(?:Adam|Sgd|Lamb|Lion)|fused_(?:adam|sgd|lamb|lion)",
    "a whole optimizer step in a few kernels (PyTorch fused=True, Apex, DeepSpeed)",
    ("multi_tensor_apply_kernel<FusedAdamMathFunctor>", "fused_adam_cuda"),
    "multi_tensor_apply_kernel<BinaryOpScalarFunctor>",
)
LOOKS_UP: Final = Pattern(
    "(?i)indexSelect|vectorized_gather_kernel|embedding_?(bag|forward|lookup)", "looks up the rows of tokens or ids",
    ("indexSelectLargeIndex", "embedding_forward_kernel"), ("rotary_embedding_kernel", "embedding_backward_kernel"),
)
UPDATES: Final = Pattern(
    r"multi_tensor_apply\w*<.*PointwiseOp", "adds a quotient or product to each tensor of a list: Adam's update",
    "multi_tensor_apply_kernel<TensorListScalarListMetadata, PointwiseOpScalarListFunctor<float, 5, 4, 0>>",
    "multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float>>",
)
UPDATES_ONE: Final = Pattern(
    "addcdiv_cuda_kernel", "adds a quotient to one tensor: Adam's update of it, the last of its passes",
    "vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel(at::TensorIteratorBase&, c10::Scalar const&)>",
    "vectorized_elementwise_kernel<4, at::native::addcmul_cuda_kernel(at::TensorIteratorBase&, c10::Scalar const&)>",
)
GROUP_NORM: Final = Pattern(
    "GroupNorm|RowwiseMoments|group_?norm", "a normalization over groups of channels",
    ("GroupNormKernelImplInternal<float>", "RowwiseMomentsCUDAKernel<float>"),
    ("vectorized_layer_norm_kernel<float>", "batch_norm_collect_statistics_kernel"),
)
DOUBLE: Final = Pattern(
    r"lambda ?\(double|<double\b|dgemm|f64f64|d884gemm|[_<]f64[_>]",
    "works in float64; ATen also passes scalars as double to kernels of other types",
    ("CUDAFunctor_add<double>", "cutlass_80_tensorop_d884gemm"), "CUDAFunctor_add<float>, double",
)
SINCE_TF32: Final = Pattern(
    r"(?i)ampere|hopper|blackwell|nvjet|tf32|(?:sm|cutlass_)_?(?:[89]\d|1[0-2]\d)_",
    "made for a GPU whose tensor cores have TF32 (cuBLAS, cuDNN, CUTLASS)",
    ("ampere_sgemm_64x64_nn", "sm80_xmma_gemm", "cutlass_80_simt_sgemm", "nvjet_tst_128x64"),
    ("volta_sgemm_128x64_nt", "cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_nn"),
)
MIGRATION: Final = Pattern(
    "^Unified memory ",
    "a copy that the driver makes of unified memory, where it is touched or told to (the reader of nsys)",
    "Unified memory Memcpy HtoD (Managed -> Device)", "Memcpy HtoD (Managed -> Device)",
)
TOUCHED: Final = Pattern(
    "^Unified memory Memcpy",
    "a migration that begins where a page is touched, and holds up who touches it (the reader of nsys)",
    "Unified memory Memcpy HtoD (Managed -> Device)", "Unified memory Prefetch HtoD (Managed -> Device)",
)
LOADS_AT_ONCE: Final = Pattern(
    r"_ldg(\d+)_|align(?:a)?(\d+)", "how many elements it loads at once: operands need that alignment",
    ("cutlass_80_tensorop_bf16_s16816gemm_128x256_32x3_nn_align8", "sm80_xmma_gemm_ldg8_f2f"), "nvjet_tst_128x64",
)
ALIGNMENT_NAMED: Final = Pattern(
    r"nvjet|align|_ldg\d",
    "its name says whether operands are aligned: nvjet takes aligned ones only (cuBLAS, CUTLASS)",
    ("nvjet_tst_128x64_h_bz_TNT", "cutlass_gemm_align1"), "ampere_sgemm_128x64_tn",
)
OF_BACKWARD: Final = Pattern(
    "(?i)backward|_bwd|[_a-z](?:dgrad|wgrad|bprop)|grad_input|GammaBeta", "only a backward pass runs it",
    ("cunn_SoftMaxBackward", "flash_bwd_dq_dk_dv_loop", "GammaBetaBackwardCUDAKernel", "layer_norm_grad_input_kernel",
     "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16"), ("flash_fwd_kernel", "FusedAdamMathFunctor"),
)
COMPARES: Final = Pattern(
    "CompareEqFunctor", "compares for equality: of a tensor with itself it finds what is not a number",
    "BinaryFunctor<float, float, bool, CompareEqFunctor<float>>", "compare_scalar_kernel",
)
ANY: Final = Pattern(
    "or_kernel_cuda", "whether any element is true",
    "func_wrapper_t<bool, or_kernel_cuda(TensorIterator&)>", "sum_functor",
)
TRIANGLE: Final = Pattern(
    "triu_tril_kernel", "keeps one side of a diagonal, as masks have it",
    "triu_tril_kernel<float, int, true>", "masked_fill_kernel",
)
COUNTED: Final = Pattern(
    "arange_cuda|(?:range|linspace|eye)_cuda_out", "writes numbers that follow from its arguments alone",
    "elementwise_kernel_with_index<int, arange_cuda_out>", "index_elementwise_kernel",
)
FILLS: Final = Pattern(
    "FillFunctor", "writes one value everywhere",
    "vectorized_elementwise_kernel<4, FillFunctor<float>>", "CUDAFunctor_add<float>",
)
ACTIVATES: Final = Pattern(
    "(?i)(?:silu|gelu|sigmoid|swish|mish|tanh|relu)(?:_kernel|CUDAKernel|_cuda)", "an activation, as ATen names it",
    ("silu_kernel(at::TensorIteratorBase&)", "GeluCUDAKernelImpl(at::TensorIteratorBase&)", "hardswish_kernel",
     "sigmoid_kernel_cuda"), ("silu_backward_kernel", "GeluBackwardCUDAKernelImpl", "exp_kernel_cuda"),
)
MULTIPLIES: Final = Pattern(
    r"\bBinaryFunctor<[^<>]*MulFunctor", "multiplies two tensors",
    "BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >",
    "AUnaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >",
)
WRAPPER: Final = Pattern(
    r"^(?:void )?(?:at::native::)?(?:(?:vectorized|unrolled|legacy)_)?elementwise_kernel<(?:\(int\))?\d+, "
    r"|(?:at::native::)?gpu_kernel_impl(?:_nocast)?<|^(?:void )?at::native::unrolled_elementwise_kernel<",
    "what ATen puts around an elementwise operation, another for each size and alignment",
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>", "gpu_kernel_impl<Mul>"),
    "void at::native::reduce_kernel<512, 1>",
)
OF_PYTHON: Final = Pattern(
    r"\b(?:at|c10|vllm|flashinfer|sgl_kernel)::|^(?:triton|cupy|input|loop|wrapped)_\w+|fusion(?:_\d+)?$",
    "made or launched by a framework of Python (PyTorch, Triton, CuPy, JAX, vLLM)",
    ("void at::native::reduce_kernel<512>", "triton_poi_fused_add_0", "cupy_sqrt__float64_float64",
     "loop_multiply_fusion_3"), "saxpy(double*, int)",
)
OF_POINTERS: Final = Pattern(
    r"^(?:void )?\w+\((?:[\w ]+, )*(?:const )?(?:float|double|half|__half|nv_bfloat16|__nv_bfloat16|int)"
    r"(?: const)? ?\*",
    "a function of plain pointers, as people write kernels: those of libraries take a structure, or are templates",
    ("matmul_k(float*, float*, float*, int, int, int)",
     "sgemm_naive(int, int, int, float, const float *, const float *, float, float *)"),
    ("ampere_sgemm_128x64_tn",
     "void gemv2T_kernel_val<int, int, float, float, float, 128>(cublasGemvParamsEx<int, float>, float, float*)",
     "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>(float*)"),
)
LIBRARY_LAUNCH: Final = Pattern(
    r"^(?:void )?(?:at|at_cuda_detail|c10|cub|thrust|rocprim|hipcub|cutlass|ck|cublas\w*|cufft|cusparse|cusolver)::"
    r"|cudnn|^(?:nvjet_|sm\d+_xmma_|Cijk_)",
    "launched by a library, which chooses its blocks (ATen, CUB, Thrust, CUTLASS, cuBLAS, cuDNN, cuFFT, cuSPARSE, "
    "cuSOLVER, rocPRIM, Tensile, Composable Kernel)",
    ("void at::native::reduce_kernel<512, 1>", "cudnn_infer_kernel",
     "void cask_plugin__5x_cudnn::xmma__5x_cudnn::init_device_workspace_kernel<1>", "nvjet_tst_128x64",
     "void cub::DeviceScanInitKernel<int>"), ("fold(int*)", "void scale_rows<at::Half>(at::Half*)"),
)
# fmt: on


GATE: Final = {"activates": ACTIVATES, "multiplies": MULTIPLIES}  # one after the other
REFERENCE: Final = Pattern(
    r"^(?:void )?(?:naive_conv|miopenNaive)|(?:^|[ :_])[Nn]aive_?[Cc]onv|_naive_(?:fwd|bwd|wrw)_",
    "a library's plain implementation, which it falls back on where none of its others takes the arguments",
    ("naive_conv_ab_nonpacked_fwd_ncdhw_float_double_float", "naive_conv_packed_bwd_nchw_half_double_half"),
    "sgemm_naive(int, int, int, float, const float *, const float *, float, float *)",
)
MEMORY_EFFICIENT: Final = Pattern(
    "fmha_cutlass[FB]|PyTorchMemEffAttention|mem_eff_attention|AttentionBackwardKernel",
    "PyTorch's memory-efficient attention, which is taken where FlashAttention and cuDNN do not take the inputs",
    "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>",
)
