"""What keeps a step out of a CUDA graph, as far as a capture shows it; waits for the GPU aside, which have a fix.

While a graph is captured, no memory can be taken from the driver or given back, but in a stream's order. And it holds
the work of one process' own streams: `DataParallel` starts a thread per GPU in every step, and copies the model there.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from timesink.knowledge.calls import LOADS_MODULE, CallKind, call_kinds
from timesink.knowledge.ranges import DATA_PARALLEL
from timesink.measures.steps.per_step import in_most_steps
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, FRAMES, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass

_OF_MEMORY: Final = (CallKind.ALLOCATE, CallKind.FREE)


@dataclass(frozen=True, slots=True)
class GraphObstacle:
    """What most steps do that no CUDA graph can hold: `name` is the longest such call, ``cudaMalloc``, or operator."""

    kind: Literal["allocates", "data_parallel"]
    name: str


@remembered
def graph_obstacle(trace: Trace) -> GraphObstacle | None:
    """What keeps the steps out of a CUDA graph; None where the trace shows nothing, or no steps."""
    for table in (HOST_OPS, RANGES, FRAMES):
        rows = trace.get(table)
        found = rows.filter(matches(rows["name"], DATA_PARALLEL))
        if found.height and in_most_steps(trace, found):
            return GraphObstacle("data_parallel", str(found["name"][0]))
    calls = trace.get(API_CALLS)
    takes = np.isin(call_kinds(calls["name"]), _OF_MEMORY) & ~matches(calls["name"], LOADS_MODULE).to_numpy()
    found = calls.filter(takes)
    if not found.height or not in_most_steps(trace, found):
        return None
    return GraphObstacle("allocates", str(found["name"][int((found["end_ns"] - found["start_ns"]).arg_max() or 0)]))
