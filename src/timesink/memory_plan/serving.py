"""Serving: weights, the KV cache, and what prefill and decode need besides."""

from __future__ import annotations

from collections.abc import Iterator

from timesink.memory_plan.blocks import Shapes, block
from timesink.memory_plan.config import Configuration, Model, Serving
from timesink.memory_plan.states import parameters
from timesink.memory_plan.terms import Part, Term
from timesink.memory_plan.timeline import Moment

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
    serve, model, parallel = _serve(config), config.model, config.parallel
    count = parameters(model, parallel).total
    number = _NUMBER[serve.precision]
    per_token = kv_bytes_per_token(model, kv_number_bytes(serve), parallel.tensor) // parallel.pipeline
    tokens = cached_tokens(serve)
    shape = "L x (r_kv + d_rope)" if model.kv_rank else "2 x L x n_kv x d_head"
    source = "arXiv:2405.04434 (MLA)" if model.kv_rank else "arXiv:2305.13245 (GQA), arXiv:2309.06180 (paged)"
    formula = f"{shape} x {kv_number_bytes(serve):g} B = {per_token:,} B/token x {tokens:,} tokens"
    return (
        Term(Part.WEIGHTS, "weights", count * number, f"{number} B x P = {number} x {count:,}", "number of parameters"),
        Term(Part.KV_CACHE, "key-value cache", per_token * tokens, formula, source),
    )


def serving_moments(config: Configuration) -> Iterator[Moment]:
    """The prefill of the whole batch, and one decoding step."""
    serve, model = _serve(config), config.model
    lasting = {term.part: term.size_bytes for term in serving_terms(config)}
    lasting[Part.WORKSPACES] = config.gpu.workspace_bytes
    number = max(_NUMBER[serve.precision], 2)
    for phase, length in (("prefill", serve.prompt), ("decode", 1 + serve.speculative_tokens)):
        shapes = Shapes(serve.batch, length, number, number, amp=False, tensor=config.parallel.tensor)
        work = block(model, shapes).forward_peak_bytes(is_trained=False)
        stream = shapes.tokens * model.hidden * number
        yield Moment(phase, "one block", {**lasting, Part.TEMPORARIES: work + stream})
        logits = serve.batch * model.vocab // config.parallel.tensor * number
        yield Moment(phase, "last norm and logits", {**lasting, Part.TEMPORARIES: logits + 2 * stream})


def _serve(config: Configuration) -> Serving:
    assert config.serve is not None
    return config.serve
