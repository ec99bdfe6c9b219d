"""A training step or a served batch on one rank: what lasts, and the most memory alive on the way.

What lasts (weights, gradients, optimizer state, communication buffers) are `Term`s, with the formula and its source;
they rest on the numbers of parameters of a transformer, piece by piece, on one rank of a tensor-, pipeline- and
expert-parallel job. A step is a walk over its units (embedding, blocks, loss): every moment is a sum of what lasts,
what has piled up (activations on the way forward, gradients on the way back) and what the unit at work needs for
itself. The peak is the largest moment. A served model has four: one block and the end of prefill, and of a decoding
step.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from timesink.memory_plan import Configuration, Model, Parallel, Precision, Serving, Training
from timesink.memory_plan.blocks import Shapes, Tape, block, loss, shapes_of
from timesink.units import bytes_text


class MemoryCategory(StrEnum):
    """What memory is planned for, in the order of the ledger. The first ten are those of a measured ledger."""

    WEIGHTS = "weights"
    CAST_WEIGHTS = "low-precision weight copies"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    TEMPORARIES = "temporaries"
    COMMUNICATION = "communication"
    KV_CACHE = "kv cache"
    INPUTS = "inputs"
    WORKSPACES = "library workspaces"
    CONTEXT = "context and libraries"


@dataclass(frozen=True, slots=True)
class Term:
    """`formula` ends in the numbers put into it; `source` says where it is from."""

    part: MemoryCategory
    name: str
    size_bytes: int
    formula: str
    source: str


PYTORCH = "PyTorch source, read in 2.11"
_ZERO = "ZeRO, arXiv:1910.02054"
_DDP = "torch.nn.parallel.DistributedDataParallel"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts on one rank. `block` is one layer; `layers` how many this rank holds; `head` is 0 where it is tied.

    `linear` of the block's are weights that autocast copies into 16 bits; `experts` of it are a mixture's experts.
    """

    embedding: int
    block: int
    linear: int
    experts: int
    layers: int
    last_norm: int
    head: int

    @property
    def total(self) -> int:
        """All parameters of the rank."""
        return self.embedding + self.block * self.layers + self.last_norm + self.head


def parameters(model: Model, parallel: Parallel) -> Parameters:
    """What one rank holds before any sharding over data-parallel ranks."""
    t, h = parallel.tensor, model.hidden
    norm = h * (2 if model.norm == "layernorm" else 1)
    attention = 2 * h * model.query  # queries and the output
    if model.kv_rank:
        attention += h * (model.kv_rank + model.rope_width) + model.kv_rank * 2 * model.query
    else:
        attention += h * 2 * model.kv
    feedforward = (3 if model.gated else 2) * h * model.feedforward
    experts = model.experts * feedforward // (parallel.expert * t)
    dense = model.shared_experts * feedforward // t if model.experts else feedforward // t
    linear = attention // t + experts + dense
    wide = (2 if model.gated else 1) * model.feedforward
    biases = model.query + 2 * model.kv + h + wide + h if model.bias else 0
    positions = model.max_positions * h if model.positions == "learned" else 0
    patches = (3 * model.patch * model.patch + 1) * h
    words = model.vocab * h // t
    first, last = parallel.stage == 0, parallel.stage == parallel.pipeline - 1
    return Parameters(
        embedding=(patches if model.kind == "vision" else words) + positions if first else 0,
        block=linear + model.experts * h + 2 * norm + biases // t,
        linear=linear,
        experts=experts,
        layers=model.layers // parallel.pipeline,
        last_norm=norm if last else 0,
        head=words if last and not (model.tied and first) else 0,
    )


# Numbers of state per parameter; the other optimizers keep none.
_STATES = {
    **dict.fromkeys(("adam", "adam-fused", "adamw", "adamw-fused", "adamw-8bit"), 2),
    **dict.fromkeys(("sgd-momentum", "lion", "muon"), 1),
}


@dataclass(frozen=True, slots=True)
class States:
    """Bytes per category of one rank, whole-step ones. `number` is the bytes of one weight or gradient.

    `grad_shards` and `state_shards` are the ranks that gradients and states are divided over, 1 where they are whole.
    """

    params: Parameters
    number: int
    grad_shards: int
    state_shards: int
    terms: tuple[Term, ...]

    def total(self, *parts: MemoryCategory) -> int:
        """Bytes of those categories."""
        return sum(term.size_bytes for term in self.terms if term.part in parts)

    def gradients(self, count: int) -> int:
        """Bytes of the gradients of so many parameters, as they are kept."""
        return count * self.number // self.grad_shards


def number_bytes(precision: Precision) -> int:
    """Bytes of one stored weight: autocast and fp8 recipes keep fp32 weights unless a master copy is asked for."""
    return 2 if precision == "bf16" else 4


def states(config: Configuration) -> States:
    """The states of a training rank. DDP's buckets are a second copy of gradients, unless these are views into them."""
    train, parallel = config.training, config.parallel
    params, kind = parameters(config.model, parallel), MemoryCategory
    number = 2 if train.master_weights else number_bytes(train.precision)
    sharding, ranks = parallel.sharding, parallel.data
    weight_shards = ranks if sharding in ("zero3", "fsdp2") else 1
    grad_shards = ranks if sharding in ("zero2", "zero3", "fsdp2") else 1
    state_shards = ranks if sharding in ("zero1", "zero2", "zero3", "fsdp2") else 1
    state_number = 1 if train.optimizer == "adamw-8bit" else 4 if train.master_weights else number
    views = sharding == "ddp" and parallel.gradient_as_bucket_view
    gradients = (
        ("gradients, views into buckets", number, 1, _DDP) if views else ("gradients", number, grad_shards, _ZERO)
    )
    rows = [
        (kind.WEIGHTS, "weights", number, weight_shards, _ZERO),
        (kind.GRADIENTS, *gradients),
        (kind.COMMUNICATION, "gradient buckets", number if sharding == "ddp" and not views else 0, 1, _DDP),
        (
            kind.OPTIMIZER_STATE,
            f"{train.optimizer} state",
            _STATES.get(train.optimizer, 0) * state_number,
            state_shards,
            _ZERO,
        ),
        (kind.OPTIMIZER_STATE, "fp32 master weights", 4 if train.master_weights else 0, state_shards, _ZERO),
    ]
    whole = params.total
    terms = (_term(part, name, whole, each, shards, source) for part, name, each, shards, source in rows if each)
    return States(params, number, grad_shards, state_shards, tuple(terms))


def _term(part: MemoryCategory, name: str, count: int, number: int, shards: int, source: str) -> Term:
    spread, ranks = (f" / {shards}", f" / {shards} ranks") if shards > 1 else ("", "")
    formula = f"{number} B x P{ranks} = {number} x {count:,}{spread}"
    return Term(part, name, int(count * number / shards), formula, source)


def step_temporaries(config: Configuration, held: States) -> Term:
    """What `optimizer.step` allocates and frees: foreach Adam takes the roots of all second moments at once."""
    train = config.training
    if train.optimizer in ("adam", "adamw"):
        count = held.params.total // held.state_shards
        number = 4 if train.master_weights else held.number
        row = ("roots of second moments", count * number, f"{number} B x {count:,}", PYTORCH)
    elif train.optimizer == "muon":
        widest = config.model.hidden * config.model.feedforward
        row = ("Newton-Schulz matmuls", 6 * widest, f"3 x 2 B x {widest:,}", "arXiv:2502.16982")
    else:
        row = ("fused step", 0, f"{train.optimizer} works in place ({bytes_text(0)})", PYTORCH)
    return Term(MemoryCategory.TEMPORARIES, *row)


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
    whole = block(model, shapes)
    kept = block(model, shapes, recompute_attention=True) if train.recompute == "selective" else whole
    recomputed = whole.saved_bytes - kept.saved_bytes  # comes back while one block is gone through
    ends = loss(model, shapes, train)
    is_last = parallel.stage == parallel.pipeline - 1
    residual = shapes.tokens * model.hidden * shapes.residual // shapes.outside
    full = train.recompute == "full"
    params = parameters(model, parallel)
    fused = train.loss == "fused"
    return Units(
        layers=params.layers,
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


def _gathered(config: Configuration, held: States) -> tuple[int, int, int]:
    """FSDP2 and ZeRO-3: buffers besides the shards while one unit is at work, forward and backward, and what stays
    whole from forward to backward (embedding and head). 16-bit numbers travel unless the recipe is fp32.
    """
    if config.parallel.sharding not in ("fsdp2", "zero3") or config.parallel.data == 1:
        return 0, 0, 0
    number, params = 4 if config.training.precision == "fp32" else 2, held.params
    unit, reduced = params.block * number, params.block * held.number
    # Forward: the unit, its gather buffer and the one before it. Backward: the unit, the next one being gathered with
    # its buffer, the unit's gradients, and the reduce-scatter input of this unit and of the one before.
    return 3 * unit, 4 * unit + 2 * reduced, (params.embedding + params.head + params.last_norm) * number


def moments(config: Configuration) -> Iterator[Moment]:
    """Every candidate for the peak, in the order of a step: forward the last block and the loss, with every block's
    activations piled up; backward the loss, then block after block, as activations go and gradients come; the step.
    """
    kind, train, spread = MemoryCategory, config.training, config.parallel
    held, u = states(config), units(config)
    params, full = held.params, train.recompute == "full"
    forward, backward, root = _gathered(config, held)
    kept, casts = u.layers * u.kept_per_block, u.layers * u.cast_per_block
    earlier = (u.in_flight - 1) * kept
    head = params.head or (params.embedding if config.model.tied else 0)
    every = held.gradients(params.total)
    views = spread.sharding == "ddp" and spread.gradient_as_bucket_view
    # Gradients that exist during forward: views into DDP's buckets, or those of earlier micro-batches.
    standing = every if views or train.micro_batches > 1 else 0
    lasting = {
        kind.WEIGHTS: held.total(kind.WEIGHTS),
        kind.OPTIMIZER_STATE: held.total(kind.OPTIMIZER_STATE),
        kind.COMMUNICATION: held.total(kind.COMMUNICATION),
        kind.WORKSPACES: 2 * config.gpu.workspace_bytes,
        kind.INPUTS: inputs_bytes(config),
    }

    def moment(phase: str, what: str, *sizes: int) -> Moment:
        parts = dict(lasting)
        for part, size in zip(_CHANGING, sizes, strict=True):
            parts[part] = parts.get(part, 0) + size
        return Moment(phase, what, {part: size for part, size in parts.items() if size})

    def back(done: int) -> int:
        return max(held.gradients(head + done * params.block), standing)

    # What, then bytes of activations, temporaries, cast weights, communication and gradients.
    yield moment("forward", "last block", earlier + kept, u.block_forward, casts, forward + root, standing)
    ends = casts + u.cast_ends
    yield moment("forward", "loss", earlier + kept + u.loss_kept, u.loss_forward, ends, root, standing)
    ends = u.cast_ends if full else ends
    yield moment("backward", "loss", earlier + kept + u.loss_kept, u.loss_backward, ends, root, standing)
    for left in range(u.layers, 0, -1):
        here, cast = earlier + left * u.kept_per_block, u.cast_per_block * (1 if full else left)
        what = f"block {left} of {u.layers}"
        yield moment("backward", what, here, u.block_backward, cast, backward + root, back(u.layers - left))
    embedding = params.embedding * held.number + u.embedding_output
    yield moment("backward", "embedding", earlier, embedding, 0, root, back(u.layers))
    yield moment("optimizer", "step", 0, step_temporaries(config, held).size_bytes, 0, 0, every)


_CHANGING = (
    MemoryCategory.ACTIVATIONS,
    MemoryCategory.TEMPORARIES,
    MemoryCategory.CAST_WEIGHTS,
    MemoryCategory.COMMUNICATION,
    MemoryCategory.GRADIENTS,
)
_NUMBER = {"fp32": 4, "bf16": 2, "fp8": 1}


def kv_bytes_per_token(model: Model, number_bytes: float = 2, tensor: int = 1) -> int:
    """Bytes of cache per token: ``2 * L * n_kv * d``; with latent attention ``L * (r_kv + d_rope)``, on every rank.

    A rank of a tensor-parallel job holds its share of the key heads, and at least one.
    """
    if model.kv_rank:
        return int(model.layers * (model.kv_rank + model.rope_width) * number_bytes)
    heads = max((model.kv_heads or model.heads) // tensor, 1)
    return int(2 * model.layers * heads * model.width * number_bytes)


def kv_number_bytes(serve: Serving) -> float:
    """Bytes of one cached number: as stated, else that of the model."""
    return serve.kv_bytes or _NUMBER[serve.precision]


def serving_terms(config: Configuration) -> tuple[Term, ...]:
    """What lasts while serving: weights, and the cache, which is whole blocks of every sequence where it is paged."""
    serve, model, parallel = config.serving, config.model, config.parallel
    count, number = parameters(model, parallel).total, _NUMBER[serve.precision]
    per_token = kv_bytes_per_token(model, kv_number_bytes(serve), parallel.tensor) // parallel.pipeline
    one = serve.context + serve.speculative_tokens
    tokens = serve.batch * (-(-one // serve.block) * serve.block if serve.block else one)
    shape, source = "2 x L x n_kv x d_head", "arXiv:2305.13245 (GQA), arXiv:2309.06180 (paged)"
    if model.kv_rank:
        shape, source = "L x (r_kv + d_rope)", "arXiv:2405.04434 (MLA)"
    formula = f"{shape} x {kv_number_bytes(serve):g} B = {per_token:,} B/token x {tokens:,} tokens"
    whole = f"{number} B x P = {number} x {count:,}"
    return (
        Term(MemoryCategory.WEIGHTS, "weights", count * number, whole, "number of parameters"),
        Term(MemoryCategory.KV_CACHE, "key-value cache", per_token * tokens, formula, source),
    )


def serving_moments(config: Configuration) -> Iterator[Moment]:
    """The prefill of the whole batch, and one decoding step."""
    serve, model = config.serving, config.model
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
