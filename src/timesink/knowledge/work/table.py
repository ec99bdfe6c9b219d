"""Which formula belongs to which operator name."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from timesink.knowledge.work import memory, products
from timesink.knowledge.work.arguments import Operator, Work
from timesink.knowledge.work.products import attention, convolution

Formula = Callable[[Operator], Work | None]

_MATMULS = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "matmul",
    "linear",
    "mv",
    "addmv",
    "_scaled_mm",
    "_int_mm",
    "_addmm_activation",
)
_ATTENTIONS = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_flash_attention_forward",
    "_efficient_attention_forward",
    "_cudnn_attention_forward",
    "_flash_attention_backward",
    "_efficient_attention_backward",
    "_cudnn_attention_backward",
)
_CONVOLUTIONS = ("convolution", "cudnn_convolution", "miopen_convolution", "convolution_backward")
_POINTWISE = [
    "abs",
    "add",
    "add_",
    "addcdiv",
    "addcdiv_",
    "addcmul",
    "addcmul_",
    "bitwise_and",
    "bitwise_or",
    "ceil",
    "clamp",
    "clamp_min",
    "clamp_min_",
    "clamp_",
    "cos",
    "div",
    "div_",
    "eq",
    "erf",
    "exp",
    "floor",
    "ge",
    "gelu",
    "gelu_backward",
    "gt",
    "hardswish",
    "le",
    "lerp",
    "lerp_",
    "log",
    "logical_and",
    "logical_not",
    "lt",
    "masked_fill",
    "masked_fill_",
    "mul",
    "mul_",
    "native_dropout",
    "native_dropout_backward",
    "ne",
    "neg",
    "pow",
    "reciprocal",
    "relu",
    "relu_",
    "rsqrt",
    "rsub",
    "sigmoid",
    "sigmoid_",
    "sigmoid_backward",
    "silu",
    "silu_",
    "silu_backward",
    "sin",
    "sqrt",
    "sqrt_",
    "sub",
    "sub_",
    "tanh",
    "tanh_",
    "tanh_backward",
    "threshold_backward",
    "tril",
    "triu",
    "where",
]
_REDUCTIONS = [
    "sum",
    "mean",
    "amax",
    "amin",
    "max",
    "min",
    "prod",
    "norm",
    "linalg_vector_norm",
    "all",
    "any",
    "argmax",
    "argmin",
    "var",
    "var_mean",
    "std",
]

FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(_MATMULS, products.matmul),
    **dict.fromkeys(_ATTENTIONS, attention),
    **dict.fromkeys(_CONVOLUTIONS, convolution),
    **dict.fromkeys(_POINTWISE, memory.pointwise),
    **dict.fromkeys(_REDUCTIONS, memory.reduction),
    **dict.fromkeys(("copy_", "_to_copy", "clone", "contiguous"), memory.copy),
    **dict.fromkeys(("fill_", "zero_"), memory.fill),
    **dict.fromkeys(("native_layer_norm", "native_group_norm", "_fused_rms_norm", "cudnn_batch_norm"), memory.norm),
    **dict.fromkeys(("native_layer_norm_backward", "native_group_norm_backward"), memory.norm_backward),
    **dict.fromkeys(("_softmax", "_log_softmax"), memory.softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), memory.softmax_backward),
    **dict.fromkeys(("embedding", "index_select"), memory.embedding),
    "cat": memory.concatenation,
}


def work_of(operator: Operator) -> Work | None:
    """The work of one operator call, or None where the name or its shapes are not understood."""
    name = operator.name.removeprefix("aten::")
    formula = FORMULAS.get(name)
    return formula(operator) if formula else None


@lru_cache(maxsize=65536)
def recorded_work(name: str, shapes: str, dtypes: str, strides: str | None, concrete: str | None) -> Work | None:
    """The same from a trace's text; equal texts are parsed once."""
    if name.removeprefix("aten::") not in FORMULAS:
        return None
    operator = Operator.recorded(name, shapes, dtypes, strides, concrete)
    return work_of(operator) if operator else None
