"""The plan: the peak, its terms with their formulas, whether it fits, what would fit, and which change frees most."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from timesink.memory_plan import Configuration
from timesink.memory_plan.blocks import Tape, block, loss, shapes_of
from timesink.memory_plan.step import (
    PYTORCH,
    MemoryCategory,
    Moment,
    Term,
    kv_number_bytes,
    moments,
    parameters,
    serving_moments,
    serving_terms,
    states,
    step_temporaries,
    units,
)

KORTHIKANTI = "arXiv:2205.05198"
EAGER = "eager PyTorch, operator by operator (memory_plan/blocks.py)"
_MOST_NAMED = 12  # tensors listed in a formula before "others"
_MOST = 1 << 22  # no batch and no sequence is looked for beyond it


@dataclass(frozen=True, slots=True)
class MemorySaving:
    """One change to the configuration: what it frees at the peak, and what it costs in words."""

    label: str
    freed_bytes: int
    cost: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes on one rank. `terms` sum to `peak_bytes`; the context comes on top: `device_bytes` is both.

    `phases` holds the largest moment of each phase. `most_batch` and `most_sequence` are the largest that fit with all
    else unchanged; 0 where not even one does. What fragmentation adds is not planned.
    """

    config: Configuration
    parameters: int
    phases: tuple[Moment, ...]
    peak: Moment
    terms: tuple[Term, ...]
    changes: tuple[MemorySaving, ...]
    most_batch: int
    most_sequence: int

    @property
    def peak_bytes(self) -> int:
        """What the allocator hands out at the peak."""
        return self.peak.total_bytes

    @property
    def device_bytes(self) -> int:
        """Peak, context and communicator."""
        return self.peak_bytes + self.config.outside_bytes

    @property
    def fits(self) -> bool:
        """Whether peak and context stay within the GPU's memory."""
        return self.device_bytes <= self.config.gpu.memory_bytes

    @property
    def largest(self) -> Term:
        """The largest term at the peak."""
        return max(self.terms, key=lambda term: (term.size_bytes, term.name))


def plan(config: Configuration) -> MemoryPlan:
    """The plan of a configuration."""
    every = moments_of(config)
    peak = max(every, key=lambda moment: moment.total_bytes)
    phases = dict.fromkeys(moment.phase for moment in every)
    largest = tuple(max((m for m in every if m.phase == phase), key=lambda m: m.total_bytes) for phase in phases)
    return MemoryPlan(
        config=config,
        parameters=parameters(config.model, config.parallel).total,
        phases=largest,
        peak=peak,
        terms=terms_of(config, peak),
        changes=_worthwhile(config, peak.total_bytes),
        most_batch=_most(config, _with_batch),
        most_sequence=_most(config, _with_sequence),
    )


def moments_of(config: Configuration) -> tuple[Moment, ...]:
    """Every candidate for the peak."""
    return tuple(moments(config) if config.train else serving_moments(config))


def peak_bytes(config: Configuration) -> int:
    """The planned peak alone."""
    return max(moment.total_bytes for moment in moments_of(config))


def terms_of(config: Configuration, moment: Moment) -> tuple[Term, ...]:
    """Terms in the order of the ledger; those of one category sum to the moment's bytes of it."""
    known = states(config).terms if config.train else serving_terms(config)
    found: list[Term] = []
    for part in MemoryCategory:
        if size := moment.parts.get(part, 0):
            found += _of_part(config, moment, part, size, [term for term in known if term.part is part])
    return tuple(found)


def _of_part(
    config: Configuration, moment: Moment, part: MemoryCategory, size: int, fixed: Iterable[Term]
) -> Iterable[Term]:
    """The terms of a category: those that last, where they are all of it, else what the moment adds."""
    rest = size - sum(term.size_bytes for term in fixed)
    if fixed and not rest:
        return fixed
    match part:
        case MemoryCategory.ACTIVATIONS:
            return _activations(config, size)
        case MemoryCategory.COMMUNICATION:
            formula = "whole weights of the units at work, the next one's, and reduce-scatter inputs"
            gathered = ("gathered weights and gradients", rest, formula, "FSDP2 (fully_shard) source")
            return [*fixed, Term(part, *gathered)] if rest else fixed
        case MemoryCategory.TEMPORARIES:
            return [_temporaries(config, moment, size)]
        case MemoryCategory.WORKSPACES:
            each = config.gpu.workspace_bytes
            row = ("cuBLAS workspaces", f"{size // each} threads x {each:,} B", "at::cuda::getChosenWorkspaceSize")
        case MemoryCategory.CAST_WEIGHTS:
            row = ("autocast's copies of weights", "2 B per weight of a linear not yet gone through", PYTORCH)
        case MemoryCategory.INPUTS:
            images = "batch x 3 x image x image x 4 B, and 2 B for autocast's cast"
            tokens = "batch x sequence x (8 B token + 8 B target)"
            row = ("the batch", images if config.model.kind == "vision" else tokens, "configuration")
        case MemoryCategory.GRADIENTS:
            number = states(config).number
            row = ("gradients so far", f"{number} B x {size // number:,} parameters gone through", PYTORCH)
        case _:
            row = (part.value, "as configured", "configuration")
    name, formula, source = row
    return [Term(part, name, size, formula, source)]


def _activations(config: Configuration, size: int) -> list[Term]:
    """Blocks by what one keeps, then the loss's own."""
    train, u = config.training, units(config)
    shapes = shapes_of(config.model, train, config.parallel)
    selective = train.recompute == "selective"
    blocks = min(size // u.kept_per_block, u.in_flight * u.layers)
    if train.recompute == "full":
        each, source = "its input", KORTHIKANTI
    else:
        each, source = _listed(block(config.model, shapes, selective), shapes.tokens), EAGER
    formula = f"{blocks} blocks x {shapes.tokens:,} tokens x {u.kept_per_block / shapes.tokens:,.0f} B ({each})"
    found = [Term(MemoryCategory.ACTIVATIONS, "kept by blocks", blocks * u.kept_per_block, formula, source)]
    rest = size - blocks * u.kept_per_block
    if rest:
        tape = loss(config.model, shapes, train)
        formula = f"{shapes.tokens:,} tokens x {rest / shapes.tokens:,.0f} B ({_listed(tape, shapes.tokens)})"
        found.append(Term(MemoryCategory.ACTIVATIONS, "kept by last norm, head and loss", rest, formula, EAGER))
    return found if blocks else found[1:]


def _listed(tape: Tape, tokens: int) -> str:
    """Bytes per token of what a tape saves: the first by name, the rest together."""
    saved = tape.saved()
    named = [f"{name} {size / tokens:,.0f}" for name, size in saved[:_MOST_NAMED]]
    others = sum(size for _, size in saved[_MOST_NAMED:])
    return " + ".join([*named, *([f"others {others / tokens:,.0f}"] if others else [])])


def _temporaries(config: Configuration, moment: Moment, size: int) -> Term:
    if moment.phase == "optimizer":
        return step_temporaries(config, states(config))
    if config.train and moment.phase == "backward" and moment.what == "loss":
        formula = "gradient of the log-probabilities and gradient of the logits, 4 B each per token and word"
    elif config.train and config.training.recompute == "full" and moment.phase == "backward":
        formula = "one block run again, its activations and its gradients"
    else:
        formula = f"results and gradients alive at once in {moment.what}, {moment.phase}"
    return Term(MemoryCategory.TEMPORARIES, f"{moment.what} ({moment.phase})", size, formula, EAGER)


def _with_batch(config: Configuration, batch: int) -> Configuration:
    return config.with_train(batch=batch) if config.train else config.with_serve(batch=batch)


def _with_sequence(config: Configuration, sequence: int) -> Configuration:
    if config.train:
        return config.with_train(sequence=sequence)
    return config.with_serve(context=sequence, prompt=min(sequence, config.serving.prompt))


def _most(config: Configuration, with_: Callable[[Configuration, int], Configuration]) -> int:
    """The largest value that fits, by doubling and then halving the interval; peaks grow with it."""

    def fits(value: int) -> bool:
        return peak_bytes(with_(config, value)) + config.outside_bytes <= config.gpu.memory_bytes

    low, high = 0, 1
    while high < _MOST and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _worthwhile(config: Configuration, now: int) -> tuple[MemorySaving, ...]:
    """Changes that free something, most first."""
    candidates = _training_candidates(config) if config.train else _serving_candidates(config)
    found = [MemorySaving(label, now - peak_bytes(other), cost) for label, other, cost in candidates]
    kept = [change for change in found if change.freed_bytes > 0]
    return tuple(sorted(kept, key=lambda change: (-change.freed_bytes, change.label)))


def _serving_candidates(config: Configuration) -> Iterator[tuple[str, Configuration, str]]:
    """What to do, the configuration with it, what it costs."""
    serve = config.serving
    if not serve.kv_bytes or serve.kv_bytes > 1:
        yield "keep the cache in 8 bits", config.with_serve(kv_bytes=1.0), "rounding of keys and values"
    if serve.batch > 1:
        yield "halve the batch", _with_batch(config, serve.batch // 2), "half the sequences at once"
    if serve.precision == "bf16":
        kept = config.with_serve(precision="fp8", kv_bytes=kv_number_bytes(serve))
        yield "quantize weights to 8 bits", kept, "rounding of weights"


def _training_candidates(config: Configuration) -> Iterator[tuple[str, Configuration, str]]:
    """What to do, the configuration with it, what it costs."""
    train, parallel = config.training, config.parallel
    if train.recompute != "full":
        yield "recompute every block", config.with_train(recompute="full"), "one more forward pass per step"
    if train.recompute == "none":
        label = "recompute attention only"
        yield label, config.with_train(recompute="selective"), "one more attention forward per block and step"
    if train.attention == "math":
        yield "use flash attention", config.with_train(attention="flash"), "none known"
    if train.loss == "eager":
        yield f"compute the loss in {train.chunks} chunks", config.with_train(loss="chunked"), "more, smaller kernels"
    if train.batch > 1:
        yield "halve the batch", config.with_train(batch=train.batch // 2), "half the samples per step"
    if train.precision in ("amp", "fp32"):
        yield "store everything in bf16", config.with_train(precision="bf16"), "small updates are rounded away"
    if train.optimizer in ("adam", "adamw"):
        yield "fuse the optimizer", config.with_train(optimizer=f"{train.optimizer}-fused"), "none known"
    if train.optimizer.startswith("adam") and train.optimizer != "adamw-8bit":
        yield "keep optimizer states in 8 bits", config.with_train(optimizer="adamw-8bit"), "rounding of moments"
    if parallel.sharding == "ddp" and not parallel.gradient_as_bucket_view:
        yield "make gradients views of the buckets", config.with_parallel(gradient_as_bucket_view=True), "none known"
    if parallel.data > 1 and parallel.sharding != "fsdp2":
        yield "shard with FSDP2", config.with_parallel(sharding="fsdp2"), "weights are gathered twice per step"
