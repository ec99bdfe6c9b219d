"""What the rules on copies share: which copies each of them speaks for, and how their share of the step is measured.

`pageable-copies` speaks for copies between host and device through pageable memory, `copies-exposed` for all others
and for copies from the device into pageable memory too: what both claim is counted once
(`diagnosis.pricing.share_claims`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timesink.diagnosis.verdicts import Bottleneck
from timesink.measures.timeline.copies import CopyGroup, exposed_copies
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
