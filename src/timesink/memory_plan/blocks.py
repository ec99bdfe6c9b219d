"""One transformer block, and the loss, as tapes of the operators that PyTorch runs eagerly.

A tape is what eager autograd keeps: operators with the sizes of their results, run forward and back. Forward, a result
is freed after its last use unless an operator saved it. Backward, an operator's gradients are allocated while the
gradient of its result and what it saved are still there; then both go. This is how PyTorch runs a program operator by
operator; a compiler that fuses or reorders operators needs less.

Sizes follow the eager kernels: an amp residual stream is fp32 and every linear casts its input; flash attention saves
q, k, v, its result and a log-sum-exp; scores of unfused attention are kept in fp32 by softmax; SiLU and its product
are separate operators. Sequence parallelism cuts what is between the tensor-parallel regions as well.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from timesink.memory_plan import Model, Parallel, Training


@dataclass(eq=False, slots=True)
class Value:
    """A tensor's storage. `needs_grad` is false for tokens, masks and tables."""

    name: str
    size_bytes: int
    needs_grad: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operator. `weight_grad_bytes`: gradients of its weights as the backward kernel writes them.

    `keeps` are bytes it saves besides `saves` (masks, statistics); `forward_extra_bytes` and `backward_extra_bytes`
    live only while it runs. `passes_grad`: its input's gradient is the result's own storage (an addition, a view).
    """

    name: str
    inputs: tuple[Value, ...]
    output: Value
    saves: tuple[Value, ...] = ()
    keeps: int = 0
    forward_extra_bytes: int = 0
    backward_extra_bytes: int = 0
    weight_grad_bytes: int = 0
    passes_grad: bool = False


@dataclass(slots=True)
class Tape:
    """Operators in the order they run; the first input of the first one is the stretch's own input."""

    ops: list[Op] = field(default_factory=list)

    def op(
        self, name: str, inputs: tuple[Value, ...], out_bytes: int, *, saves_output: bool = False, **more: Any
    ) -> Value:
        """Append an operator and return its result; `more` are fields of `Op`."""
        output = Value(name, out_bytes)
        saves: tuple[Value, ...] = more.pop("saves", ())
        self.ops.append(Op(name, inputs, output, (*saves, output) if saves_output else saves, **more))
        return output

    def saved(self) -> list[tuple[str, int]]:
        """Name and bytes of what stays until the backward pass, each storage once, in the order of the operators."""
        storages: dict[int, tuple[str, int]] = {}
        for op in self.ops:
            for value in op.saves:
                storages.setdefault(id(value), (value.name, value.size_bytes))
            if op.keeps:
                storages[id(op)] = (f"{op.name} statistics or mask", op.keeps)
        return list(storages.values())

    @property
    def saved_bytes(self) -> int:
        """Sum of what stays until the backward pass."""
        return sum(size for _, size in self.saved())

    def forward_peak_bytes(self, *, is_trained: bool = True) -> int:
        """Most bytes alive during the forward pass, what it saves included; without training nothing is saved.

        The stretch's own input is counted only where the tape saves it.
        """
        uses = Counter(id(value) for op in self.ops for value in op.inputs)
        last = self.ops[-1].output
        kept = {id(value) for op in self.ops for value in op.saves if is_trained} | {id(last)}
        own = {id(value) for op in self.ops for value in op.inputs} - {id(op.output) for op in self.ops}
        given = {id(value): value.size_bytes for op in self.ops for value in op.inputs if id(value) in own & kept}
        live = peak = sum(given.values())
        for op in self.ops:
            live += op.output.size_bytes + (op.keeps if is_trained else 0)
            peak = max(peak, live + op.forward_extra_bytes)
            for value in op.inputs:
                uses[id(value)] -= 1
                if not uses[id(value)] and id(value) not in kept and id(value) not in own:
                    live -= value.size_bytes
        return peak

    def backward_peak_bytes(self) -> int:
        """Most bytes alive during the backward pass beyond what was saved, the incoming gradient included."""
        grads: dict[int, int] = {id(self.ops[-1].output): self.ops[-1].output.size_bytes}
        keepers = Counter(id(value) for op in self.ops for value in op.saves)
        live = peak = sum(grads.values())
        for op in reversed(self.ops):
            incoming = grads.pop(id(op.output), 0)
            live, peak = self._step_back(op, grads, live, peak)
            live += op.weight_grad_bytes
            live -= incoming if not op.passes_grad else 0
            for value in op.saves:
                keepers[id(value)] -= 1
                live -= value.size_bytes if not keepers[id(value)] else 0
            live -= op.keeps
        return peak

    @staticmethod
    def _step_back(op: Op, grads: dict[int, int], live: int, peak: int) -> tuple[int, int]:
        """Allocate the gradients of an operator's inputs; a second gradient of one value is added and freed.

        Where the operator passes its gradient on, the first input that needs one gets it without an allocation.
        """
        fresh = second = 0
        handed_on = op.passes_grad
        for value in op.inputs:
            if not value.needs_grad:
                continue
            allocated = 0 if handed_on else value.size_bytes
            handed_on = False
            if id(value) in grads:
                second += allocated
            else:
                grads[id(value)] = value.size_bytes
                fresh += allocated
        during = live + fresh + second + op.weight_grad_bytes + op.backward_extra_bytes
        return live + fresh, max(peak, during)


@dataclass(frozen=True, slots=True)
class Shapes:
    """One rank's token count and the bytes of its numbers: `compute` in linears, `residual` between blocks."""

    batch: int
    sequence: int
    compute: int
    residual: int
    amp: bool
    tensor: int = 1
    outside: int = 1
    context: int = 1
    is_flash: bool = True

    @property
    def tokens(self) -> int:
        """Tokens of this rank."""
        return self.batch * self.sequence


def shapes_of(model: Model, train: Training, parallel: Parallel) -> Shapes:
    """Sizes on one rank. Context parallelism cuts the sequence; FSDP2's policy computes everything in 16 bits."""
    whole = train.precision == "fp32"
    autocast = train.precision in ("amp", "fp8") and parallel.sharding != "fsdp2"
    return Shapes(
        batch=train.batch,
        sequence=-(-sequence_of(model, train.sequence) // parallel.context),
        compute=4 if whole else 2,
        residual=4 if whole or autocast else 2,
        amp=autocast,
        tensor=parallel.tensor,
        outside=parallel.tensor if parallel.sequence else 1,
        context=parallel.context,
        is_flash=train.attention == "flash",
    )


def sequence_of(model: Model, sequence: int) -> int:
    """Tokens of one sequence; patches of one image."""
    return (model.image // model.patch) ** 2 if model.kind == "vision" and model.patch else sequence


def block(model: Model, s: Shapes, recompute_attention: bool = False) -> Tape:
    """The tape of one block: attention, feed-forward, two norms, two additions."""
    tape = Tape()
    x = Value("block input", s.tokens * model.hidden * s.residual // s.outside)
    y = _attention(tape, model, s, _normed(tape, model, s, x, "norm 1"), recompute_attention)
    x = _added(tape, model, s, x, y)
    y = _feedforward(tape, model, s, _normed(tape, model, s, x, "norm 2"))
    _added(tape, model, s, x, y)
    return tape


def _normed(tape: Tape, model: Model, s: Shapes, x: Value, name: str) -> Value:
    """A norm saves its input and a statistic or two per row."""
    statistics = 4 * s.tokens // s.outside * (2 if model.norm == "layernorm" else 1)
    return tape.op(name, (x,), s.tokens * model.hidden // s.outside * s.residual, saves=(x,), keeps=statistics)


def _linear(tape: Tape, s: Shapes, x: Value, name: str, weights: int, out_bytes: int) -> Value:
    """A linear saves its input. Under autocast each linear casts an fp32 input anew, and its weight gradient is
    written in 16 bits and then cast to 32."""
    if s.residual != s.compute and "norm" in x.name:
        x = tape.op(f"{name} input cast", (x,), x.size_bytes * s.compute // s.residual)
    return tape.op(
        name,
        (x,),
        out_bytes,
        saves=(x,),
        weight_grad_bytes=weights * (4 if s.amp else s.compute),
        backward_extra_bytes=weights * 2 if s.amp else 0,
    )


def _project(tape: Tape, s: Shapes, x: Value, name: str, width_in: int, width_out: int) -> Value:
    """A linear over every token."""
    return _linear(tape, s, x, name, width_in * width_out, s.tokens * width_out * s.compute)


def _added(tape: Tape, model: Model, s: Shapes, x: Value, y: Value) -> Value:
    """Dropout, if any, keeps one byte per element; the addition keeps nothing."""
    size = s.tokens * model.hidden // s.outside
    if model.dropout:
        y = tape.op("dropout", (y,), size * s.compute, keeps=size)
    return tape.op("residual", (x, y), size * s.residual, passes_grad=True)


def _attention(tape: Tape, model: Model, s: Shapes, x: Value, recompute: bool) -> Value:
    n, c, query = s.tokens, s.compute, model.query // s.tensor
    parts = _projected(tape, model, s, x)
    if model.positions == "rotary" and len(parts) == 3:
        parts = (_rotated(tape, parts[0], "query"), _rotated(tape, parts[1], "key"), parts[2])
    if not s.is_flash:
        return _project(tape, s, _scores(tape, model, s, parts, recompute), "attention output", query, model.hidden)
    kv = _kv_width(model, s)
    per_head = 4 * s.batch * model.heads // s.tensor * s.sequence
    y = tape.op(
        "flash attention",
        parts,
        n * query * c,
        saves=() if recompute else parts,
        saves_output=not recompute,
        keeps=0 if recompute else per_head,
        forward_extra_bytes=2 * n * kv * c * (s.context - 1),
        # An fp32 accumulator of dq; dk and dv are written per query head and summed where heads share keys.
        backward_extra_bytes=4 * n * query + per_head + (2 * n * query * c if kv != query else 0),
    )
    return _project(tape, s, y, "attention output", query, model.hidden)


def _kv_width(model: Model, s: Shapes) -> int:
    return model.query // s.tensor if model.kv_rank else max(model.kv // s.tensor, model.width)


def _projected(tape: Tape, model: Model, s: Shapes, x: Value) -> tuple[Value, ...]:
    """Query, key and value: one storage where they come from one linear, else three."""
    query, kv = model.query // s.tensor, _kv_width(model, s)
    if model.kv_rank:
        latent = _project(tape, s, x, "latent", model.hidden, model.kv_rank + model.rope_width)
        q = _project(tape, s, x, "query", model.hidden, query)
        k = _project(tape, s, latent, "key from latent", model.kv_rank, kv)
        return q, k, _project(tape, s, latent, "value from latent", model.kv_rank, kv)
    if model.fused_qkv:
        return (_project(tape, s, x, "qkv", model.hidden, query + 2 * kv),)
    q = _project(tape, s, x, "query", model.hidden, query)
    k = _project(tape, s, x, "key", model.hidden, kv)
    return q, k, _project(tape, s, x, "value", model.hidden, kv)


def _rotated(tape: Tape, x: Value, name: str) -> Value:
    """``x * cos + rotate_half(x) * sin``: nothing of x is kept, as the tables need no gradient."""
    size = x.size_bytes
    return tape.op(f"rotated {name}", (x,), size, forward_extra_bytes=3 * size, backward_extra_bytes=2 * size)


def _scores(tape: Tape, model: Model, s: Shapes, parts: tuple[Value, ...], recompute: bool) -> Value:
    """Unfused attention: the products keep their operands, softmax its fp32 result; scores are a*b*s*s each."""
    n, c, query = s.tokens, s.compute, model.query // s.tensor
    scores = s.batch * model.heads // s.tensor * s.sequence * s.sequence * s.context
    q, k, v = (tape.op(f"{name} copy", parts, n * query * c) for name in ("query", "key", "value"))
    kept = not recompute
    raw = tape.op("scores", (q, k), scores * c, saves=(q, k) if kept else ())
    scaled = tape.op("scaled scores", (raw,), scores * c)
    masked = tape.op("masked scores", (scaled,), scores * c)
    soft = tape.op(
        "softmax",
        (masked,),
        scores * 4,
        saves_output=kept,
        forward_extra_bytes=scores * (c + (4 if c == 2 else 0)),
        backward_extra_bytes=scores * (4 if c == 2 else 0),
    )
    weights = tape.op("softmax cast", (soft,), scores * 2) if c == 2 else soft
    y = tape.op("weighted values", (weights, v), n * query * c, saves=(weights, v) if kept else ())
    return tape.op("attention copy", (y,), n * query * c)


def _feedforward(tape: Tape, model: Model, s: Shapes, x: Value) -> Value:
    if not model.experts:
        return _dense(tape, model, s, x, 1.0)
    share = model.experts_per_token * model.expert_capacity
    routed = int(s.tokens * model.hidden * s.compute * share)
    scores = 4 * s.tokens * model.experts
    dispatched = tape.op("dispatch to experts", (x,), routed, keeps=2 * scores + 8 * s.tokens * model.experts_per_token)
    y = _dense(tape, model, s, dispatched, share)
    y = tape.op("combine experts", (y,), s.tokens * model.hidden * s.compute, saves=(y,))
    if model.shared_experts:
        shared = _dense(tape, model, s, x, 1.0, model.shared_experts)
        y = tape.op("add shared experts", (y, shared), s.tokens * model.hidden * s.compute, passes_grad=True)
    return y


def _dense(tape: Tape, model: Model, s: Shapes, x: Value, share: float, copies: int = 1) -> Value:
    """Feed-forward of `share` of the tokens: up, activation, down; or gate, SiLU, up, product, down."""
    inner = int(s.tokens * share) * model.feedforward * copies // s.tensor * s.compute
    weights = model.hidden * model.feedforward * copies // s.tensor
    if model.gated:
        gate = _linear(tape, s, x, "gate", weights, inner)
        silu = tape.op("silu", (gate,), inner, saves=(gate,))
        up = _linear(tape, s, x, "up", weights, inner)
        product = tape.op("gated product", (silu, up), inner, saves=(silu, up))
    else:
        up = _linear(tape, s, x, "up", weights, inner)
        product = tape.op("activation", (up,), inner, saves=(up,))
    return _linear(tape, s, product, "down", weights, int(s.tokens * share) * model.hidden * s.compute)


def loss(model: Model, s: Shapes, train: Training) -> Tape:
    """Last norm, head, and cross-entropy in fp32: the logits once as computed, once cast, once as log-probabilities.

    A chunked loss takes a part of the rows at a time, each part's logits recomputed or freed at once. A fused loss
    stores no log-probabilities. A vision model has one row of logits per image, the others one per token.
    """
    tape = Tape()
    chunks = train.chunks if train.loss == "chunked" else 1
    x = Value("last block output", s.tokens * model.hidden * s.residual // s.outside)
    y = _normed(tape, model, s, x, "last norm")
    rows = (s.batch if model.kind == "vision" else s.tokens) // chunks
    if model.kind == "vision":
        y = tape.op("mean of norms", (y,), s.batch * model.hidden * s.residual)
    entries = rows * model.vocab // s.tensor
    logits = _linear(tape, s, y, "head", model.hidden * model.vocab // s.tensor, entries * s.compute)
    if s.compute != 4:
        logits = tape.op("logits cast", (logits,), entries * 4)
    log_probabilities = tape.op("log-softmax", (logits,), entries * 4, saves_output=train.loss != "fused")
    tape.op("negative log-likelihood", (log_probabilities,), 4)
    return tape
