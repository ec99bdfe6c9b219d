"""A training step as a walk over its units (embedding, blocks, loss), and the most memory alive on the way.

Every moment is a sum of what lasts (weights, states), what has piled up (activations on the way forward, gradients on
the way back) and what the unit at work needs for itself. The peak is the largest moment. A served model has four
moments: one block and the end of prefill, and of a decoding step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from timesink.memory_plan.blocks import Shapes, Tape, block, loss, shapes_of
from timesink.memory_plan.config import Configuration, Model, Parallel, Serving, Training
from timesink.memory_plan.states import MemoryCategory, States, Term, parameters, states, step_temporaries


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes by category at one point of a step."""

    phase: str
    what: str
    parts: dict[MemoryCategory, int] = field(hash=False)

    @property
    def total_bytes(self) -> int:
        """Everything alive at this moment, as the allocator counts it."""
        return sum(self.parts.values())


@dataclass(frozen=True, slots=True)
class Units:
    """The sizes the walk adds up: one block, one loss, one block's weights, and how many blocks are in flight."""

    shapes: Shapes
    layers: int
    in_flight: int
    kept_per_block: int
    block_forward: int
    block_backward: int
    loss_kept: int
    loss_forward: int
    loss_backward: int
    cast_per_block: int
    cast_ends: int
    embedding_output: int


def units(config: Configuration) -> Units:
    """The units of a training configuration."""
    train, parallel, model = config.training, config.parallel, config.model
    shapes = shapes_of(model, train, parallel)
    layers = model.layers // parallel.pipeline
    whole = block(model, shapes)
    kept = block(model, shapes, recompute_attention=True) if train.recompute == "selective" else whole
    recomputed = whole.saved_bytes - kept.saved_bytes  # comes back while one block is gone through
    ends = loss(model, shapes, train)
    is_last = parallel.stage == parallel.pipeline - 1
    residual = shapes.tokens * model.hidden * shapes.residual // shapes.outside
    full = train.recompute == "full"
    params = states(config).params
    fused = train.loss == "fused"
    return Units(
        shapes=shapes,
        layers=layers,
        in_flight=in_flight(parallel, train),
        kept_per_block=residual if full else kept.saved_bytes,
        block_forward=whole.forward_peak_bytes() if full else max(whole.forward_peak_bytes() - kept.saved_bytes, 0),
        block_backward=_recompute_peak(whole) if full else kept.backward_peak_bytes() + recomputed,
        loss_kept=ends.saved_bytes if is_last else 0,
        loss_forward=(0 if fused else ends.forward_peak_bytes() - ends.saved_bytes) if is_last else 0,
        loss_backward=(ends.backward_peak_bytes() if not fused else residual * 2) if is_last else residual,
        cast_per_block=2 * params.linear if shapes.amp else 0,
        cast_ends=2 * (params.head or (params.embedding if model.tied else 0)) if shapes.amp and is_last else 0,
        embedding_output=residual,
    )


def inputs_bytes(config: Configuration) -> int:
    """The batch itself: token and target numbers of 8 bytes, or fp32 pixels and their 16-bit cast under autocast."""
    model, train = config.model, config.training
    if model.kind == "vision":
        cast = 2 if train.precision in ("amp", "fp8") else 0
        return train.batch * 3 * model.image * model.image * (4 + cast)
    return 2 * 8 * train.batch * train.sequence // config.parallel.context


def in_flight(parallel: Parallel, train: Training) -> int:
    """Micro-batches whose activations a pipeline stage holds at once: 1F1B p - i of them, GPipe all of them."""
    if parallel.pipeline == 1:
        return 1
    if parallel.schedule == "gpipe":
        return train.micro_batches
    return min(parallel.pipeline - parallel.stage, train.micro_batches)


def _recompute_peak(whole: Tape) -> int:
    """Full recomputation: the block runs forward again, then back; whichever half needs more, with its gradient."""
    gradient = whole.ops[-1].output.size_bytes
    return max(whole.forward_peak_bytes() + gradient, whole.saved_bytes + whole.backward_peak_bytes())


def moments(config: Configuration) -> Iterator[Moment]:
    """Every candidate for the peak, in the order of a step."""
    held, u = states(config), units(config)
    sharding = GatherBuffers.of(config, held)
    lasting = {
        MemoryCategory.WEIGHTS: held.total(MemoryCategory.WEIGHTS),
        MemoryCategory.OPTIMIZER_STATE: held.total(MemoryCategory.OPTIMIZER_STATE),
        MemoryCategory.COMMUNICATION: held.total(MemoryCategory.COMMUNICATION),
        MemoryCategory.WORKSPACES: 2 * config.gpu.workspace_bytes,
        MemoryCategory.INPUTS: inputs_bytes(config),
    }
    walk = _Walk(config, held, u, sharding, lasting)
    yield from walk.forward()
    yield from walk.backward()
    yield from walk.optimizer()


@dataclass(frozen=True, slots=True)
class GatherBuffers:
    """FSDP2 and ZeRO-3: whole copies of one unit's weights and gradients while it is at work.

    `forward_bytes` and `backward_bytes` are buffers besides the shards; `root_bytes` stay whole from forward to
    backward (embedding and head).
    """

    forward_bytes: int = 0
    backward_bytes: int = 0
    root_bytes: int = 0

    @classmethod
    def of(cls, config: Configuration, held: States) -> GatherBuffers:
        """From the sharding mode; 16-bit numbers travel unless the recipe is fp32."""
        if config.parallel.sharding not in ("fsdp2", "zero3") or config.parallel.data == 1:
            return cls()
        number = 4 if config.training.precision == "fp32" else 2
        unit = held.params.block * number
        root = (held.params.embedding + held.params.head + held.params.last_norm) * number
        reduce = held.params.block * (4 if held.grad_number == 4 else 2)
        # Forward: the unit, its gather buffer and the one before it. Backward: the unit, the next one being gathered
        # with its buffer, the unit's gradients, and the reduce-scatter input of this unit and of the one before.
        return cls(3 * unit, 3 * unit + unit + 2 * reduce, root)


@dataclass(frozen=True, slots=True)
class _Walk:
    config: Configuration
    held: States
    u: Units
    sharding: GatherBuffers
    lasting: dict[MemoryCategory, int]

    def _moment(self, phase: str, what: str, **parts: int) -> Moment:
        found = dict(self.lasting)
        for name, size in parts.items():
            part = MemoryCategory[name.upper()]
            found[part] = found.get(part, 0) + size
        return Moment(phase, what, {part: size for part, size in found.items() if size})

    def _grads(self, count: int) -> int:
        """Bytes of the gradients of `count` parameters as they are kept."""
        return count * self.held.grad_number // self.held.grad_shards

    def _standing(self) -> int:
        """Gradients that exist during forward: views into DDP's buckets, or those of earlier micro-batches."""
        spread = self.config.parallel
        views = spread.sharding == "ddp" and spread.gradient_as_bucket_view
        return self._grads(self.held.params.total) if views or self.config.training.micro_batches > 1 else 0

    def forward(self) -> Iterator[Moment]:
        """The last block, and the loss, with every block's activations piled up."""
        u, extra = self.u, self.sharding
        kept = u.in_flight * u.layers * u.kept_per_block
        casts = u.layers * u.cast_per_block
        communication = extra.forward_bytes + extra.root_bytes
        yield self._moment(
            "forward",
            "last block",
            activations=kept,
            temporaries=u.block_forward,
            cast_weights=casts,
            communication=communication,
            gradients=self._standing(),
        )
        yield self._moment(
            "forward",
            "loss",
            activations=kept + u.loss_kept,
            temporaries=u.loss_forward,
            cast_weights=casts + u.cast_ends,
            communication=extra.root_bytes,
            gradients=self._standing(),
        )

    def backward(self) -> Iterator[Moment]:
        """The loss, then block after block: activations go, gradients come."""
        u, extra, params = self.u, self.sharding, self.held.params
        full = self.config.training.recompute == "full"
        earlier = (u.in_flight - 1) * u.layers * u.kept_per_block
        casts = 0 if full else u.layers * u.cast_per_block
        yield self._moment(
            "backward",
            "loss",
            activations=earlier + u.layers * u.kept_per_block + u.loss_kept,
            temporaries=u.loss_backward,
            cast_weights=casts + u.cast_ends,
            communication=extra.root_bytes,
            gradients=self._standing(),
        )
        head = params.head or (params.embedding if self.config.model.tied else 0)
        for done in range(u.layers):
            left = u.layers - done
            yield self._moment(
                "backward",
                f"block {left} of {u.layers}",
                activations=earlier + left * u.kept_per_block,
                temporaries=u.block_backward,
                cast_weights=u.cast_per_block if full else left * u.cast_per_block,
                communication=extra.backward_bytes + extra.root_bytes,
                gradients=max(self._grads(head + done * params.block), self._standing()),
            )
        yield self._moment(
            "backward",
            "embedding",
            activations=earlier,
            temporaries=params.embedding * self.held.grad_number + u.embedding_output,
            communication=extra.root_bytes,
            gradients=max(self._grads(head + u.layers * params.block), self._standing()),
        )

    def optimizer(self) -> Iterator[Moment]:
        """Everything that lasts, all gradients, and what the step takes besides."""
        gradients = self._grads(self.held.params.total)
        temporary = step_temporaries(self.config, self.held).size_bytes
        yield self._moment("optimizer", "step", gradients=gradients, temporaries=temporary)


_NUMBER = {"fp32": 4, "bf16": 2, "fp8": 1}


def kv_bytes_per_token(model: Model, number_bytes: float = 2, tensor: int = 1) -> int:
    """Bytes of cache per token: ``2 * L * n_kv * d``; with latent attention ``L * (r_kv + d_rope)``, on every rank.

    A rank of a tensor-parallel job holds its share of the key heads, and at least one.
    """
    if model.kv_rank:
        return int(model.layers * (model.kv_rank + model.rope_width) * number_bytes)
    heads = max((model.kv_heads or model.heads) // tensor, 1)
    return int(2 * model.layers * heads * model.width * number_bytes)


def cached_tokens(serve: Serving) -> int:
    """Tokens the cache has room for: whole blocks of every sequence where it is paged."""
    one = serve.context + serve.speculative_tokens
    return serve.batch * (-(-one // serve.block) * serve.block if serve.block else one)


def kv_number_bytes(serve: Serving) -> float:
    """Bytes of one cached number: as stated, else that of the model."""
    return serve.kv_bytes or _NUMBER[serve.precision]


def serving_terms(config: Configuration) -> tuple[Term, ...]:
    """What lasts while serving: weights and cache."""
    assert config.serve is not None
    serve, model, parallel = config.serve, config.model, config.parallel
    count = parameters(model, parallel).total
    number = _NUMBER[serve.precision]
    per_token = kv_bytes_per_token(model, kv_number_bytes(serve), parallel.tensor) // parallel.pipeline
    tokens = cached_tokens(serve)
    shape = "L x (r_kv + d_rope)" if model.kv_rank else "2 x L x n_kv x d_head"
    source = "arXiv:2405.04434 (MLA)" if model.kv_rank else "arXiv:2305.13245 (GQA), arXiv:2309.06180 (paged)"
    formula = f"{shape} x {kv_number_bytes(serve):g} B = {per_token:,} B/token x {tokens:,} tokens"
    whole = f"{number} B x P = {number} x {count:,}"
    return (
        Term(MemoryCategory.WEIGHTS, "weights", count * number, whole, "number of parameters"),
        Term(MemoryCategory.KV_CACHE, "key-value cache", per_token * tokens, formula, source),
    )


def serving_moments(config: Configuration) -> Iterator[Moment]:
    """The prefill of the whole batch, and one decoding step."""
    assert config.serve is not None
    serve, model = config.serve, config.model
    lasting = {term.part: term.size_bytes for term in serving_terms(config)}
    lasting[MemoryCategory.WORKSPACES] = config.gpu.workspace_bytes
    number = max(_NUMBER[serve.precision], 2)
    for phase, length in (("prefill", serve.prompt), ("decode", 1 + serve.speculative_tokens)):
        shapes = Shapes(serve.batch, length, number, number, amp=False, tensor=config.parallel.tensor)
        work = block(model, shapes).forward_peak_bytes(is_trained=False)
        stream = shapes.tokens * model.hidden * number
        yield Moment(phase, "one block", {**lasting, MemoryCategory.TEMPORARIES: work + stream})
        logits = serve.batch * model.vocab // config.parallel.tensor * number
        yield Moment(phase, "last norm and logits", {**lasting, MemoryCategory.TEMPORARIES: logits + 2 * stream})
