"""Whether the program's own instrumentation waits for the GPU at the end of every block it times.

Such a trace says where GPU time goes, block by block, and nothing of how fast the program runs: no launch runs ahead,
nothing overlaps. It is a fact about the capture, not a fault of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.host_places import push_pop_ranges
from timesink.measures.launches import launches
from timesink.measures.links import launch_links
from timesink.measures.memo import remembered
from timesink.measures.synchronisations import synchronisations
from timesink.model.names import matches
from timesink.model.tables import API_CALLS
from timesink.model.trace import Trace

NEEDS: Final = 6  # blocks that launch work: fewer are no instrumentation
SHARE: Final = 0.9  # of them end in a wait
_NO_BLOCK: Final = r"^ProfilerStep#|^Torch-Compiled Region|^Optimizer\.|^## Call CompiledFxGraph"
_THREAD: Final = ["rank", "process", "thread"]


@dataclass(frozen=True, slots=True)
class SynchronisedRanges:
    """`blocks`: ranges that launch work and enclose no other such range; `waiting` of them end in a blocking call,
    with no launch behind it."""

    blocks: int
    waiting: int

    @property
    def attribution_only(self) -> bool:
        """Whether nearly every block ends in a wait."""
        return self.blocks >= NEEDS and self.waiting >= SHARE * self.blocks


@remembered
def synchronised_ranges(trace: Trace) -> SynchronisedRanges:
    """Look at the innermost ranges around launches."""
    ranges, calls = push_pop_ranges(trace), trace.get(API_CALLS)
    ranges = ranges.filter(~matches(ranges["name"], _NO_BLOCK))
    if not ranges.height or not calls.height or not list(launches(trace)):
        return SynchronisedRanges(0, 0)
    made = calls.filter(pl.Series(launch_links(trace).launching(calls.height))).select(*_THREAD, "start_ns")
    waits = synchronisations(trace).calls.select(*_THREAD, "start_ns", "end_ns")
    blocks = waiting = 0
    for key, mine in sorted(ranges.partition_by(_THREAD, as_dict=True).items()):
        here = pl.all_horizontal(pl.col(name) == value for name, value in zip(_THREAD, key, strict=True))
        starts = np.sort(made.filter(here)["start_ns"].to_numpy())
        blocking = waits.filter(here).sort("start_ns")
        begin, end = mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy()
        first, last = np.searchsorted(starts, begin), np.searchsorted(starts, end)
        full = last > first
        leaf = full & ~_encloses(begin, end, full)
        blocks += int(leaf.sum())
        latest = np.where(leaf, starts[np.maximum(last - 1, 0)], 0) if starts.size else begin
        after = np.searchsorted(blocking["start_ns"].to_numpy(), latest)
        until = np.searchsorted(blocking["start_ns"].to_numpy(), end)
        waiting += int((leaf & (until > after)).sum())
    return SynchronisedRanges(blocks, waiting)


def _encloses(begin: np.ndarray, end: np.ndarray, full: np.ndarray) -> np.ndarray:
    """Whether a range holds another that launches work; ranges are in order of start, and nest."""
    answer = np.zeros(begin.size, bool)
    order = np.lexsort((-end, begin))
    order = order[full[order]]
    inside = (begin[order[1:]] >= begin[order[:-1]]) & (end[order[1:]] <= end[order[:-1]])
    answer[order[:-1]] = inside
    return answer
