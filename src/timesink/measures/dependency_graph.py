"""The dependency graph of each rank, built once per trace: idle blame reads its parts, prices replay it.

A long trace is replayed in excerpts, so the whole of its program would serve the blame alone: it is then read without
the graph's nodes, and not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from timesink.measures.memo import remembered
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.graph import Graph
from timesink.whatif.program import Program, Work, ranks_of


@remembered
def programs(trace: Trace) -> Mapping[int, Program]:
    """Per rank: its calls, device ops, and what each waited for."""
    return {rank: Program.read(trace, rank) for rank in ranks_of(trace)}


# A rank with more device ops than this is only ever replayed in excerpts.
_OPS_KEPT: Final = 200_000


def work_of(trace: Trace, rank: int) -> Work:
    """What a rank did: its program where that is kept anyway, else its parts alone."""
    if trace.get(DEVICE_OPS).height <= _OPS_KEPT:
        return programs(trace)[rank]
    return Work.read_work(trace, rank)


@remembered
def graphs(trace: Trace) -> Mapping[int, Graph]:
    """Per rank: the graph that a what-if replays."""
    return {rank: Graph.of(program, trace.tables) for rank, program in programs(trace).items()}
