"""What recording cost the host, estimated from what was recorded. An estimate: only an unprofiled run can tell.

Unit costs of torch.profiler, from captures of host-bound programs beside their unprofiled step times (H200, torch 2.11,
shapes recorded): about 1 us per operator and 3 us per CUDA call. A Python frame costs 0.4 us (calls of an empty
function, torch 2.13, with stacks); an operator with stacks or memory recorded costs 1.5 us more, an allocation as much.
Nsight Systems records no operators; its 1 us per CUDA call is not counted here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from timesink.measures.memo import remembered
from timesink.measures.steps import steps
from timesink.model.tables import API_CALLS, FRAMES, HOST_OPS, MEMORY_EVENTS
from timesink.model.trace import Trace
from timesink.units import NS_PER_US

_OPERATOR_NS: Final = 1.0 * NS_PER_US
_WITH_STACK_NS: Final = 1.5 * NS_PER_US
_CALL_NS: Final = 3.0 * NS_PER_US
_FRAME_NS: Final = 0.4 * NS_PER_US
_ALLOCATION_NS: Final = 1.5 * NS_PER_US


@dataclass(frozen=True, slots=True)
class ProfilerCost:
    """One rank, per step: what was recorded, and the host time that is estimated to have gone into recording it.

    `heavy` says that Python frames were recorded: they cost at every call, and a timeline can do without them.
    """

    rank: int
    frames: float
    operators: float
    calls: float
    allocations: float
    cost_ns: float
    heavy: bool


@remembered
def profiler_cost(trace: Trace) -> tuple[ProfilerCost, ...]:
    """Per rank with operators, in order; none where the profile records no operators."""
    found = []
    for rank in trace.get(HOST_OPS)["rank"].unique().sort().to_list():
        count = max(steps(trace).frame.filter(pl.col("rank") == rank).height, 1)
        tables = (FRAMES, HOST_OPS, API_CALLS, MEMORY_EVENTS)
        heights = [trace.get(table).filter(pl.col("rank") == rank).height / count for table in tables]
        frames, operators, calls, allocations = heights
        stacks = _WITH_STACK_NS if frames or allocations else 0.0
        cost = frames * _FRAME_NS + operators * (_OPERATOR_NS + stacks) + calls * _CALL_NS
        cost += allocations * _ALLOCATION_NS
        found.append(ProfilerCost(rank, frames, operators, calls, allocations, cost, heavy=frames > 0))
    return tuple(found)
