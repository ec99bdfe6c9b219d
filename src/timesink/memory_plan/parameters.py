"""Parameters of a transformer, piece by piece, on one rank of a tensor-, pipeline- and expert-parallel job."""

from __future__ import annotations

from dataclasses import dataclass

from timesink.memory_plan.config import Model, Parallel


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
