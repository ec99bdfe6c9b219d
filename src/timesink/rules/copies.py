"""Rules on copies that the device waits for.

`pageable-copies` speaks for copies between host and device through pageable memory, `copies-exposed` for all others
and for copies from the device into pageable memory too: what both claim is counted once
(`diagnosis.sharing.share_claims`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.judge import Row, Rows, declare
from timesink.diagnosis.verdicts import Where
from timesink.diagnosis.words import number
from timesink.fixes.transfers import COPY_BEHIND, KEEP_ON_DEVICE, PIN_MEMORY, PREFETCH, PREFETCH_PAGES
from timesink.knowledge.step_parts import Bottleneck
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.idle.charges import pageable_calls
from timesink.measures.lines.common import longest_line
from timesink.measures.steps.per_step import share_of_step
from timesink.measures.timeline import Device, device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.copies import CopyGroup, awaited_pages, exposed_copies, on_trips
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

_BOTTLENECKS: Final = {"h2d": Bottleneck.HOST_TO_DEVICE_COPY, "d2h": Bottleneck.DEVICE_TO_HOST_COPY}
"""The bottleneck that a direction of copies makes. Copies of other directions never cross between host and device."""

_FIXES: Final = {
    "copies": PREFETCH, "results": COPY_BEHIND, "migrations": PREFETCH_PAGES,
    "trips": KEEP_ON_DEVICE,
}  # fmt: skip
"""What repairs exposed copies, by `CopyGroup.kind`; copies to the CPU are `results`, which are there after the work."""


_NOUN: Final = (("copy", "copies"), ("migration", ""))
_GAPS: Final = {
    "migrations": ("the waits before them", "time before a migration, idle or in a kernel that waits for it"),
    "trips": ("their waits", "idle time that is charged to the calls that copy, or to the wait behind each"),
}


def _exposed_rows(trace: Trace) -> Rows:
    """A row per device, kind of copy and direction; trips are of both."""
    sides: dict[tuple[Device, str, str], list[CopyGroup]] = {}
    for group in exposed_copies(trace):
        is_trip = group.kind == "trips"
        if group.direction in _BOTTLENECKS and (is_trip or not (group.direction == "h2d" and group.pageable)):
            sides.setdefault((group.device, group.kind, "" if is_trip else group.direction), []).append(group)
    return [_exposed_row(trace, *side, groups) for side, groups in sides.items()]


def _exposed_row(trace: Trace, device: Device, kind: str, direction: str, groups: list[CopyGroup]) -> Row:
    moving, kernels = Intervals.union_all(group.exposed for group in groups), device_timeline(trace)[device].compute
    gaps = Intervals.none()
    if kind == "migrations":
        gaps = _gaps_before(trace, device, direction)
    elif kind == "trips":
        called = launch_links(trace).call[on_trips(trace)]
        gaps = Intervals.of(_kept_waiting(trace, called[called >= 0]).filter(rank=device[0], device=device[1]))
    exposed, groups = moving | gaps, sorted(groups, key=lambda group: -group.exposed.total_ns)
    rows = groups[0].rows
    rates = [group.gigabytes_per_s for group in groups if group.gigabytes_per_s is not None]
    gaps_words = _GAPS.get(kind, ("", ""))
    figures = {
        "exposed_ratio": share_of_step(trace, device, exposed),
        "towards": {"h2d": "host-to-device", "d2h": "device-to-host"}.get(direction),
        "gaps": gaps_words[0] if len(gaps) else None,
        "gaps_too": gaps_words[1] if len(gaps) else None,
        "within": (exposed & kernels).total_ns / kernels.total_ns if len(moving & kernels) else None,
        "count": number(sum(group.count for group in groups), *_NOUN[kind == "migrations"]),
        "moved": sum(group.bytes for group in groups),
        "rate": max(rates, default=None),
    }
    kind = "results" if (kind, direction) == ("copies", "d2h") else kind
    where, bottleneck = partial(_place_of, trace, device, rows), _BOTTLENECKS[groups[0].direction]
    return Row(
        device, figures, time=exposed, fix=_FIXES[kind], where=where, rows=rows, bottleneck=bottleneck, variant=kind
    )


def _by_calls(called: Int32Array | Int64Array) -> pl.Expr:
    """Whether a stretch is blamed on one of the calls, which copy, or on the wait right behind one."""
    return pl.col("call_row").is_in([*called, *(called + 1)]).fill_null(False)


def _kept_waiting(trace: Trace, called: Int32Array | Int64Array) -> pl.DataFrame:
    """Idle time in which a device waited for these calls, which copy, or for what came late by them."""
    waited = pl.col("cause").is_in(["sync", "copy_staging"])
    return idle_blame(trace).stretches.filter(waited & _by_calls(called))


def _gaps_before(trace: Trace, device: Device, direction: str) -> Intervals:
    """The time before migrations of unified memory in one direction. Idle time of a device that they ended counts up to
    its last kernel: what the CPU reads after that keeps nothing of the GPU waiting. A kernel that pages move to may
    wait for each.
    """
    stretches = idle_blame(trace).on(device).filter(pl.col("cause") == "migration")
    ended_by = trace[DEVICE_OPS]["copy_kind"][stretches["op_row"].cast(pl.UInt32)]
    kernels = device_timeline(trace)[device].compute
    ended = Intervals.of(stretches.filter(ended_by == direction)).clip(0, int(kernels.end_ns.max(initial=0)))
    return ended | awaited_pages(trace, device) if direction == "h2d" else ended


def _place_of(trace: Trace, device: Device, rows: Sequence[int]) -> Where:
    """The device, and the line of the program behind most of these copies (rows of `device_ops`)."""
    ops = trace[DEVICE_OPS][list(rows)]
    line = longest_line(trace, np.asarray(rows, np.int64), ops["end_ns"] - ops["start_ns"])
    return Where(rank=device[0], device=device[1], file=line.file if line else None, line=line.line if line else None)


def _pageable_rows(trace: Trace) -> Rows:
    """A row per device and direction: the copies, and the idle time that they are to blame for."""
    outwards = _by_calls(pageable_calls(trace, "d2h"))
    blamed = {way: blamed_time(trace, ("copy_staging",), of) for way, of in (("h2d", ~outwards), ("d2h", outwards))}
    idle = {(one.device, direction): one.intervals for direction, devices in blamed.items() for one in devices}
    rows = []
    for group in exposed_copies(trace):
        if group.direction in _BOTTLENECKS and group.pageable:
            device, direction = group.device, group.direction
            held = group.exposed | idle.get((device, direction), Intervals.none())
            figures = {
                "held_ratio": share_of_step(trace, device, held),
                "towards": "to" if direction == "h2d" else "from",
                "count": number(group.count, *_NOUN[0]),
                "moved": group.bytes,
                "rate": group.gigabytes_per_s,
            }
            rows.append(
                Row(
                    device,
                    figures,
                    time=held,
                    change=PIN_MEMORY.change(direction=direction),
                    where=partial(_place_of, trace, device, group.rows),
                    rows=group.rows,
                    bottleneck=_BOTTLENECKS[direction],
                    variant=direction,
                )
            )
    return rows


RULES: Final = (
    declare("copies-exposed", _exposed_rows),
    declare("pageable-copies", _pageable_rows, fix=PIN_MEMORY),
)
