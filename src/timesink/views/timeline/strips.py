"""All ranks of a large job in one lane: a strip for each, or for a few neighbours, as dense as their GPUs are busy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from timesink.measures.timeline.device_timeline import DeviceTimeline, device_timeline
from timesink.model.trace import Trace
from timesink.views.figures import Lane, Runs
from timesink.views.timeline.runs import single

MOST_STRIPS: Final = 256  # three pixels each are most of a screen
_BINS: Final = 2048  # of a strip: a wide screen
_PARTS: Final = ("compute", "communication", "copy")


def all_ranks(
    trace: Trace, ranks: Sequence[int], text: Callable[[str], int], kind: Callable[[str], int]
) -> tuple[Lane, int]:
    """The lane, and how many ranks share a strip; `text` and `kind` give the numbers of texts and kinds."""
    lines = device_timeline(trace).by_device
    edges = np.linspace(
        min(line.span_start_ns for line in lines.values()),
        max(line.span_end_ns for line in lines.values()),
        _BINS + 1,
        dtype=np.int64,
    )
    kinds = np.array([kind(part) for part in _PARTS], np.int64)
    each = -(-len(ranks) // MOST_STRIPS)
    rows = []
    for at in range(0, len(ranks), each):
        some = ranks[at : at + each]
        name = f"rank {some[0]}" if len(some) == 1 else f"ranks {some[0]} to {some[-1]}"
        rows.append(_strip([line for (rank, _), line in lines.items() if rank in some], edges, kinds, text(name)))
    folded = "" if each == 1 else f", {each} to a strip"
    return Lane("ranks", f"all {len(ranks):,} ranks{folded}", -1, None, tuple(rows)), each


def _strip(lines: Sequence[DeviceTimeline], edges: np.ndarray, kinds: np.ndarray, name: int) -> Runs:
    """Per bin the mean busy time of the devices, coloured by what takes most of it; bins without any are left out."""
    bins = edges[:-1], edges[1:]
    times = np.array(
        [
            sum(part.covered_ns(*bins) for part in parts) / len(lines)
            for parts in zip(
                *((line.compute, line.exposed_communication, line.exposed_copy) for line in lines), strict=True
            )
        ]
    )
    busy = np.rint(times.sum(axis=0)).astype(np.int64)
    some = np.flatnonzero((busy > 0) & (bins[1] > bins[0]))
    runs = single(bins[0][some], bins[1][some], kind=kinds[times.argmax(axis=0)[some]], name=name)
    runs.busy_ns[:] = np.minimum(busy[some], runs.busy_ns)
    return runs
