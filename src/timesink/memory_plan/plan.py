"""The plan: the peak, its terms, whether it fits, what would fit, and which single change frees most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from timesink.memory_plan.config import Configuration
from timesink.memory_plan.explain import terms_of
from timesink.memory_plan.parameters import parameters
from timesink.memory_plan.serving import kv_number_bytes, serving_moments
from timesink.memory_plan.terms import Part, Term
from timesink.memory_plan.timeline import Moment, moments

_MOST = 1 << 22


@dataclass(frozen=True, slots=True)
class Change:
    """One change to the configuration: what it frees at the peak, and what it costs in words."""

    label: str
    freed_bytes: int
    cost: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Bytes on one rank. `terms` sum to `peak_bytes`; the context comes on top: `device_bytes` is both.

    `phases` holds the largest moment of each phase. `most_batch` and `most_sequence` are the largest that fit with all
    else unchanged; 0 where not even one does. What fragmentation adds is not planned.
    """

    config: Configuration
    parameters: int
    phases: tuple[Moment, ...]
    peak: Moment
    terms: tuple[Term, ...]
    changes: tuple[Change, ...]
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

    def of(self, part: Part) -> int:
        """Bytes of a category at the peak."""
        return self.peak.parts.get(part, 0)


def plan(config: Configuration) -> Plan:
    """The plan of a configuration."""
    every = moments_of(config)
    peak = max(every, key=lambda moment: moment.total_bytes)
    phases = dict.fromkeys(moment.phase for moment in every)
    largest = tuple(max((m for m in every if m.phase == phase), key=lambda m: m.total_bytes) for phase in phases)
    return Plan(
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


def _with_batch(config: Configuration, batch: int) -> Configuration:
    if config.train:
        return config.with_train(batch=batch)
    assert config.serve
    return replace(config, serve=replace(config.serve, batch=batch))


def _with_sequence(config: Configuration, sequence: int) -> Configuration:
    if config.train:
        return config.with_train(sequence=sequence)
    assert config.serve
    return replace(config, serve=replace(config.serve, context=sequence, prompt=min(sequence, config.serve.prompt)))


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


def _worthwhile(config: Configuration, now: int) -> tuple[Change, ...]:
    """Changes that free something, most first."""
    found = [Change(label, now - peak_bytes(other), cost) for label, other, cost in _candidates(config)]
    kept = [change for change in found if change.freed_bytes > 0]
    return tuple(sorted(kept, key=lambda change: (-change.freed_bytes, change.label)))


def _candidates(config: Configuration) -> Iterator[tuple[str, Configuration, str]]:
    if config.train:
        yield from _training_candidates(config)
    serve = config.serve
    if serve is not None:
        if not serve.kv_bytes or serve.kv_bytes > 1:
            other = replace(config, serve=replace(serve, kv_bytes=1.0))
            yield "keep the cache in 8 bits", other, "rounding of keys and values"
        if serve.batch > 1:
            yield "halve the batch", _with_batch(config, serve.batch // 2), "half the sequences at once"
        if serve.precision == "bf16":
            kept = replace(serve, precision="fp8", kv_bytes=kv_number_bytes(serve))
            yield "quantise weights to 8 bits", replace(config, serve=kept), "rounding of weights"


def _training_candidates(config: Configuration) -> Iterator[tuple[str, Configuration, str]]:
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
