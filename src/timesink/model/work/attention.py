"""Scaled dot-product attention: two products forward, five backward (flash recomputes one); only q, k, v, o move."""

from __future__ import annotations

from timesink.model.work.arguments import Operator, Tensor
from timesink.model.work.work import Work, WorkKind

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
