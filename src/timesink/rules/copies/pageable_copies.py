"""Copies go through pageable memory and hold up the device.

## What it detects
Copies from or to pageable memory, of more than a value each, that hold up the device: while they run with no kernel
beside them, while the host stages them, and behind the wait with which such a copy ends.

## Why it matters
The driver copies pageable memory through a pinned buffer of its own. The host is busy or waiting for as long as the
copy takes, `non_blocking=True` changes nothing, and the lead of the host over the device is lost.

## How it is measured
Over the steady steps: the union of these copies less every instant at which a kernel runs, idle stretches in the
staging call, and idle stretches behind a wait that directly follows such a copy, until the host is ahead again.

## What to do
Allocate the host's side once in pinned memory (`pin_memory=True` in the DataLoader, a pinned staging buffer) and copy
with `non_blocking=True`; send constants once; read results back on a stream of their own, and wait for them later.

## When it misleads
Pinning inside the step (`tensor.pin_memory().to(...)`) costs more than it saves: pinning is itself a blocking call. A
copy that is hidden costs little, pageable or not.
"""

from __future__ import annotations

from typing import Final, Literal

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Claim, Evidence, Finding, Quantity, Verdict
from timesink.diagnosis.words import of_step
from timesink.fixes import table as fixes
from timesink.measures.idle.blamed_time import Root, drained_time
from timesink.measures.steps.per_step import share_of_step
from timesink.measures.timeline.copies import CopyGroup
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.copies._family import BOTTLENECKS, pageable_copy_groups, place_of
from timesink.rules.idle import BLAME_READS
from timesink.units import bytes_text


@dataclass(frozen=True, slots=True)
class _Direction:
    """What copies of one direction are called, the idle time they are to blame for, and how they are mended."""

    name: Literal["h2d", "d2h"]
    towards: str
    root: Root
    causes: tuple[str, ...]
    advice: str


_DIRECTIONS: Final = {
    "h2d": _Direction(
        "h2d",
        "to",
        "copy_in",
        ("copy_staging",),
        "Copy from pinned memory allocated once, with non_blocking=True; send what does not change once.",
    ),
    "d2h": _Direction(
        "d2h",
        "from",
        "copy_out",
        (),
        "Copy into pinned memory allocated once, with non_blocking=True on a stream of its own; wait a step later.",
    ),
}


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device and direction over the limit."""
    idle = {
        (blamed.device, name): blamed.intervals
        for name, direction in _DIRECTIONS.items()
        for blamed in drained_time(trace, direction.root, *direction.causes)
    }
    return found_or_clear(
        [
            _judge(trace, limits["held_ratio"], group, idle.get((group.device, group.direction), Intervals.none()))
            for group in pageable_copy_groups(trace)
        ]
    )


def _judge(trace: Trace, limit: float, group: CopyGroup, idle: Intervals) -> Finding | Evidence:
    device, held, direction = group.device, group.exposed | idle, _DIRECTIONS[group.direction]
    evidence = Evidence(
        f"time held by pageable copies {direction.towards} device {device[1]}",
        Quantity(share_of_step(trace, device, held), "ratio"),
        "exposed copies, idle staging, and idle time behind the waits that end them, over the steady steps",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
        rows=group.rows,
    )
    if not evidence.is_over:
        return evidence
    rate = "" if group.gigabytes_per_s is None else f" at {group.gigabytes_per_s:.1f} GB/s"
    return Finding(
        message=f"pageable copies {direction.towards} device {device[1]} hold it for "
        f"{of_step(trace, device, held)}: {group.count} copies, {bytes_text(group.bytes)} in all{rate}",
        bottleneck=BOTTLENECKS[direction.name],
        where=place_of(trace, device, group.rows),
        evidence=(evidence,),
        advice=direction.advice,
        verify="Capture again: the host's side of the copies is pinned, and no wait follows them.",
        claim=Claim({device: held}),
        change=fixes.PIN_MEMORY.change(direction=direction.name),
        fix=fixes.PIN_MEMORY,
    )


RULE = Rule(
    "CPY102",
    check,
    needs=(DEVICE_OPS, API_CALLS),
    reads=BLAME_READS,
    limits={
        "held_ratio": Limit.ratio(
            0.03,
            "below this, pinning every copy gains less than three steps in a hundred",
            "benchmarks/faults: healthy programs stay under it",
        )
    },
    references=("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",),
)
