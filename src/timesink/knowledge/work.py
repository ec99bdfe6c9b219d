"""Operations and compulsory bytes of framework operators, from their recorded shapes, dtypes and strides.

`work_of(operator)` is the entry. Counted: multiply-adds as two operations; every distinct input element read once and
every output element written once (stride-0 broadcasts count their storage once). Not counted: re-reads, caches,
workspace. Formulas are the textbook ones TraceLens uses, too; each function names its own. Matrix products take 2 M N K
operations. Attention takes two products forward and five backward (flash recomputes one), and only q, k, v, o move.
Convolutions take 2 N Cout spatial_out (Cin / groups) filter operations, and twice that backward, for both gradients.
Operators that move more than they compute read each distinct element once and write each result element once.
"""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Final

from timesink.knowledge.operators import Operator, OperatorWork, Tensor, WorkKind
from timesink.untrusted.plain_json import parsed

Formula = Callable[[Operator], OperatorWork | None]
_BIAS_FIRST = ("addmm", "baddbmm", "addmv", "_addmm_activation")


def matmul(operator: Operator) -> OperatorWork | None:
    """mm, addmm, bmm, linear and their kin. A bias is read once; batch dimensions multiply."""
    name = operator.name.removeprefix("aten::")
    has_bias = name in _BIAS_FIRST
    left, right = operator.tensor(1 if has_bias else 0), operator.tensor(2 if has_bias else 1)
    if left is None or right is None or not left.shape or not right.shape:
        return None
    if name == "linear":
        right = Tensor(right.shape[::-1], right.dtype, right.itemsize, right.strides[::-1])
    inner = left.shape[-1]
    if right.shape[-2 if len(right.shape) > 1 else 0] != inner:
        return None
    rows = left.shape[-2] if len(left.shape) > 1 else 1
    columns = right.shape[-1] if len(right.shape) > 1 else 1
    batch = max(left.elements // max(rows * inner, 1), right.elements // max(inner * columns, 1))
    result = batch * rows * columns
    bias = operator.tensor(0) if has_bias else (operator.tensor(2) if name == "linear" else None)
    moved = left.bytes + right.bytes + result * left.itemsize + (bias.bytes if bias else 0)
    flops = 2.0 * result * inner + (result if bias else 0)
    return OperatorWork(WorkKind.MATMUL, flops, moved, left.dtype)


def operand_sides(shapes: str) -> list[list[int]]:
    """The sides of each tensor among an operator's recorded operands, by the JSON text of all; none where it is no such
    text, which is untrusted."""
    try:
        return [side for side in parsed(shapes) if isinstance(side, list) and all(type(size) is int for size in side)]
    except (ValueError, TypeError):
        return []


@lru_cache(maxsize=65536)
def product_sizes(name: str, shapes: str) -> tuple[int, tuple[int, int]] | None:
    """Rows of the left side of a matmul by one matrix, and that matrix's sizes (inner, columns); None for others."""
    bare = name.removeprefix("aten::")
    if bare not in ("mm", "addmm", "linear", "matmul", "_scaled_mm"):
        return None
    sides = operand_sides(shapes)
    first = 1 if bare in _BIAS_FIRST else 0
    left, right = sides[first : first + 1], sides[first + 1 : first + 2]
    if not left or not right or len(left[0]) < 2 or len(right[0]) != 2:
        return None
    inner, columns = reversed(right[0]) if bare == "linear" else right[0]
    return prod(left[0][:-1]), (inner, columns)


# Where each operator records q (k and v follow), whether its layout is (batch, sequence, heads, width), and causality.
_PLACES: dict[str, tuple[int, bool, int]] = {
    "_flash_attention_forward": (0, True, 8),
    "_efficient_attention_forward": (0, True, 9),
    "_cudnn_attention_forward": (0, False, 10),
    "_scaled_dot_product_flash_attention": (0, False, 4),
    "_scaled_dot_product_efficient_attention": (0, False, 6),
    "_scaled_dot_product_cudnn_attention": (0, False, 6),
    "_flash_attention_backward": (1, True, 11),
    "_efficient_attention_backward": (1, True, 14),
    "_cudnn_attention_backward": (1, False, 14),
}


def causality(name: str, is_causal: bool) -> tuple[str, ...]:
    """Scalar arguments of that attention that say whether it has a causal mask, and nothing else."""
    return (*[""] * _PLACES[name.removeprefix("aten::")][2], str(is_causal))


def attention(operator: Operator) -> OperatorWork | None:
    """4 B H Sq Sk d operations forward (q k and p v, d_qk and d_v taken apart), 2.5 times that backward.

    A causal mask leaves the pairs on and below the diagonal, aligned to the last key: Sq Sk - Sq (Sq - 1) / 2.
    Grouped heads share k and v, which are read once.
    """
    name = operator.name.removeprefix("aten::")
    first, sequence_first, causal_at = _PLACES[name]
    q, k, v = operator.tensor(first), operator.tensor(first + 1), operator.tensor(first + 2)
    if q is None or k is None or v is None or any(len(t.shape) != 4 for t in (q, k, v)):
        return None
    batch, heads, rows, width = _dimensions(q, sequence_first)
    _, _, columns, value_width = _dimensions(v, sequence_first)
    causal = operator.scalar(causal_at) in ("True", "1", "2")
    pairs = rows * columns - rows * (rows - 1) / 2 if causal and columns >= rows else float(rows * columns)
    forward = 2.0 * batch * heads * pairs * (width + value_width)
    result = batch * heads * rows * value_width * q.itemsize
    moved = q.bytes + k.bytes + v.bytes + result
    if not name.endswith("backward"):
        return OperatorWork(WorkKind.ATTENTION, forward, moved, q.dtype)
    # Reads q, k, v, o and its gradient; writes the three gradients.
    return OperatorWork(WorkKind.ATTENTION, 2.5 * forward, 2.0 * (q.bytes + k.bytes + v.bytes) + 2.0 * result, q.dtype)


def _dimensions(tensor: Tensor, sequence_first: bool) -> tuple[int, int, int, int]:
    """Batch, heads, sequence, width."""
    a, b, c, d = tensor.shape
    return (a, c, b, d) if sequence_first else (a, b, c, d)


# Positions of (stride, padding, dilation, transposed, groups); None where the operator has no such argument.
_FORWARD: dict[str, tuple[int, int, int, int | None, int]] = {
    "convolution": (3, 4, 5, 6, 8),
    "cudnn_convolution": (3, 2, 4, None, 5),
    "miopen_convolution": (4, 3, 5, None, 6),
}


def convolution(operator: Operator) -> OperatorWork | None:
    """Forward and backward of plain (not transposed) convolutions."""
    name = operator.name.removeprefix("aten::")
    if name == "convolution_backward":
        return _backward(operator)
    image, weight = operator.tensor(0), operator.tensor(1)
    stride_at, padding_at, dilation_at, transposed_at, _ = _FORWARD[name]
    if image is None or weight is None or len(image.shape) < 3:
        return None
    if transposed_at is not None and operator.scalar(transposed_at) == "True":
        return None
    spatial = len(image.shape) - 2
    steps, pads, spread = (_integers(operator.scalar(i), spatial) for i in (stride_at, padding_at, dilation_at))
    if steps is None or pads is None or spread is None:
        return None
    out = [
        (size + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for size, kernel, step, pad, gap in zip(image.shape[2:], weight.shape[2:], steps, pads, spread, strict=True)
    ]
    result = Tensor((image.shape[0], weight.shape[0], *out), image.dtype, image.itemsize)
    moved = image.bytes + weight.bytes + result.bytes
    return OperatorWork(WorkKind.CONVOLUTION, _flops(result, weight), moved, image.dtype)


def _backward(operator: Operator) -> OperatorWork | None:
    gradient, image, weight = operator.tensor(0), operator.tensor(1), operator.tensor(2)
    if gradient is None or image is None or weight is None or operator.scalar(7) == "True":
        return None
    moved = 2.0 * (gradient.bytes + image.bytes + weight.bytes)
    return OperatorWork(WorkKind.CONVOLUTION, 2.0 * _flops(gradient, weight), moved, image.dtype)


def _flops(result: Tensor, weight: Tensor) -> float:
    """`weight` is (Cout, Cin / groups, filter...): its trailing dimensions are the products of one output element."""
    return 2.0 * result.elements * prod(weight.shape[1:])


def _integers(text: str, count: int) -> list[int] | None:
    try:
        values = parsed(text)
    except ValueError:
        return None
    if not isinstance(values, list) or not all(isinstance(v, int) for v in values):
        return None
    return values * count if len(values) == 1 else values if len(values) == count else None


# Places at which each operator takes a tensor to read, where these are not the first two (native_functions.yaml).
_INPUTS = {
    **dict.fromkeys(("abs", "ceil", "cos", "erf", "exp", "floor", "gelu", "hardswish", "log", "logical_not"), 1),
    **dict.fromkeys(
        ("neg", "reciprocal", "relu", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh", "tril", "triu"), 1
    ),
    **dict.fromkeys(("addcdiv", "addcmul", "clamp", "lerp", "masked_fill", "where", "native_dropout_backward"), 3),
}


def pointwise(operator: Operator) -> OperatorWork | None:
    """Inputs broadcast together. An in-place operator writes its first argument, one with `out=` that, another a result
    of its inputs' widest type. A tensor beyond the places of the inputs is `out`: it is written and not read."""
    most = _INPUTS.get(operator.name.removeprefix("aten::").removesuffix("_"), 2)
    places = [operator.tensor(place) for place in range(len(operator.arguments))]
    tensors = [tensor for tensor in places[:most] if tensor is not None]
    if not tensors:
        return None
    result = _broadcast(tensors)
    if result is None:
        return None
    out = next((tensor for tensor in places[most:] if tensor is not None), None)
    written = tensors[0] if operator.name.endswith("_") else out
    itemsize = max(t.itemsize for t in tensors) if written is None else written.itemsize
    moved = sum(t.bytes for t in tensors) + result * itemsize
    return OperatorWork(WorkKind.POINTWISE, float(result), moved, tensors[0].dtype)


def copy(operator: Operator) -> OperatorWork | None:
    """copy_(dst, src) reads src and writes dst; the others read one tensor and write its like."""
    first, second = operator.tensor(0), operator.tensor(1)
    if first is None:
        return None
    source, target = (second, first) if second is not None else (first, first)
    return OperatorWork(WorkKind.COPY, 0.0, source.bytes + target.elements * target.itemsize, source.dtype)


def passes(kind: WorkKind, count: int, flops: float) -> Formula:
    """Reads or writes its tensor so many times, with some operations an element."""

    def formula(operator: Operator) -> OperatorWork | None:
        x = operator.tensor(0)
        return None if x is None else OperatorWork(kind, flops * x.elements, count * x.bytes, x.dtype)

    return formula


def gradient(kind: WorkKind, flops: float) -> Formula:
    """Reads the gradient and x (or what forward made of it), writes the gradient of x."""

    def formula(operator: Operator) -> OperatorWork | None:
        given, x = operator.tensor(0), operator.tensor(1)
        if given is None or x is None:
            return None
        return OperatorWork(kind, flops * x.elements, given.bytes + 2 * x.bytes, x.dtype)

    return formula


def norm(operator: Operator) -> OperatorWork | None:
    """Reads x once and writes y; parameters are read once."""
    tensors = operator.tensors()
    if not tensors:
        return None
    x, parameters = tensors[0], tensors[1:]
    moved = 2 * x.bytes + sum(t.bytes for t in parameters if len(t.shape) < len(x.shape) or t.elements < x.elements)
    return OperatorWork(WorkKind.NORM, 8.0 * x.elements, moved, x.dtype)


def embedding(operator: Operator) -> OperatorWork | None:
    """Rows of a table picked by an index: each picked row read and written, the index read."""
    table = operator.tensor(0)
    index = operator.tensor(1) or operator.tensor(2)
    if table is None or index is None or len(table.shape) != 2:
        return None
    rows = index.elements * table.shape[1] * table.itemsize
    return OperatorWork(WorkKind.INDEX, 0.0, 2 * rows + index.bytes, table.dtype)


def scatter(operator: Operator) -> OperatorWork | None:
    """Rows added up at indices, into the first tensor."""
    into, index, rows = operator.tensor(0), operator.tensor(2), operator.tensor(3)
    return None if into is None or index is None or rows is None else _added(into, index.bytes, rows)


def scatter_put(operator: Operator) -> OperatorWork | None:
    """`index_put` that accumulates, as indexing's gradient does; its list of indices has no recorded shape."""
    into, rows = operator.tensor(0), operator.tensor(2)
    if into is None or rows is None or not rows.shape or operator.scalar(3) != "True":
        return None
    return _added(into, _INDEX_BYTES * rows.shape[0], rows)


def scatter_gradient(operator: Operator) -> OperatorWork | None:
    """Gradients of rows that an embedding picked, into a table of so many rows."""
    rows, index = operator.tensor(0), operator.tensor(1)
    if rows is None or index is None or not rows.shape or not operator.scalar(2).isdecimal():
        return None
    return _added(Tensor((int(operator.scalar(2)), rows.shape[-1]), rows.dtype, rows.itemsize), index.bytes, rows)


_INDEX_BYTES: Final = 8


def _added(into: Tensor, index_bytes: float, rows: Tensor) -> OperatorWork:
    """Each row is read, with its index, and each address read and written once."""
    moved = rows.bytes + index_bytes + 2 * min(into.bytes, rows.bytes)
    each = rows.elements / into.elements if into.elements else 0.0
    return OperatorWork(WorkKind.INDEX, float(rows.elements), moved, rows.dtype, each)


def concatenation(operator: Operator) -> OperatorWork | None:
    """Every part read and written once. The element type of a list is not recorded, so parts count two bytes each:
    a lower bound for wider types."""
    parts = operator.tensors()
    return OperatorWork(WorkKind.COPY, 0.0, 2 * sum(t.bytes for t in parts), parts[0].dtype) if parts else None


def _broadcast(tensors: list[Tensor]) -> int | None:
    """Elements of the broadcast shape, or None where the shapes do not broadcast."""
    rank = max(len(t.shape) for t in tensors)
    result = 1
    for place in range(1, rank + 1):
        sizes = {t.shape[-place] for t in tensors if len(t.shape) >= place} - {1}
        if len(sizes) > 1:
            return None
        result *= sizes.pop() if sizes else 1
    return result


# fmt: off
_OPERATORS: Final[tuple[tuple[Formula, str], ...]] = (
    (matmul, "mm addmm bmm baddbmm matmul linear mv addmv _scaled_mm _int_mm _addmm_activation"),
    (attention,
     "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
     "_scaled_dot_product_cudnn_attention _flash_attention_forward _efficient_attention_forward "
     "_cudnn_attention_forward _flash_attention_backward _efficient_attention_backward _cudnn_attention_backward"),
    (convolution, "convolution cudnn_convolution miopen_convolution convolution_backward"),
    (pointwise,
     "abs add add_ addcdiv addcdiv_ addcmul addcmul_ bitwise_and bitwise_or ceil clamp clamp_min clamp_min_ clamp_ "
     "cos div div_ eq erf exp floor ge gelu gelu_backward gt hardswish le lerp lerp_ log logical_and logical_not "
     "lt masked_fill masked_fill_ mul mul_ native_dropout native_dropout_backward ne neg pow reciprocal relu relu_ "
     "rsqrt rsub sigmoid sigmoid_ sigmoid_backward silu silu_ silu_backward sin sqrt sqrt_ sub sub_ tanh tanh_ "
     "tanh_backward threshold_backward tril triu where"),
    (passes(WorkKind.REDUCTION, 1, 1.0),
     "sum mean amax amin max min prod norm linalg_vector_norm all any argmax argmin var var_mean std"),
    (copy, "copy_ _to_copy clone contiguous"),
    (passes(WorkKind.POINTWISE, 1, 0.0), "fill_ zero_"),
    (norm, "native_layer_norm native_group_norm _fused_rms_norm cudnn_batch_norm"),
    (gradient(WorkKind.NORM, 12.0), "native_layer_norm_backward native_group_norm_backward"),
    (passes(WorkKind.SOFTMAX, 2, 5.0), "_softmax _log_softmax"),
    (gradient(WorkKind.SOFTMAX, 4.0), "_softmax_backward_data _log_softmax_backward_data"),
    (embedding, "embedding index_select"),
    (scatter, "index_add index_add_ scatter_add scatter_add_ scatter_reduce scatter_reduce_"),
    (scatter_put, "index_put index_put_ _index_put_impl_"),
    (scatter_gradient, "embedding_dense_backward"),
    (concatenation, "cat"),
)
# fmt: on
FORMULAS: Final = {name: formula for formula, names in _OPERATORS for name in names.split()}
"""The formula of each operator."""


def work_of(operator: Operator) -> OperatorWork | None:
    """The work of one operator call, or None where the name or its shapes are not understood."""
    name = operator.name.removeprefix("aten::")
    formula = FORMULAS.get(name)
    return formula(operator) if formula else None


@lru_cache(maxsize=65536)
def recorded_work(
    name: str, shapes: str, dtypes: str, strides: str | None, concrete: str | None
) -> OperatorWork | None:
    """The same from a trace's text; equal texts are parsed once."""
    if name.removeprefix("aten::") not in FORMULAS:
        return None
    operator = Operator.recorded(name, shapes, dtypes, strides, concrete)
    return work_of(operator) if operator else None
