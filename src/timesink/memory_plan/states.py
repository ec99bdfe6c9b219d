"""Weights, gradients, optimizer state and communication buffers of one rank: what lasts longer than a layer.

Each is a `Term`: bytes of one category, with the formula and its source. They rest on the numbers of parameters of a
transformer, piece by piece, on one rank of a tensor-, pipeline- and expert-parallel job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from timesink.memory_plan.config import Configuration, Model, OptimizerName, Parallel, Precision, Training
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


ZERO = "ZeRO, arXiv:1910.02054"
KORTHIKANTI = "arXiv:2205.05198"
EAGER = "eager PyTorch, operator by operator (memory_plan/blocks.py)"
PYTORCH = "PyTorch source, read in 2.11"


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
    t = parallel.tensor
    norm = model.hidden * (2 if model.norm == "layernorm" else 1)
    linear, experts = _attention(model) // t, 0
    ffn = _feedforward(model)
    if model.experts:
        experts = model.experts * ffn // (parallel.expert * t)
        linear += experts + model.shared_experts * ffn // t
        extra = model.experts * model.hidden
    else:
        linear += ffn // t
        extra = 0
    block = linear + extra + 2 * norm + _biases(model) // t
    first, last = parallel.stage == 0, parallel.stage == parallel.pipeline - 1
    head = model.vocab * model.hidden // t
    return Parameters(
        embedding=_embedding(model, t) if first else 0,
        block=block,
        linear=linear,
        experts=experts,
        layers=model.layers // parallel.pipeline,
        last_norm=norm if last else 0,
        head=head if last and not (model.tied and first) else 0,
    )


def _embedding(model: Model, tensor: int) -> int:
    positions = model.max_positions * model.hidden if model.positions == "learned" else 0
    if model.kind == "vision":
        return (3 * model.patch * model.patch + 1) * model.hidden + positions
    return model.vocab * model.hidden // tensor + positions


def _attention(model: Model) -> int:
    h, query = model.hidden, model.query
    if model.kv_rank:
        latent = h * (model.kv_rank + model.rope_width) + model.kv_rank * 2 * query
        return h * query + latent + query * h
    return h * (query + 2 * model.kv) + query * h


def _feedforward(model: Model) -> int:
    return (3 if model.gated else 2) * model.hidden * model.feedforward


def _biases(model: Model) -> int:
    if not model.bias:
        return 0
    wide = (2 if model.gated else 1) * model.feedforward
    return model.query + 2 * model.kv + model.hidden + wide + model.hidden


# Bytes of state per parameter, as a multiple of the bytes of one state number, and what a foreach step allocates.
_STATES: dict[OptimizerName, float] = {
    "sgd": 0,
    "sgd-momentum": 1,
    "adam": 2,
    "adam-fused": 2,
    "adamw": 2,
    "adamw-fused": 2,
    "adamw-8bit": 2,
    "adafactor": 0,
    "lion": 1,
    "muon": 1,
}
_FOREACH = ("adam", "adamw")


@dataclass(frozen=True, slots=True)
class States:
    """Bytes per category of one rank, whole-step ones. `grad_number` and `weight_number` are bytes of one number.

    `grad_shards` and `state_shards` are the ranks that gradients and states are divided over, 1 where they are whole.
    """

    params: Parameters
    weight_number: int
    grad_number: int
    grad_shards: int
    state_shards: int
    terms: tuple[Term, ...]

    def total(self, *parts: MemoryCategory) -> int:
        """Bytes of those categories."""
        return sum(term.size_bytes for term in self.terms if term.part in parts)


def number_bytes(precision: Precision) -> int:
    """Bytes of one stored weight: autocast and fp8 recipes keep fp32 weights unless a master copy is asked for."""
    return 2 if precision == "bf16" else 4


def states(config: Configuration) -> States:
    """The states of a training rank."""
    train, parallel = config.training, config.parallel
    params = parameters(config.model, parallel)
    weight = 2 if train.master_weights else number_bytes(train.precision)
    weight_shards, grad_shards, state_shards = _shards(parallel)
    whole = params.total
    terms = [
        _term(MemoryCategory.WEIGHTS, "weights", whole, weight, weight_shards, ZERO),
        *_gradient_terms(whole, weight, grad_shards, parallel),
        *_state_terms(whole, weight, state_shards, train),
    ]
    return States(params, weight, weight, grad_shards, state_shards, tuple(terms))


def _shards(parallel: Parallel) -> tuple[int, int, int]:
    """Over how many ranks weights, gradients and states are divided."""
    n = parallel.data
    match parallel.sharding:
        case "zero1":
            return 1, 1, n
        case "zero2":
            return 1, n, n
        case "zero3" | "fsdp2":
            return n, n, n
        case _:
            return 1, 1, 1


def _term(part: MemoryCategory, name: str, count: int, number: float, shards: int, source: str) -> Term:
    size = int(count * number / shards)
    per = f"{number:g} B x P" + (f" / {shards} ranks" if shards > 1 else "")
    return Term(part, name, size, f"{per} = {number:g} x {count:,}{f' / {shards}' if shards > 1 else ''}", source)


def _gradient_terms(whole: int, number: int, shards: int, parallel: Parallel) -> list[Term]:
    """Gradients, and DDP's buckets, which are a second copy of them unless gradients are views into the buckets."""
    source = "torch.nn.parallel.DistributedDataParallel"
    if parallel.sharding == "ddp" and parallel.gradient_as_bucket_view:
        term = _term(MemoryCategory.GRADIENTS, "gradients, views into buckets", whole, number, 1, source)
        return [term]
    found = [_term(MemoryCategory.GRADIENTS, "gradients", whole, number, shards, ZERO)]
    if parallel.sharding == "ddp":
        found.append(_term(MemoryCategory.COMMUNICATION, "gradient buckets", whole, number, 1, source))
    return found


def _state_terms(whole: int, weight: int, shards: int, train: Training) -> list[Term]:
    name = train.optimizer
    number = 1 if name == "adamw-8bit" else (4 if train.master_weights else weight)
    found = [_term(MemoryCategory.OPTIMIZER_STATE, f"{name} state", whole, _STATES[name] * number, shards, ZERO)]
    if train.master_weights:
        found.append(_term(MemoryCategory.OPTIMIZER_STATE, "fp32 master weights", whole, 4, shards, ZERO))
    return [term for term in found if term.size_bytes]


def step_temporaries(config: Configuration, held: States) -> Term:
    """What `optimizer.step` allocates and frees: foreach Adam takes the roots of all second moments at once."""
    train = config.training
    count = held.params.total // held.state_shards
    number = 4 if train.master_weights else held.weight_number
    if train.optimizer in _FOREACH:
        return Term(
            MemoryCategory.TEMPORARIES, "roots of second moments", count * number, f"{number} B x {count:,}", PYTORCH
        )
    if train.optimizer == "muon":
        widest = config.model.hidden * config.model.feedforward
        return Term(
            MemoryCategory.TEMPORARIES,
            "Newton-Schulz products",
            6 * widest,
            f"3 x 2 B x {widest:,}",
            "arXiv:2502.16982",
        )
    return Term(
        MemoryCategory.TEMPORARIES, "fused step", 0, f"{train.optimizer} works in place ({bytes_text(0)})", PYTORCH
    )
