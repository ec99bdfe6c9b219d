"""What rules on wasted kernel time share: a fact per device, a finding where the time a fix saves passes a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import polars as pl

from timesink.diagnosis.rule import Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Evidence,
    Finding,
    Found,
    Limit,
    NotApplicable,
    Quantity,
    Verdict,
    Where,
)
from timesink.measures.kernels.facts import Shortened, kernel_facts
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.whatif.graph import Case

kernel_rule: Final = partial(Rule, needs=(DEVICE_OPS,), reads=(API_CALLS, HOST_OPS, RANGES, DEVICES))
"""Declares a rule on the kernels of a step: the tables that kernel facts and steps read."""

ONE_PERCENT: Final = Limit(
    default=0.01,
    unit="ratio",
    why="less than one step in a hundred is won back",
    source="benchmarks/faults: healthy programs stay under it",
)
"""The saving from which on a fix that costs one line is worth making."""


@dataclass(frozen=True, slots=True)
class KernelPattern:
    """`subject` are the kernels ("casts between types"), `how` says how they were found and what the fix leaves."""

    bottleneck: Bottleneck
    subject: str
    how: str
    advice: str
    verify: str

    @property
    def noun(self) -> str:
        """The subject where no verb follows."""
        return self.subject.rstrip(",")


def kernel_verdict(
    trace: Trace,
    pattern: KernelPattern,
    parts: Iterable[Shortened],
    limit: float,
    extra: Callable[[Shortened], tuple[str, tuple[Evidence, ...]]] | None = None,
) -> Verdict:
    """Found for each device where the expected saving passes `limit`, a share of the step; else clear.

    `extra` gives words to end the sentence with, and further facts.
    """
    facts_seen, found = [], []
    for part in parts:
        step_ns = period_ns(trace, part.device)
        saved_ns = part.saved_per_step_ns(trace, Case.EXPECTED)
        share = saved_ns / step_ns if step_ns else 0.0
        evidence = Evidence(
            f"time saved in {pattern.subject} of device {part.device[1]}",
            Quantity(share, "ratio"),
            pattern.how,
            limit=Quantity(limit, "ratio"),
            table="device_ops",
            rows=part.longest(trace),
        )
        facts_seen.append(evidence)
        if share > limit:
            found.append(_finding(trace, pattern, part, evidence, extra))
    if not facts_seen:
        return NotApplicable(f"no kernel ran that could belong to {pattern.noun}")
    return Found(tuple(found)) if found else Clear(tuple(facts_seen))


def _finding(
    trace: Trace,
    pattern: KernelPattern,
    part: Shortened,
    evidence: Evidence,
    extra: Callable[[Shortened], tuple[str, tuple[Evidence, ...]]] | None,
) -> Finding:
    whole_ns, step_ns = per_step_ns(trace, part.device, part.whole(trace)), period_ns(trace, part.device)
    value = Quantity(whole_ns / NS_PER_MS, "ms")
    words, more = extra(part) if extra else ("", ())
    limit = evidence.limit.value if evidence.limit else 0.0
    return Finding(
        message=f"{pattern.subject} take {time_text(whole_ns)} of the {time_text(step_ns)} {period_name(trace)} "
        f"on device {part.device[1]}; {share_text(evidence.measured.value)} of it can go "
        f"(limit {share_text(limit)})" + (f": {words}" if words else ""),
        bottleneck=pattern.bottleneck,
        where=place_of(trace, part),
        evidence=(
            evidence,
            Evidence(f"{pattern.noun}, {part.rows.size} in all", value, "union of the kernels, per steady step"),
            *more,
        ),
        advice=pattern.advice,
        verify=pattern.verify,
        claim=Claim({part.device: part.saved(trace, Case.HOPEFUL)}),
        stated=saving(trace, part),
    )


def saving(trace: Trace, part: Shortened) -> Quantity:
    """What the device's own time per step shrinks by. A profiler slows the host, not kernels: in a profile of a step
    that the device bounds, the host often seems to leave no room for a shorter device step, so no replay is asked."""
    low, value, high = (part.saved_per_step_ns(trace, case) / NS_PER_MS for case in Case)
    return Quantity(value, "ms", low=low, high=high)


def place_of(trace: Trace, part: Shortened) -> Where:
    """The kernel name and the operator with the most of the time that goes."""
    frame = kernel_facts(trace).frame
    weight = pl.DataFrame({"row": part.rows, "gone": 1.0 - part.keep[Case.EXPECTED.value]})
    mine = frame.join(weight, on="row", how="inner").with_columns(pl.col("length") * pl.col("gone"))
    names = trace.get(DEVICE_OPS)["name"]
    top = mine.group_by("name", "op").agg(pl.col("length").sum(), pl.col("row").min())
    top = top.sort("length", "row", descending=[True, False])
    rank, device = part.device
    if not top.height:
        return Where(rank=rank, device=device)
    kernel = str(names[int(top["row"][0])])
    return Where(rank=rank, device=device, op=_text(top["op"][0]), kernel=kernel)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
