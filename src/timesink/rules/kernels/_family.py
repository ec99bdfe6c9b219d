"""What rules on wasted kernel time share: a fact per device, a finding where the time a fix saves passes a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from timesink.diagnosis.places import place_of
from timesink.diagnosis.rule import HEALTHY, Limit, Rule, applicable, check_of
from timesink.diagnosis.verdicts import Bottleneck, Claim, Clear, Evidence, Finding, Found, NotApplicable, Quantity
from timesink.diagnosis.words import of_period
from timesink.fixes.fix import Fix
from timesink.measures.counters.sampled import sampled
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.model.record import dataclass
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    DEVICES,
    FRAMES,
    GENERATED_KERNELS,
    GPU_METRICS,
    GRAPH_NODES,
    HOST_OPS,
    HOST_STACKS,
    RANGES,
)
from timesink.model.trace import Trace
from timesink.whatif.change import Case
from timesink.whatif.changes.kernels import ShortenKernels

LINE_READS: Final = (HOST_OPS, FRAMES, HOST_STACKS, GRAPH_NODES, GENERATED_KERNELS)
"""What the line behind a kernel is taken from, where it was recorded."""

kernel_rule: Final = partial(Rule, needs=(DEVICE_OPS,), reads=(*LINE_READS, API_CALLS, RANGES, DEVICES, GPU_METRICS))
"""Declares a rule on the kernels of a step: the tables that kernel facts and steps read."""

ONE_PERCENT: Final = Limit.ratio(0.01, "less than one step in a hundred is won back", HEALTHY)
"""The saving from which on a fix that costs one line is worth making."""


def saved_share(label: str, trace: Trace, kernels: ShortenKernels, saved_ns: float, how: str, limit: float) -> Evidence:
    """A time that a change of kernels saves, as a share of the step."""
    step_ns = period_ns(trace, kernels.device)
    share = Quantity(saved_ns / step_ns if step_ns else 0.0, "ratio")
    return Evidence(label, share, how, Quantity(limit, "ratio"), "device_ops", kernels.longest(trace))


Details = Callable[[ShortenKernels], tuple[str, tuple[Evidence, ...]]]
"""Words that end the sentence on some kernels, and evidence to follow the common one."""


@dataclass(frozen=True, slots=True)
class KernelPattern:
    """`subject` are the kernels ("casts between types"), `how` says how they were found and what the fix leaves."""

    bottleneck: Bottleneck
    subject: str
    how: str
    advice: str
    verify: str
    fix: Fix | None = None

    @property
    def noun(self) -> str:
        """The subject where no verb follows."""
        return self.subject.rstrip(",")


def kernel_verdict(
    trace: Trace,
    pattern: KernelPattern,
    changes: Iterable[ShortenKernels],
    limit: float,
    details: Details = lambda _: ("", ()),
) -> Found | Clear | NotApplicable:
    """Found for each change whose expected saving passes `limit`, a share of the step; else clear."""
    judged = (_judge(trace, pattern, kernels, limit, details) for kernels in changes)
    return applicable(judged, f"no kernel ran that could belong to {pattern.noun}")


def pattern_rule(
    code: str,
    module: str,
    pattern: KernelPattern,
    changes: Callable[[Trace], Iterable[ShortenKernels]],
    limit: Limit,
    reference: str,
) -> Rule:
    """The rule of a module that has nothing but a pattern of kernels and their change, and `limit` to what it saves."""
    check = check_of(module, "saved_ratio", lambda trace, least: kernel_verdict(trace, pattern, changes(trace), least))
    return kernel_rule(code, check, limits={"saved_ratio": limit}, references=(reference,))


def _judge(
    trace: Trace, pattern: KernelPattern, kernels: ShortenKernels, limit: float, details: Details
) -> Finding | Evidence:
    saved_ns = saved_per_step_ns(trace, kernels, Case.EXPECTED)
    evidence = saved_share(
        f"time saved in {pattern.subject} of device {kernels.device[1]}", trace, kernels, saved_ns, pattern.how, limit
    )
    if not evidence.is_over:
        return evidence
    kernels_ns = per_step_ns(trace, kernels.device, kernels.whole(trace))
    words, more = details(kernels)
    return Finding(
        message=f"{pattern.subject} take {of_period(trace, kernels.device, kernels_ns)} on device {kernels.device[1]}"
        + (", and make others longer" if saved_ns > kernels_ns else "")
        + (f": {words}" if words else ""),
        bottleneck=pattern.bottleneck,
        where=place_of(trace, kernels),
        evidence=(
            evidence,
            Evidence(
                f"{pattern.noun}, {kernels.rows.size} in all",
                Quantity.ms(kernels_ns),
                "union of the kernels, per steady step",
            ),
            *more,
            *_sampled(trace, kernels),
        ),
        advice=pattern.advice,
        verify=pattern.verify,
        claim=Claim({kernels.device: kernels.saved(trace, Case.HOPEFUL)}),
        change=kernels,
        fix=pattern.fix,
    )


def _sampled(trace: Trace, kernels: ShortenKernels) -> tuple[Evidence, ...]:
    """What counters that were sampled along the timeline say of the GPU while these kernels ran."""
    return tuple(
        Evidence(
            f"{mean.what} while they run", Quantity(mean.share, "ratio"), f"{mean.samples} samples", table="gpu_metrics"
        )
        for mean in sampled(trace, kernels.device, kernels.whole(trace))
    )
