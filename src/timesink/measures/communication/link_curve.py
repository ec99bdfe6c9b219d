"""What collectives take on the machine of a run, as measured there: rules use the curve in place of a fixed figure.

`timesink capture nccl-bench` leaves ``nccl-bench.json`` beside the traces. Times are those of nccl-tests: calls one
after another, their time over their number. Between two sizes the time is a straight line; beyond the largest it grows
as the size does, below the smallest it is that of the smallest.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass


@dataclass(frozen=True, slots=True)
class LinkCurve:
    """Sizes in bytes, ascending, and the time of each, by kind of collective and number of ranks."""

    points: Mapping[tuple[str, int], tuple[tuple[int, float], ...]]

    def time_ns(self, kind: str, ranks: int, size: float) -> float | None:
        """What one of `size` bytes takes; None where that kind was not measured over so many ranks. A message is one
        way, from one rank to another."""
        known = self.points.get(("send" if kind in ("send", "recv", "message") else kind, ranks))
        if not known:
            return None
        sizes, times = zip(*known, strict=True)
        if size > sizes[-1]:
            return float(times[-1] * size / sizes[-1])
        return float(np.interp(size, sizes, times))

    def small_bytes(self) -> int | None:
        """Below this size most of the time is latency: the first that takes twice as long as the smallest."""
        doubled = [
            next((size for size, time_ns in known if time_ns > 2 * known[0][1]), None) for known in self.points.values()
        ]
        sizes = sorted(size for size in doubled if size is not None)
        return sizes[len(sizes) // 2] if sizes else None


@remembered
def link_curve(trace: Trace) -> LinkCurve | None:
    """What was measured on the machine of the trace; None where nothing was."""
    points: dict[tuple[str, int], dict[int, float]] = {}
    for time in trace.link_times:
        points.setdefault((time.kind, time.ranks), {})[time.bytes] = time.time_ns
    return LinkCurve({key: tuple(sorted(known.items())) for key, known in points.items()}) if points else None
