"""Operators that move more than they compute: each distinct element in once, each result element out once."""

from __future__ import annotations

from timesink.knowledge.work.arguments import Operator, Tensor, Work, WorkKind

# Places at which each operator takes a tensor to read, where these are not the first two (native_functions.yaml).
_INPUTS = {
    **dict.fromkeys(("abs", "ceil", "cos", "erf", "exp", "floor", "gelu", "hardswish", "log", "logical_not"), 1),
    **dict.fromkeys(
        ("neg", "reciprocal", "relu", "rsqrt", "sigmoid", "silu", "sin", "sqrt", "tanh", "tril", "triu"), 1
    ),
    **dict.fromkeys(("addcdiv", "addcmul", "clamp", "lerp", "masked_fill", "where", "native_dropout_backward"), 3),
}


def pointwise(operator: Operator) -> Work | None:
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
    return Work(WorkKind.POINTWISE, float(result), moved, tensors[0].dtype)


def copy(operator: Operator) -> Work | None:
    """copy_(dst, src) reads src and writes dst; the others read one tensor and write its like."""
    first, second = operator.tensor(0), operator.tensor(1)
    if first is None:
        return None
    source, target = (second, first) if second is not None else (first, first)
    return Work(WorkKind.COPY, 0.0, source.bytes + target.elements * target.itemsize, source.dtype)


def fill(operator: Operator) -> Work | None:
    """Writes its tensor."""
    target = operator.tensor(0)
    return None if target is None else Work(WorkKind.POINTWISE, 0.0, target.bytes, target.dtype)


def reduction(operator: Operator) -> Work | None:
    """Reads its tensor; the result is smaller and left out, so the figure is a lower bound."""
    source = operator.tensor(0)
    return None if source is None else Work(WorkKind.REDUCTION, float(source.elements), source.bytes, source.dtype)


def norm(operator: Operator) -> Work | None:
    """Reads x once and writes y; parameters are read once."""
    tensors = operator.tensors()
    if not tensors:
        return None
    x, parameters = tensors[0], tensors[1:]
    moved = 2 * x.bytes + sum(t.bytes for t in parameters if t.elements < x.elements)
    return Work(WorkKind.NORM, 8.0 * x.elements, moved, x.dtype)


def norm_backward(operator: Operator) -> Work | None:
    """Reads the gradient and x, writes the gradient of x."""
    gradient, x = operator.tensor(0), operator.tensor(1)
    if gradient is None or x is None:
        return None
    return Work(WorkKind.NORM, 12.0 * x.elements, gradient.bytes + 2 * x.bytes, x.dtype)


def softmax(operator: Operator) -> Work | None:
    """Reads x, writes y."""
    x = operator.tensor(0)
    return None if x is None else Work(WorkKind.SOFTMAX, 5.0 * x.elements, 2 * x.bytes, x.dtype)


def softmax_backward(operator: Operator) -> Work | None:
    """Reads the gradient and y, writes the gradient of x."""
    gradient, y = operator.tensor(0), operator.tensor(1)
    if gradient is None or y is None:
        return None
    return Work(WorkKind.SOFTMAX, 4.0 * y.elements, gradient.bytes + 2 * y.bytes, y.dtype)


def embedding(operator: Operator) -> Work | None:
    """Rows of a table picked by an index: each picked row read and written, the index read."""
    table = operator.tensor(0)
    index = operator.tensor(1) or operator.tensor(2)
    if table is None or index is None or len(table.shape) != 2:
        return None
    rows = index.elements * table.shape[1] * table.itemsize
    return Work(WorkKind.INDEX, 0.0, 2 * rows + index.bytes, table.dtype)


def concatenation(operator: Operator) -> Work | None:
    """Every part read and written once. The element type of a list is not recorded, so parts count two bytes each:
    a lower bound for wider types."""
    parts = operator.tensors()
    return Work(WorkKind.COPY, 0.0, 2 * sum(t.bytes for t in parts), parts[0].dtype) if parts else None


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
