"""Convolutions: 2 N Cout spatial_out (Cin / groups) filter operations; twice that backward, for both gradients."""

from __future__ import annotations

from math import prod

from timesink.model.work.arguments import Operator, Tensor
from timesink.model.work.work import Work, WorkKind
from timesink.plain_json import parsed

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
