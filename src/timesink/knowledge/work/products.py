"""Matrix products: 2 M N K operations; both operands read, the result written.

Scaled dot-product attention: two products forward, five backward (flash recomputes one); only q, k, v, o move.

Convolutions: 2 N Cout spatial_out (Cin / groups) filter operations; twice that backward, for both gradients.
"""

from __future__ import annotations

from math import prod

from timesink.knowledge.work.arguments import Operator, Tensor, Work, WorkKind
from timesink.untrusted.plain_json import parsed

_BIAS_FIRST = ("addmm", "baddbmm", "addmv", "_addmm_activation")


def matmul(operator: Operator) -> Work | None:
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
    return Work(WorkKind.MATMUL, flops, moved, left.dtype)


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


def attention(operator: Operator) -> Work | None:
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
        return Work(WorkKind.ATTENTION, forward, moved, q.dtype)
    # Reads q, k, v, o and its gradient; writes the three gradients.
    return Work(WorkKind.ATTENTION, 2.5 * forward, 2.0 * (q.bytes + k.bytes + v.bytes) + 2.0 * result, q.dtype)


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


def convolution(operator: Operator) -> Work | None:
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
    return Work(WorkKind.CONVOLUTION, _flops(result, weight), moved, image.dtype)


def _backward(operator: Operator) -> Work | None:
    gradient, image, weight = operator.tensor(0), operator.tensor(1), operator.tensor(2)
    if gradient is None or image is None or weight is None or operator.scalar(7) == "True":
        return None
    moved = 2.0 * (gradient.bytes + image.bytes + weight.bytes)
    return Work(WorkKind.CONVOLUTION, 2.0 * _flops(gradient, weight), moved, image.dtype)


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
