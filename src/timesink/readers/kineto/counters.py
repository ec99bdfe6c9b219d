"""Hardware counters that Kineto samples beside its events (PM sampling, since August 2026).

Each sample of each counter is an event of phase ``C`` on the track ``GPU N Counters``. The decoder passes over such
events, of which other traces hold many; where a file has any, it is searched for these once more.
"""

from __future__ import annotations

import re

from timesink.knowledge.profiler_texts import KINETO_COUNTER
from timesink.model.schema import ColumnValues
from timesink.readers.kineto.decoded import DecodedTrace
from timesink.startup import regex
from timesink.units import NS_PER_US
from timesink.untrusted.unpack import UnpackedFile

_LONGEST = 4096  # bytes of such an event, more than three times of what one has been seen to take


def gpu_metrics(decoded: DecodedTrace) -> ColumnValues | None:
    """`gpu_metrics`; None where none was sampled. What is read no longer counts as passed over."""
    found, left = list[re.Match[str]](), ""
    for piece in UnpackedFile(decoded.path, decoded.limits):
        text = left + bytes(piece).decode("latin-1")
        matches = list(regex(KINETO_COUNTER).finditer(text))
        found += matches
        left = text[max(matches[-1].end() if matches else 0, len(text) - _LONGEST) :]
    decoded.counts = {**decoded.counts, "counters": max(0, decoded.counts["counters"] - len(found))}
    return (
        None
        if not found
        else {
            "device": [int(one["device"]) for one in found],
            "name": [one["name"] for one in found],
            "time_ns": [decoded.base_ns + round(float(one["ts"]) * NS_PER_US) for one in found],
            "value": [float(one["value"]) for one in found],
        }
    )
