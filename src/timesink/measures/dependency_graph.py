"""The dependency graph of each rank, built once per trace: idle blame reads its parts, prices replay it."""

from __future__ import annotations

from collections.abc import Mapping

from timesink.measures.memo import remembered
from timesink.model.trace import Trace
from timesink.whatif.graph import Graph
from timesink.whatif.program import Program, ranks_of


@remembered
def programs(trace: Trace) -> Mapping[int, Program]:
    """Per rank: its calls, device ops, and what each waited for."""
    return {rank: Program.read(trace, rank) for rank in ranks_of(trace)}


@remembered
def graphs(trace: Trace) -> Mapping[int, Graph]:
    """Per rank: the graph that a what-if replays."""
    return {rank: Graph.of(program, trace.tables) for rank, program in programs(trace).items()}
