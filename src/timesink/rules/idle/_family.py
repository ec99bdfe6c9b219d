"""What the rules on idle time share: one fact per device, a finding where its share of the step passes the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from timesink.diagnosis.rule import Limit, Rule, check_of, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict, Where
from timesink.diagnosis.words import of_period
from timesink.fixes import table as fixes
from timesink.fixes.fix import Fix
from timesink.measures.idle.blamed_time import BlamedTime
from timesink.model.names import matches
from timesink.model.record import dataclass
from timesink.model.schema import Table
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    EVENT_WAITS,
    FRAMES,
    GENERATED_KERNELS,
    GRAPH_NODES,
    HOST_OPS,
    HOST_STACKS,
    OS_CALLS,
    PROFILER_OVERHEAD,
    RANGES,
    SOURCES,
    SYNCS,
)
from timesink.model.trace import Trace
from timesink.whatif.change import Change, Target

BLAME_READS: Final = (
    HOST_STACKS, SOURCES, RANGES, HOST_OPS, FRAMES, OS_CALLS, PROFILER_OVERHEAD, SYNCS, EVENT_WAITS, GRAPH_NODES,
    GENERATED_KERNELS,
)  # fmt: skip
"""What idle blame reads where it was recorded, besides device work and CUDA calls."""

_NEEDS: Final = (DEVICE_OPS, API_CALLS)
idle_rule: Final = partial(Rule, needs=_NEEDS, reads=BLAME_READS)
"""Declares a rule on idle time: the tables that it reads."""


def pattern_rule(
    code: str, module: str, pattern: IdlePattern, limit: Limit, reference: str, needs: tuple[Table, ...] = _NEEDS
) -> Rule:
    """The rule of a module that has nothing but a pattern of idle time, and `limit` to the share of it."""
    check = check_of(module, "idle_ratio", partial(pattern_verdict, pattern))
    return idle_rule(code, check, needs=needs, limits={"idle_ratio": limit}, references=(reference,))


@dataclass(frozen=True, slots=True)
class IdlePattern:
    """A rule for which the idle time of its own causes is all there is to measure. `time` gives that time per device;
    `subject` ends the sentence "device 0 waits 2.40 ms of the 12.3 ms step for ...". `whole` names ranges of the host
    that go with a fix as a whole, though the device waits in a part of them only. What is not `replayed` is not known
    well enough to say what goes: its gain is a bound. `change` makes the change of a device's idle time where it is
    another than that the host's time goes."""

    time: Callable[[Trace], tuple[BlamedTime, ...]]
    bottleneck: Bottleneck
    label: str
    how: str
    subject: str
    advice: str
    verify: str
    whole: str = ""
    replayed: bool = True
    change: Callable[[Trace, BlamedTime], Change] | None = None
    fix: Fix = fixes.LESS_HOST_WORK


def pattern_verdict(pattern: IdlePattern, trace: Trace, limit: float) -> Verdict:
    """Found for each device whose idle time of the pattern's causes passes the limit."""

    def finding(blamed: BlamedTime, evidence: Evidence) -> Finding:
        place = place_text(blamed)
        return Finding(
            message=f"{waits(trace, blamed)} for {pattern.subject}" + (f", most of it at {place}" if place else ""),
            bottleneck=pattern.bottleneck,
            where=place_of(blamed),
            evidence=(evidence,),
            advice=pattern.advice,
            verify=pattern.verify,
            claim=Claim({blamed.device: blamed.intervals}),
            change=_change(pattern, trace, blamed),
            fix=pattern.fix if pattern.replayed else None,
        )

    return idle_verdict(pattern.time(trace), limit, pattern.label, pattern.how, finding)


def _change(pattern: IdlePattern, trace: Trace, blamed: BlamedTime) -> Change | None:
    if pattern.change is not None:
        return pattern.change(trace, blamed)
    return fixes.LESS_HOST_WORK.change(_host_time(pattern, trace, blamed)) if pattern.replayed else None


def _host_time(pattern: IdlePattern, trace: Trace, blamed: BlamedTime) -> Target:
    """The host's time that goes: all of the ranges named, where some are recorded, else what the device waited for."""
    if pattern.whole and matches(trace.get(RANGES)["name"], pattern.whole).any():
        return Target("range", pattern.whole)
    return Target("windows", windows=blamed.host)


def idle_verdict(
    devices: Iterable[BlamedTime],
    limit: float,
    label: str,
    how: str,
    finding: Callable[[BlamedTime, Evidence], Finding],
) -> Verdict:
    """Found for each device whose idle time passes `limit` (a share of the step); else clear, with every figure."""

    def judge(blamed: BlamedTime) -> Finding | Evidence:
        subject, bound = f"{label} of device {blamed.device[1]}", Quantity(limit, "ratio")
        evidence = Evidence(subject, Quantity(blamed.share, "ratio"), how, bound, "device_ops", blamed.rows)
        return finding(blamed, evidence) if evidence.is_over else evidence

    return found_or_clear(map(judge, devices))


def place_of(blamed: BlamedTime) -> Where:
    """Where most of the time goes, as far as names were recorded."""
    rank, device = blamed.device
    return Where(
        rank=rank,
        device=device,
        thread=blamed.thread,
        range=blamed.range,
        op=blamed.host_op,
        file=blamed.file,
        line=blamed.line,
    )


def place_text(blamed: BlamedTime) -> str:
    """The innermost name of that place: ``aten::item in range forward on thread 12``; '' where nothing is known."""
    inner = blamed.host_op or blamed.frame or blamed.call
    words = [inner] if inner else []
    if blamed.range:
        words.append(f"in range {blamed.range}" if words else f"range {blamed.range}")
    if blamed.thread is not None:
        words.append(f"on thread {blamed.thread}" if words else f"thread {blamed.thread}")
    return " ".join(words)


def waits(trace: Trace, blamed: BlamedTime) -> str:
    """``device 0 waits 2.40 ms of the 12.3 ms step (19.5 %)``."""
    return f"device {blamed.device[1]} waits {of_period(trace, blamed.device, blamed.per_step_ns)}"
