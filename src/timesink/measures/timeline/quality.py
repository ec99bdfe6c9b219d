"""What a trace can be trusted for: links, losses, resolution, graphs, and what recording it cost the host.

The cost of recording is an estimate from what was recorded; only an unprofiled run can tell it exactly. Unit costs of
torch.profiler come from captures of host-bound programs and their unprofiled step times (H200, torch 2.11, shapes
recorded): about 1 us per operator and 3 us per CUDA call. A Python frame costs 0.4 us (calls of an empty function,
torch 2.13, with stacks); an operator with stacks or memory recorded costs 1.5 us more, an allocation as much. Nsight
Systems records no operators; its 1 us per CUDA call is not counted here.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.knowledge.calls import GRAPH_LAUNCH, LAUNCH
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import BoolArray, flag_at
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.record import dataclass
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, PROFILER_OVERHEAD
from timesink.model.trace import Trace, remembered
from timesink.units import NS_PER_US
from timesink.whatif.change import Case
from timesink.whatif.periods import recording_us


@dataclass(frozen=True, slots=True)
class Quality:
    """Facts about the trace, not about the program.

    `linked_count` of the device ops have a launch record; `head_count` of the others start before the first linked op
    of their device: work queued before the recording began. `dead_launch_count` launch calls have no device work: it
    fell out of the window, was dropped, or ran where the profiler does not look. `graph_ratio`: share of summed device
    time that graph launches own, whose kernels no operator can be blamed for. `resolution_ns`: largest power of ten up
    to 1 us that divides every time of device ops, calls and operators; 1,000 means that short kernels are rounded, None
    that there are no times. `overhead_ns`: union of the profiler's own intervals on each rank, summed. `lost_count`:
    records the reader reports as lost.
    """

    device_op_count: int
    linked_count: int
    head_count: int
    dead_launch_count: int
    graph_ratio: float
    resolution_ns: int | None
    overhead_ns: int
    lost_count: int

    @property
    def linked_ratio(self) -> float | None:
        """Share of device ops with a launch record; None where there are no device ops."""
        return self.linked_count / self.device_op_count if self.device_op_count else None


@remembered
def quality(trace: Trace) -> Quality:
    """Judge the trace."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    graphs = (ops["kind"] == "graph").to_numpy() | _from_graph(trace)
    overhead = trace.get(PROFILER_OVERHEAD)
    launched = links.launching(calls.height)
    launching = matches(calls["name"], LAUNCH).to_numpy()
    total_ns = int(length.sum())
    return Quality(
        device_op_count=ops.height,
        linked_count=links.linked_count,
        head_count=_head_count(trace),
        dead_launch_count=int(np.count_nonzero(launching & ~launched)),
        graph_ratio=int(length[graphs].sum()) / total_ns if total_ns else 0.0,
        resolution_ns=_resolution_ns(trace),
        overhead_ns=sum(Intervals.of(part).total_ns for _, part in overhead.group_by("rank")),
        lost_count=sum(note.count for note in trace.notes if note.kind.is_loss),
    )


def _from_graph(trace: Trace) -> BoolArray:
    """Whether a graph launch owns each op: by its graph id, or by the name of its call."""
    ops, links = trace.get(DEVICE_OPS), launch_links(trace)
    has_graph_id = ops["graph_id"].fill_null(0).to_numpy() > 0
    graph_calls = matches(trace.get(API_CALLS)["name"], GRAPH_LAUNCH).to_numpy()
    return has_graph_id | flag_at(graph_calls, links.call)


def _head_count(trace: Trace) -> int:
    """Unlinked ops that start before their device's first linked op."""
    ops = trace.get(DEVICE_OPS).select("rank", "device", "start_ns")
    ops = ops.with_columns(pl.Series("linked", launch_links(trace).linked))
    first = pl.col("start_ns").filter("linked").min().over("rank", "device")
    return int(ops.select((~pl.col("linked") & (pl.col("start_ns") < first)).sum()).item() or 0)


def _resolution_ns(trace: Trace) -> int | None:
    """The largest power of ten up to a microsecond that divides all times."""
    frames = [trace.get(table) for table in (DEVICE_OPS, API_CALLS, HOST_OPS)]
    if not any(frame.height for frame in frames):
        return None
    divisor = NS_PER_US
    for frame in frames:
        for name in ("start_ns", "end_ns"):
            times = frame[name].to_numpy()
            while divisor > 1 and np.any(times % divisor):
                divisor //= 10
    return divisor


@dataclass(frozen=True, slots=True)
class ProfilerCost:
    """One rank, per step: what was recorded, and the host time that is estimated to have gone into recording it.

    `heavy` says that Python frames were recorded: they cost at every call, and a timeline can do without them.
    """

    rank: int
    frames: float
    operators: float
    cost_ns: float
    heavy: bool


@remembered
def profiler_cost(trace: Trace) -> tuple[ProfilerCost, ...]:
    """Per rank with operators, in order; none where the profile records no operators."""
    costs = []
    for rank in trace.get(HOST_OPS)["rank"].unique().sort().to_list():
        step_count = max(steps(trace).frame.filter(pl.col("rank") == rank).height, 1)
        here = (pl.col("rank") == rank) & (pl.col("process") >= 0)
        frames, operators = (trace.get(table).filter(here).height / step_count for table in (FRAMES, HOST_OPS))
        cost_ns = recording_us(trace.get, rank)[Case.EXPECTED.value] * NS_PER_US / step_count
        costs.append(ProfilerCost(rank, frames, operators, cost_ns, heavy=frames > 0))
    return tuple(costs)
