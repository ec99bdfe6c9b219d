"""What the rules on copies share: which copies each of them speaks for, and how their share of the step is measured.

`pageable-copies` speaks for copies between host and device through pageable memory, `copies-exposed` for all others
and for copies from the device into pageable memory too: what both claim is counted once
(`diagnosis.pricing.share_claims`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import Bottleneck, Where
from timesink.measures.idle.blame import idle_blame
from timesink.measures.lines.stacks import longest_line
from timesink.measures.timeline.copies import CopyGroup, exposed_copies
from timesink.measures.timeline.device_timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

BOTTLENECKS: Final[Mapping[str, Bottleneck]] = {
    "h2d": Bottleneck.HOST_TO_DEVICE_COPY,
    "d2h": Bottleneck.DEVICE_TO_HOST_COPY,
}
"""The bottleneck that a direction of copies makes. Copies of other directions never cross between host and device."""


def pageable_copy_groups(trace: Trace) -> list[CopyGroup]:
    """The copies that `pageable-copies` speaks for."""
    return [group for group in exposed_copies(trace) if group.direction in BOTTLENECKS and group.pageable]


def exposed_copy_groups(trace: Trace) -> list[CopyGroup]:
    """The copies that `copies-exposed` speaks for."""
    groups = [group for group in exposed_copies(trace) if group.direction in BOTTLENECKS]
    return [group for group in groups if not (group.direction == "h2d" and group.pageable)]


def gaps_before(trace: Trace, device: Device, direction: str) -> Intervals:
    """The idle time of a device that migrations of unified memory in one direction ended."""
    stretches = idle_blame(trace).on(device).filter(pl.col("cause") == "migration")
    ended_by = trace[DEVICE_OPS]["copy_kind"][stretches["op_row"].cast(pl.UInt32)]
    return Intervals.of(stretches.filter(ended_by == direction))


def place_of(trace: Trace, device: Device, rows: Sequence[int]) -> Where:
    """The device, and the line of the program behind most of these copies (rows of `device_ops`)."""
    ops = trace[DEVICE_OPS][list(rows)]
    line = longest_line(trace, np.asarray(rows, np.int64), ops["end_ns"] - ops["start_ns"])
    return Where(rank=device[0], device=device[1], file=line.file if line else None, line=line.line if line else None)
