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

from dataclasses import dataclass
from typing import Final, Literal

from timesink.diagnosis.rule import Limits, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Limit, Quantity, Verdict, Where
from timesink.measures.idle.blamed_time import Root, drained_time
from timesink.measures.steps.per_step import per_step_ns, period_name, period_ns
from timesink.measures.timeline.copies import CopyGroup, exposed_copies
from timesink.measures.timeline.device_timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.rules.idle._family import idle_rule
from timesink.units import bytes_text, share_text, time_text
from timesink.whatif.changes.transfers import PinCopies


@dataclass(frozen=True, slots=True)
class _Way:
    """What copies of one direction are called, drain the device as, and are mended by."""

    direction: Literal["h2d", "d2h"]
    towards: str
    root: Root
    causes: tuple[str, ...]
    bottleneck: Bottleneck
    advice: str


_WAYS: Final = {
    "h2d": _Way(
        "h2d",
        "to",
        "copy_in",
        ("copy_staging",),
        Bottleneck.HOST_TO_DEVICE_COPY,
        "Copy from pinned memory allocated once, with non_blocking=True; send what does not change once.",
    ),
    "d2h": _Way(
        "d2h",
        "from",
        "copy_out",
        (),
        Bottleneck.DEVICE_TO_HOST_COPY,
        "Copy into pinned memory allocated once, with non_blocking=True on a stream of its own; wait a step later.",
    ),
}


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    groups = [part for part in exposed_copies(trace) if part.direction in _WAYS and part.pageable]
    held = {
        (part.device, direction): part.intervals
        for direction, way in _WAYS.items()
        for part in drained_time(trace, way.root, *way.causes)
    }
    none = Intervals.none()
    return found_or_clear(
        [
            _judge(trace, limits["held_ratio"], group, held.get((group.device, group.direction), none))
            for group in groups
        ]
    )


def _judge(trace: Trace, limit: float, group: CopyGroup, idle: Intervals | None) -> tuple[Finding | None, Evidence]:
    claimed, way = group.exposed | (idle or Intervals.none()), _WAYS[group.direction]
    share, held_ns, step_ns = _shares(trace, group.device, claimed)
    evidence = Evidence(
        f"time held by pageable copies {way.towards} device {group.device[1]}",
        Quantity(share, "ratio"),
        "exposed copies, idle staging, and idle time behind the waits that end them, over the steady steps",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
        rows=group.rows,
    )
    if share <= limit:
        return None, evidence
    rate = "" if group.gigabytes_per_s is None else f" at {group.gigabytes_per_s:.1f} GB/s"
    return (
        Finding(
            message=f"pageable copies {way.towards} device {group.device[1]} hold it for {time_text(held_ns)} of the "
            f"{time_text(step_ns)} {period_name(trace)} ({share_text(share)}, limit {share_text(limit)}): "
            f"{group.count} copies, {bytes_text(group.bytes)} in all{rate}",
            bottleneck=way.bottleneck,
            where=Where(rank=group.device[0], device=group.device[1]),
            evidence=(evidence,),
            advice=way.advice,
            verify="Capture again: the host's side of the copies is pinned, and no wait follows them.",
            claim=Claim({group.device: claimed}),
            change=PinCopies(direction=way.direction),
        ),
        evidence,
    )


def _shares(trace: Trace, device: Device, claimed: Intervals) -> tuple[float, float, float]:
    step_ns, held_ns = period_ns(trace, device), per_step_ns(trace, device, claimed)
    return held_ns / step_ns if step_ns else 0.0, held_ns, step_ns


RULE = idle_rule(
    "CPY102",
    check,
    limits={
        "held_ratio": Limit(
            0.03,
            "ratio",
            "below this, pinning every copy gains less than three steps in a hundred",
            "benchmarks/faults: healthy programs stay under it",
        )
    },
    references=("https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html",),
)
