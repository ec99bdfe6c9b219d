"""The recorded arguments of an operator (tensors with shape, type and strides, scalars as text), and the work it has to
do, whatever kernel does it.

Patterns say what operators and element types are called.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from math import prod
from typing import Final

from timesink.knowledge import Pattern
from timesink.records import Record
from timesink.untrusted.plain_json import parsed

# Of each pattern its meaning, then names that show it, then near misses.
# fmt: off
ONLY_COMPUTES: Final = Pattern(
    "^aten::(mm|addmm|bmm|baddbmm|mv|addmv|linear|_?convolution|convolution_backward|cudnn_convolution(_transpose)?"
    "|(native|cudnn)_batch_norm(_backward)?|native_(group|layer)_norm(_backward)?|_(log_)?softmax(_backward_data)?"
    "|nll_loss2?d?_(forward|backward)|mse_loss(_backward)?|(max_pool2d_with_indices|avg_pool2d)(_backward)?)$",
    "operators that may be run from a trace by their names: they compute, and do nothing else",
    ("aten::mm", "aten::native_layer_norm_backward", "aten::_softmax_backward_data", "aten::cudnn_convolution",
     "aten::cudnn_batch_norm_backward"), ("aten::from_file", "aten::mm_", "mylib::mm"),
)
FOLLOWS_ITS_OPERANDS: Final = Pattern(
    "^aten::((add|sub|mul|div|gelu|silu|relu|sigmoid|tanh|leaky_relu|hardswish|hardtanh|clamp_min|masked_fill"
    "|native_dropout)_?|(gelu|silu|sigmoid|tanh|threshold|leaky_relu|hardswish|hardtanh|native_dropout)_backward"
    "|(native|cudnn)_batch_norm(_backward)?|(max_pool2d_with_indices|avg_pool2d)(_backward)?)$",
    "an operator of the same kind that autocast leaves in the type of its operands: elementwise, or a pass over "
    "pictures",
    ("aten::gelu", "aten::add_", "aten::threshold_backward", "aten::cudnn_batch_norm"),
    ("aten::native_layer_norm", "aten::_foreach_add_", "aten::softmax"),
)
JOINS: Final = Pattern(
    "^aten::(?:cat|concat|_cat)$", "joins tensors along a dimension", ("aten::cat", "aten::_cat"), "aten::stack",
)
INTEGER_ARGUMENT: Final = Pattern(
    r"^(?:(?:unsigned|signed|const|long|short|volatile|restrict|__restrict__)\b|u?int\d*(?:_t)?\b|u?char\d*\b"
    r"|u?short\d*\b|u?long\d*\b|size_t\b|bool\b|[\s*&])+$",
    "the type of a kernel's argument that is whole numbers, or leads to some",
    ("unsigned int const*", "uint4*", "size_t", "bool"), ("float*", "__half2", "internal_state"),
)
LOOKS_UP: Final = Pattern(
    "^aten::(embedding|_?embedding_bag|index_select|gather)$",
    "looks up whole numbers in a table, such as an embedding",
    ("aten::embedding", "aten::gather"), ("aten::embedding_dense_backward", "aten::index_put_"),
)
GATHERS_A_GRADIENT: Final = Pattern(
    "^aten::(embedding(_dense)?|_embedding_bag(_dense)?|index_select|gather)_backward$",
    "adds up the gradient of a table in which numbers were looked up",
    ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward"), "aten::embedding",
)
PRODUCTS: Final = Pattern(
    "^aten::(mm|addmm|bmm|baddbmm|linear|_addmm_activation)$", "a matmul",
    ("aten::mm", "aten::linear"), "aten::mul",
)
SHAPED: Final = Pattern(
    r"^aten::(mm|addmm|bmm|baddbmm|convolution|_scaled_dot_product_\w*attention)$",
    "its shapes follow the batch and the model, not the rank's place in a group",
    ("aten::mm", "aten::_scaled_dot_product_flash_attention"), ("aten::linear", "aten::all_gather"),
)
OF_ONE_LIBRARY: Final = Pattern(
    r"^aten::(_?(cudnn|miopen|mkldnn|mps|flash|efficient)_\w+|_convolution|_scaled_dot_product_\w+)$",
    "does the work of the operator around it by one library, under another name than others have",
    ("aten::miopen_convolution", "aten::_flash_attention_forward", "aten::_convolution"),
    ("aten::convolution", "aten::scaled_dot_product_attention", "aten::mm"),
)
READS_A_VALUE: Final = Pattern(
    "^aten::(item|_local_scalar_dense|is_nonzero)$", "it exists to hand a value to the CPU",
    "aten::item", "aten::items",
)
HANDS_A_VALUE: Final = Pattern(
    "^aten::_local_scalar_dense$", "it hands one value to the CPU: the innermost of those that read one",
    "aten::_local_scalar_dense", "aten::item",
)
CONVOLVES: Final = Pattern(
    r"^aten::\w*conv(olution|\d+d|_transpose)", "a convolution, or a part of its backward pass",
    ("aten::conv2d", "aten::cudnn_convolution", "aten::_convolution", "aten::conv_transpose1d",
     "aten::convolution_backward", "aten::thnn_conv2d"),
    ("aten::mm", "aten::convert_element_type"),
)
ONLY_ON_CPU: Final = Pattern(
    "(?i)mkldnn|onednn|(?:^|:)_?mkl_|^mkl::|_for_cpu$", "no GPU runs it (oneDNN, MKL)",
    ("aten::mkldnn_convolution", "mkldnn::_linear_pointwise", "aten::_scaled_dot_product_flash_attention_for_cpu",
     "mkl::_mkl_linear"), ("aten::cudnn_convolution", "aten::conv2d"),
)
REENTRANT_CHECKPOINT: Final = Pattern(
    "^CheckpointFunction$",
    "runs a layer that is run again backward, and saves nothing but its arguments (torch.utils.checkpoint with "
    "use_reentrant)",
    "CheckpointFunction", "CheckpointFunctionBackward",
)
COPY: Final = Pattern("^aten::copy_$", "a copy, which may change type or layout", "aten::copy_", "aten::_to_copy")
ALLOCATES: Final = Pattern(
    "^aten::(empty|empty_like|empty_strided|new_empty|new_empty_strided|resize_|empty_permuted)$",
    "asks for memory whose content nobody has written yet",
    ("aten::empty", "aten::resize_"), "aten::zeros",
)
LOW_TYPE: Final = Pattern(
    r'(?<=c10::)(?:BFloat16|Half|Float8\w*)|(?<=\")(?:signed|unsigned) char', "an element type of at most 16 bits",
    ('["c10::BFloat16","float"]', '["signed char"]'), '["float","Scalar"]',
)
HANDS_ON: Final = Pattern(
    r"^(?:aten::)?(?:(?:un)?squeeze|_?(?:unsafe_)?view(?:_as)?|_?reshape(?:_alias)?|slice|select|narrow|t|numpy_T"
    r"|transpose|permute|movedim|expand(?:_as)?|as_strided|split\w*|chunk|unbind|(?:un)?flatten|detach_?|alias|to"
    r"|_to_copy|copy_|contiguous|clone|lift_fresh|resolve_\w+|result_type|item|_local_scalar_dense|is_nonzero"
    r"|(?:zeros|ones|full)(?:_like)?|zero_|fill_)$",
    "makes a tensor another, the same elsewhere, or new, and reads nothing to compute with it",
    ("aten::t", "detach", "aten::_to_copy"), ("aten::tanh", "aten::topk"),
)
SORTS: Final = Pattern(
    "^aten::(sort|argsort|msort)$", "puts all elements in order", ("aten::sort", "aten::argsort"), "aten::topk",
)
ORDER_FREE: Final = Pattern(
    "^aten::(sum|mean|prod|std|var|amax|amin|aminmax|max|min|logsumexp|linalg_vector_norm|numel)$",
    "makes the same of elements in any order", ("aten::mean", "aten::amax"), ("aten::cumsum", "aten::argmax"),
)
CUTS: Final = Pattern(
    "^aten::(slice|narrow|select)$", "takes a part of a tensor", ("aten::slice", "aten::select"), "aten::index_select",
)
GOES_BACKWARD: Final = Pattern(
    "(?i)backward|bwd", "a backward pass, by any name of an operator, a range or a kernel",
    ("backward", "flash_bwd_kernel"), "forward",
)
COMPARES: Final = Pattern(
    "^aten::(one_hot|eq|__eq__)$", "makes rows of zeros with a one where numbers are equal",
    ("aten::one_hot", "aten::eq"), ("aten::equal", "aten::ge"),
)
MULTIPLIES: Final = Pattern(
    "^aten::(matmul|mm|bmm|addmm|linear|einsum|__matmul__)$", "a matmul, as a program calls it",
    ("aten::matmul", "aten::einsum"), "aten::mul",
)
KEEPS_A_GRADIENT: Final = Pattern(
    "^torch::autograd::AccumulateGrad$", "keeps the gradient of a weight, or adds it to what is kept",
    "torch::autograd::AccumulateGrad", "AccumulateGradBackward",
)
ADDS_IN_PLACE: Final = Pattern("^aten::add_$", "adds to a tensor", "aten::add_", "aten::add")
FILLS: Final = Pattern("^aten::fill_$", "writes one value everywhere", "aten::fill_", "aten::full")
CHECKS_FOR_NAN: Final = Pattern("^aten::isnan$", "looks for what is not a number", "aten::isnan", "aten::nan_to_num")
# fmt: on


def _folded(recorded: str) -> str:
    """A recorded element type without its case and the names around it: ``bfloat16`` of ``c10::BFloat16``."""
    return recorded.strip().lower().replace("::", ".").rpartition(".")[2] if "<" not in recorded else recorded.lower()


# PyTorch's names of element types, folded, to (short name, bytes).
_TYPES: Final = {
    "float": ("fp32", 4), "double": ("fp64", 8), "bfloat16": ("bf16", 2), "half": ("fp16", 2),
    "float8_e4m3fn": ("fp8", 1), "float8_e5m2": ("fp8", 1), "float8_e4m3fnuz": ("fp8", 1),
    "float8_e5m2fnuz": ("fp8", 1), "long int": ("int64", 8), "long": ("int64", 8), "int": ("int32", 4),
    "short int": ("int16", 2), "signed char": ("int8", 1), "unsigned char": ("uint8", 1), "bool": ("bool", 1),
    "c10::complex<float>": ("complex64", 8), "float16": ("fp16", 2), "float32": ("fp32", 4), "float64": ("fp64", 8),
    "int64": ("int64", 8), "int32": ("int32", 4), "int16": ("int16", 2), "int8": ("int8", 1), "uint8": ("uint8", 1),
}  # fmt: skip
_FLOATS: Final = {"fp64", "fp32", "fp16", "bf16", "fp8"}
_NO_TENSORS: Final = {"", "scalar", "scalarlist", "tensorlist", "genericlist", "device", "string", "none", "optional"}


class Tensor(Record):
    """One tensor argument. `dtype` is a short name, or the recorded text with `itemsize` 0 where it is not known."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    strides: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Logical elements, broadcast ones included."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Storage of the elements: a dimension of stride 0 is stored once."""
        if len(self.strides) != len(self.shape):
            return self.elements * self.itemsize
        return prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride) * self.itemsize


class Operator(Record):
    """`arguments[i]` is a tensor, a tuple of tensors (a TensorList), or None; `scalars[i]` is its text or ''."""

    name: str
    arguments: tuple[Tensor | tuple[Tensor, ...] | None, ...]
    scalars: tuple[str, ...] = ()

    @classmethod
    def recorded(
        cls, name: str, shapes: str, dtypes: str, strides: str | None, concrete: str | None
    ) -> Operator | None:
        """From the JSON text of a trace, or None where the text is not what PyTorch writes."""
        try:
            dims, types = parsed(shapes), parsed(dtypes)
            steps = parsed(strides) if strides else []
            scalars = parsed(concrete) if concrete else []
        except ValueError:
            return None
        if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
            return None
        if not isinstance(scalars, list):
            return None
        steps = steps if isinstance(steps, list) and len(steps) == len(dims) else [[]] * len(dims)
        arguments = tuple(_argument(d, t, s) for d, t, s in zip(dims, types, steps, strict=True))
        return cls(name, arguments, tuple(map(str, scalars)))

    def tensor(self, index: int) -> Tensor | None:
        """The tensor at that position, or None where the argument is something else."""
        argument = self.arguments[index] if index < len(self.arguments) else None
        return argument if isinstance(argument, Tensor) else None

    def scalar(self, index: int) -> str:
        """The text of a scalar argument; '' where it was not recorded."""
        return self.scalars[index] if index < len(self.scalars) else ""

    def tensors(self) -> list[Tensor]:
        """Every tensor, those in lists included."""
        tensors: list[Tensor] = []
        for argument in self.arguments:
            if isinstance(argument, Tensor):
                tensors.append(argument)
            elif argument is not None:
                tensors.extend(argument)
        return tensors


def _argument(shape: object, dtype: object, strides: object) -> Tensor | tuple[Tensor, ...] | None:
    if dtype == "TensorList" and isinstance(shape, list) and shape and isinstance(shape[0], list):
        return tuple(t for part in shape if (t := _tensor(part, "c10::BFloat16", [])) is not None)
    return _tensor(shape, dtype, strides)


def _tensor(shape: object, dtype: object, strides: object) -> Tensor | None:
    if not isinstance(shape, list) or not isinstance(dtype, str) or dtype in ("", "Scalar", "ScalarList"):
        return None
    if not all(isinstance(size, int) and size >= 0 for size in shape):
        return None
    short, itemsize = _TYPES.get(_folded(dtype), (dtype, 0))
    steps = tuple(strides) if isinstance(strides, list) and len(strides) == len(shape) else ()
    return Tensor(tuple(shape), short, itemsize, steps) if itemsize else None


def is_floating(recorded: str) -> bool:
    """Whether a recorded element type is a floating one that is known."""
    return _TYPES.get(_folded(recorded), ("", 0))[0] in _FLOATS


@cache
def operand_type(dtypes: str) -> str | None:
    """The floating type that all floating operands have, of the recorded types of an operator's arguments. A type that
    nobody here knows is one too, by its own name: that it was recorded, and is none of the known, is known."""
    try:
        recorded = parsed(dtypes)
    except ValueError:
        return None
    folded = {_folded(text) for text in recorded if isinstance(text, str)} if isinstance(recorded, list) else set()
    if unknown := sorted(folded - _TYPES.keys() - _NO_TENSORS):
        return unknown[0]
    found = {_TYPES[text][0] for text in folded & _TYPES.keys()} & _FLOATS
    return found.pop() if len(found) == 1 else None


class WorkKind(StrEnum):
    """The kind of work, which decides what could make it cheaper."""

    MATMUL = "matmul"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORM = "norm"
    SOFTMAX = "softmax"
    POINTWISE = "pointwise"
    COPY = "copy"
    REDUCTION = "reduction"
    INDEX = "index"
    OPTIMIZER = "optimizer"


class OperatorWork(Record):
    """`flops` counts a multiply-add as two; `bytes` is compulsory traffic; `dtype` is the operand type (bf16, ...);
    `per_address` how many rows are added to each address on average, 0 of what is no scatter."""

    kind: WorkKind
    flops: float
    bytes: float
    dtype: str
    per_address: float = 0.0
