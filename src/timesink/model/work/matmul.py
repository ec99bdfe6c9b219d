"""Matrix products: 2 M N K operations; both operands read, the result written."""

from __future__ import annotations

from timesink.model.work.arguments import Operator, Tensor
from timesink.model.work.work import Work, WorkKind

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
