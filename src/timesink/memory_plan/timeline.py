"""A training step as a walk over its units (embedding, blocks, loss), and the most memory alive on the way.

Every moment is a sum of what lasts (weights, states), what has piled up (activations on the way forward, gradients on
the way back) and what the unit at work needs for itself. The peak is the largest moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from timesink.memory_plan.blocks import Shapes, block, loss, shapes_of
from timesink.memory_plan.config import Configuration, Parallel, Training
from timesink.memory_plan.states import States, states, step_temporaries
from timesink.memory_plan.terms import Part, Tape


@dataclass(frozen=True, slots=True)
class Moment:
    """Bytes by category at one point of a step."""

    phase: str
    what: str
    parts: dict[Part, int] = field(hash=False)

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
    ends = loss(model, shapes, train.chunks if train.loss == "chunked" else 1)
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
        block_backward=_recompute_peak(whole) if full else kept.backward_peak_bytes() + _again(whole, kept),
        loss_kept=(_without_logits(ends, model.vocab, shapes) if fused else ends.saved_bytes) if is_last else 0,
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
    """Full recomputation: the block runs forward again, then back; whichever half needs more, beside its gradient."""
    gradient = whole.ops[-1].output.size_bytes
    return max(whole.forward_peak_bytes() + gradient, whole.saved_bytes + whole.backward_peak_bytes())


def _again(whole: Tape, kept: Tape) -> int:
    """What selective recomputation brings back while one block is gone through."""
    return whole.saved_bytes - kept.saved_bytes


def _without_logits(ends: Tape, vocab: int, shapes: Shapes) -> int:
    return ends.saved_bytes - 4 * shapes.tokens * vocab // shapes.tensor


def moments(config: Configuration) -> Iterator[Moment]:
    """Every candidate for the peak, in the order of a step."""
    held, u = states(config), units(config)
    sharding = Sharding.of(config, held)
    lasting = {
        Part.WEIGHTS: held.total(Part.WEIGHTS),
        Part.OPTIMIZER_STATE: held.total(Part.OPTIMIZER_STATE),
        Part.COMMUNICATION: held.total(Part.COMMUNICATION),
        Part.WORKSPACES: 2 * config.gpu.workspace_bytes,
        Part.INPUTS: inputs_bytes(config),
    }
    walk = _Walk(config, held, u, sharding, lasting)
    yield from walk.forward()
    yield from walk.backward()
    yield from walk.optimizer()


@dataclass(frozen=True, slots=True)
class Sharding:
    """FSDP2 and ZeRO-3: whole copies of one unit's weights and gradients while it is at work.

    `forward_bytes` and `backward_bytes` are buffers besides the shards; `root_bytes` stay whole from forward to
    backward (embedding and head).
    """

    forward_bytes: int = 0
    backward_bytes: int = 0
    root_bytes: int = 0

    @classmethod
    def of(cls, config: Configuration, held: States) -> Sharding:
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
    sharding: Sharding
    lasting: dict[Part, int]

    def _moment(self, phase: str, what: str, **parts: int) -> Moment:
        found = dict(self.lasting)
        for name, size in parts.items():
            part = Part[name.upper()]
            found[part] = found.get(part, 0) + size
        return Moment(phase, what, {part: size for part, size in found.items() if size})

    def _always_views(self) -> bool:
        return self.config.parallel.sharding == "ddp" and self.config.parallel.gradient_as_bucket_view

    def _grads(self, count: int, number: int | None = None) -> int:
        """Gradients of `count` parameters as they are kept."""
        size = self.held.grad_number if number is None else number
        return count * size // self.held.grad_shards

    def _standing(self) -> int:
        """Gradients that stand through forward: views into DDP's buckets, or those of earlier micro-batches."""
        whole = self._grads(self.held.params.total)
        return whole if self._always_views() or self.config.training.micro_batches > 1 else 0

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
