"""The chain of events that sets the pace of each rank, as it passed between host and GPU."""

from __future__ import annotations

from collections.abc import Mapping

from timesink.measures.dependency_graph import graphs
from timesink.measures.memo import remembered
from timesink.measures.what_if import step_windows
from timesink.model.trace import Trace
from timesink.whatif.critical import PathPieces, path_pieces
from timesink.whatif.periods import Anchors


@remembered
def critical_path(trace: Trace) -> Mapping[int, PathPieces]:
    """Per rank with steady steps and a dependency graph: the path from the first of them to the end of the last.

    It is the path of the unchanged replay, so every piece lies where it was observed. A piece that no weight explains
    in full keeps its whole length: the path says what was waited for, not why it took that long.
    """
    windows = step_windows(trace)
    known = {rank: graph for rank, graph in graphs(trace).items() if rank in windows}
    return {rank: path_pieces(graph, graph.replay(), Anchors(graph, windows[rank])) for rank, graph in known.items()}
