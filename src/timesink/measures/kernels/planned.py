"""The operators that a transformer runs, from its configuration alone: forward, backward, and one token of decoding.

Each is written as a framework would record it, so that its work is that of `knowledge.work`. Counted are the operators
of eager PyTorch with fused norms, fused attention and, of rotary embeddings, one pass over queries and keys.
"""

from collections.abc import Iterator
from typing import Final

from timesink.errors import UsageError
from timesink.knowledge.gpus import GpuPeaks
from timesink.knowledge.operators import Operator, OperatorWork, Tensor
from timesink.knowledge.work import causality, work_of
from timesink.measures.kernels.attainable import Bound, bound_of
from timesink.memory_plan import Model
from timesink.records import Record

_ITEM_BYTES: Final = {"bf16": 2, "fp16": 2, "fp32": 4}
_ATTENTION: Final = "aten::_scaled_dot_product_flash_attention"
_ATTENTION_BACKWARD: Final = "aten::_flash_attention_backward"


class Batch(Record):
    """`sequences` sequences, of each of which `rows` tokens are computed while `context` tokens are attended to."""

    sequences: int
    rows: int
    context: int
    dtype: str = "bf16"

    @property
    def tokens(self) -> int:
        """Tokens computed."""
        return self.sequences * self.rows

    def tensor(self, *shape: int) -> Tensor:
        """A contiguous tensor of that shape."""
        strides, step = [], 1
        for size in reversed(shape):
            strides.append(step)
            step *= size
        return Tensor(shape, self.dtype, _ITEM_BYTES[self.dtype], tuple(reversed(strides)))


class Planned(Record):
    """One operator of the model: `name` for people, its part of the model, how often it runs, its work and its bound
    (of all runs together)."""

    part: str
    name: str
    count: int
    work: OperatorWork
    bound: Bound

    @property
    def intensity(self) -> float | None:
        """Operations per byte."""
        return self.work.flops / self.work.bytes if self.work.bytes else None


_Named = tuple[str, str, Operator]  # part, name, operator


def forward_operators(model: Model, batch: Batch, gpu: GpuPeaks) -> tuple[Planned, ...]:
    """The forward pass over the batch: every layer and the head. With one row per sequence it is a step of decoding.

    `UsageError` for models whose layers are not of this kind.
    """
    return _planned(model, gpu, _forward(model, batch), _head(model, batch))


def backward_operators(model: Model, batch: Batch, gpu: GpuPeaks) -> tuple[Planned, ...]:
    """The backward pass over the batch: of each product two, for its input and for its weight."""
    head = _head(model, batch)
    return _planned(model, gpu, _backward(model, batch, _forward(model, batch)), _backward(model, batch, head))


def _planned(model: Model, gpu: GpuPeaks, layer: Iterator[_Named], head: Iterator[_Named]) -> tuple[Planned, ...]:
    return tuple(
        Planned(part, name, count, work, bound_of(work, gpu, calls=count, kernels=count))
        for count, some in ((model.layers, layer), (1, head))
        for part, name, operator in some
        if (work := work_of(operator)) is not None
    )


def _forward(model: Model, batch: Batch) -> Iterator[_Named]:
    """One layer."""
    if model.kind == "vision" or model.kv_rank:
        what = "vision models" if model.kind == "vision" else "latent attention"
        raise UsageError(f"{what} cannot be classified without a trace", remedy="give a trace with recorded shapes")
    hidden = batch.tensor(batch.tokens, model.hidden)
    yield "attention", "norm", _norm(model, batch)
    for name, width in (("q", model.query), ("k", model.kv), ("v", model.kv)):
        yield "attention", f"{name} projection", _linear(batch, batch.tokens, width, model.hidden)
    if model.positions == "rotary":
        yield "attention", "rotary", Operator("aten::mul_", (batch.tensor(batch.tokens, model.query + model.kv),))
    yield "attention", "attention", _attention(model, batch)
    yield "attention", "output projection", _linear(batch, batch.tokens, model.hidden, model.query)
    yield "attention", "residual", Operator("aten::add", (hidden, hidden))
    yield "mlp", "norm", _norm(model, batch)
    yield from _mlp(model, batch)
    yield "mlp", "residual", Operator("aten::add", (hidden, hidden))


def _mlp(model: Model, batch: Batch) -> Iterator[_Named]:
    """The feed-forward; of a mixture those experts that the tokens are spread over, each with equally many rows."""
    rows, experts, width = batch.tokens, 1, model.feedforward
    if model.experts:
        rows = batch.tokens * model.experts_per_token
        experts = min(model.experts, rows)
        yield "mlp", "router", _linear(batch, batch.tokens, model.experts, model.hidden)
    each = -(-rows // experts)

    def product(out: int, inner: int) -> Operator:
        if not model.experts:
            return _linear(batch, rows, out, inner)
        return Operator("aten::bmm", (batch.tensor(experts, each, inner), batch.tensor(experts, inner, out)))

    inside = batch.tensor(rows, width)
    if model.gated:
        yield "mlp", "gate projection", product(width, model.hidden)
    yield "mlp", "up projection", product(width, model.hidden)
    yield "mlp", "activation", Operator("aten::silu" if model.gated else "aten::gelu", (inside,))
    if model.gated:
        yield "mlp", "gate x up", Operator("aten::mul", (inside, inside))
    yield "mlp", "down projection", product(model.hidden, width)


def _head(model: Model, batch: Batch) -> Iterator[_Named]:
    """The last norm and the projection onto the vocabulary, of every token computed."""
    yield "head", "norm", _norm(model, batch)
    yield "head", "vocabulary projection", _linear(batch, batch.tokens, model.vocab, model.hidden)


def _linear(batch: Batch, rows: int, out: int, inner: int) -> Operator:
    return Operator("aten::linear", (batch.tensor(rows, inner), batch.tensor(out, inner)))


def _norm(model: Model, batch: Batch) -> Operator:
    name = "aten::_fused_rms_norm" if model.norm == "rmsnorm" else "aten::native_layer_norm"
    weight = batch.tensor(model.hidden)
    weights = (weight,) if model.norm == "rmsnorm" else (weight, weight)
    return Operator(name, (batch.tensor(batch.tokens, model.hidden), *weights))


def _attention(model: Model, batch: Batch) -> Operator:
    """Keys and values of the whole context are read once per sequence."""
    q = batch.tensor(batch.sequences, model.heads, batch.rows, model.width)
    kv = batch.tensor(batch.sequences, model.kv_heads or model.heads, batch.context, model.width)
    return Operator(_ATTENTION, (q, kv, kv), causality(_ATTENTION, model.kind == "decoder" and batch.rows > 1))


def _backward(model: Model, batch: Batch, forward: Iterator[_Named]) -> Iterator[_Named]:
    """The gradients of each forward operator, the last one's first."""
    for part, name, operator in reversed(list(forward)):
        for what, gradient in _gradients(model, batch, operator):
            yield part, f"{name}{what}", gradient


def _gradients(model: Model, batch: Batch, operator: Operator) -> Iterator[tuple[str, Operator]]:
    """Each operator of the backward of one, with what it is the gradient of where there are several."""
    tensors = operator.tensors()
    match operator.name.removeprefix("aten::"):
        case "linear":
            (rows, inner), (out, _) = tensors[0].shape, tensors[1].shape
            result = batch.tensor(rows, out)
            yield ", input", Operator("aten::mm", (result, batch.tensor(out, inner)))
            yield ", weight", Operator("aten::mm", (batch.tensor(out, rows), batch.tensor(rows, inner)))
        case "bmm":
            (count, rows, inner), (_, _, out) = tensors[0].shape, tensors[1].shape
            yield ", input", Operator("aten::bmm", (batch.tensor(count, rows, out), batch.tensor(count, out, inner)))
            yield ", weight", Operator("aten::bmm", (batch.tensor(count, inner, rows), batch.tensor(count, rows, out)))
        case "_scaled_dot_product_flash_attention":
            yield "", _attention_backward(model, batch)
        case "_fused_rms_norm" | "native_layer_norm":
            yield "", Operator("aten::native_layer_norm_backward", (tensors[0], tensors[0]))
        case "silu" | "gelu" as activation:
            yield "", Operator(f"aten::{activation}_backward", (tensors[0], tensors[0]))
        case "mul":
            yield ", gate", Operator("aten::mul", (tensors[0], tensors[0]))
            yield ", up", Operator("aten::mul", (tensors[0], tensors[0]))
        case _:  # sums of two branches' gradients, rotations back
            yield "", operator


def _attention_backward(model: Model, batch: Batch) -> Operator:
    q = batch.tensor(batch.sequences, batch.rows, model.heads, model.width)
    kv = batch.tensor(batch.sequences, batch.context, model.kv_heads or model.heads, model.width)
    causal = model.kind == "decoder"
    return Operator(_ATTENTION_BACKWARD, (q, q, kv, kv), causality(_ATTENTION_BACKWARD, causal))
