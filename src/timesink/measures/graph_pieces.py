"""What one compiled graph would win over the pieces it is in: kernels joined, launches and waits for them saved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from timesink.measures.compiled_regions import compiled_regions
from timesink.measures.generated_chains import generated_chains
from timesink.measures.memo import remembered
from timesink.measures.per_step import per_step_ns
from timesink.measures.shortened import Rows, Shortened
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.trace import Trace
from timesink.whatif.changes.case import Case, Range

_GONE: Final = Range(0.5, 1.0, 1.0)  # of the host time at entries after a break


@dataclass(frozen=True, slots=True, eq=False)
class GraphPieces:
    """One device. `kernels` are those of the pieces and what they keep, `idle` is idle time that one of them ended. Of
    the host's time up to the launches of `entries`, `launches_saved` is the share that goes; `entry_idle` is idle time
    that one of these ended. `graphs` is of how many different graphs a step's `regions` are, None where regions are not
    recorded: then the pieces are generated kernels in a row, all of them entries, and of n in a row the first stays."""

    device: Device
    kernels: Shortened
    idle: Intervals
    entries: Rows
    entry_idle: Intervals
    launches_saved: Range
    graphs: int | None
    regions: float | None

    def saved_per_step_ns(self, trace: Trace, case: Case) -> float:
        """Device time and idle time that goes, per steady step: a bound for a device that waits for this host."""
        idle_ns = per_step_ns(trace, self.device, self.entry_idle)
        return self.kernels.saved_per_step_ns(trace, case) + self.launches_saved.at(case) * idle_ns


@remembered
def graph_pieces(trace: Trace) -> tuple[GraphPieces, ...]:
    """Per device with compiled regions, or with generated kernels in a row where no regions are recorded."""
    regions = {part.device: part for part in compiled_regions(trace)}
    chains = {part.shortened.device: part for part in generated_chains(trace)}
    found = []
    for device in sorted(regions.keys() | chains.keys()):
        chain, region = chains.get(device), regions.get(device)
        short = chain.shortened if chain else None
        if region is not None:
            kernels = _with_others(device, short, region.kernels)
            entries = (region.entries, region.entry_idle, _GONE)
            found.append(GraphPieces(device, kernels, region.idle, *entries, region.graphs, region.per_step))
        elif chain is not None:
            beyond = 1.0 - 1.0 / chain.pieces
            saved = Range(beyond * _GONE.cautious, beyond * _GONE.expected, beyond * _GONE.hopeful)
            rows = chain.shortened.rows
            found.append(GraphPieces(device, chain.shortened, chain.idle, rows, chain.idle, saved, None, None))
    return tuple(found)


def _with_others(device: Device, short: Shortened | None, rows: Rows) -> Shortened:
    """The same with other kernels, which keep all of their time."""
    if short is None:
        return Shortened.of(device, rows)
    every = np.union1d(short.rows, rows)
    place = np.searchsorted(every, short.rows)
    keep = []
    for share in short.keep:
        whole = np.ones(every.size)
        whole[place] = share
        keep.append(whole)
    return Shortened(device, every, (keep[0], keep[1], keep[2]))
