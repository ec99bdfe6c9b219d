"""What the rules on idle time share: one fact per device, a finding where its share of the step passes the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from timesink.diagnosis.rule import Rule
from timesink.diagnosis.verdicts import Bottleneck, Claim, Clear, Evidence, Finding, Found, Quantity, Verdict, Where
from timesink.measures.idle.blamed_time import BlamedTime
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    EVENT_WAITS,
    FRAMES,
    HOST_OPS,
    PROFILER_OVERHEAD,
    RANGES,
    SOURCES,
    SYNCS,
)
from timesink.model.trace import Trace
from timesink.units import share_text, time_text
from timesink.whatif.changes.host import ScaleHost
from timesink.whatif.edit import Target

BLAME_READS: Final = (SOURCES, RANGES, HOST_OPS, FRAMES, PROFILER_OVERHEAD, SYNCS, EVENT_WAITS)
"""What idle blame reads where it was recorded, besides device work and CUDA calls."""

idle_rule: Final = partial(Rule, needs=(DEVICE_OPS, API_CALLS), reads=BLAME_READS)
"""Declares a rule on idle time: the tables that it reads."""


@dataclass(frozen=True, slots=True)
class IdlePattern:
    """A rule that is told by idle time of its own alone. `time` measures that time per device; `subject` ends the
    sentence "device 0 waits 2.40 ms of the 12.3 ms step for ..."."""

    time: Callable[[Trace], tuple[BlamedTime, ...]]
    bottleneck: Bottleneck
    label: str
    how: str
    subject: str
    advice: str
    verify: str


def pattern_verdict(pattern: IdlePattern, trace: Trace, limit: float) -> Verdict:
    """Found for each device whose idle time of the pattern's causes passes the limit."""

    def finding(part: BlamedTime, evidence: Evidence) -> Finding:
        place = named(part)
        return Finding(
            message=f"{waits(part, limit)} for {pattern.subject}" + (f", most of it at {place}" if place else ""),
            bottleneck=pattern.bottleneck,
            where=place_of(part),
            evidence=(evidence,),
            advice=pattern.advice,
            verify=pattern.verify,
            claim=Claim({part.device: part.intervals}),
            change=ScaleHost(Target("windows", windows=part.host), 0.0),
        )

    return idle_verdict(pattern.time(trace), limit, pattern.label, pattern.how, finding)


def idle_verdict(
    blamed: Iterable[BlamedTime],
    limit: float,
    label: str,
    how: str,
    finding: Callable[[BlamedTime, Evidence], Finding],
) -> Verdict:
    """Found for each device whose idle time passes `limit` (a share of the step); else clear, with every figure."""
    evidences, found = [], []
    for part in blamed:
        evidence = Evidence(
            f"{label} of device {part.device[1]}",
            Quantity(part.share, "ratio"),
            how,
            limit=Quantity(limit, "ratio"),
            table="device_ops",
            rows=part.rows,
        )
        evidences.append(evidence)
        if part.share > limit:
            found.append(finding(part, evidence))
    return Found(tuple(found)) if found else Clear(tuple(evidences))


def place_of(part: BlamedTime) -> Where:
    """Where most of the time goes, as far as names were recorded."""
    rank, device = part.device
    return Where(rank=rank, device=device, thread=part.thread, range=part.range, op=part.host_op)


def named(part: BlamedTime) -> str:
    """The innermost name of that place: ``aten::item in range forward on thread 12``; '' where nothing is known."""
    inner = part.host_op or part.frame or part.call
    words = [inner] if inner else []
    if part.range:
        words.append(f"in range {part.range}" if words else f"range {part.range}")
    if part.thread is not None:
        words.append(f"on thread {part.thread}" if words else f"thread {part.thread}")
    return " ".join(words)


def waits(part: BlamedTime, limit: float) -> str:
    """``device 0 waits 2.40 ms of the 12.3 ms step (19.5 %, limit 3.00 %)``."""
    return (
        f"device {part.device[1]} waits {time_text(part.per_step_ns)} of the {time_text(part.step_ns)} {part.period} "
        f"({share_text(part.share)}, limit {share_text(limit)})"
    )
