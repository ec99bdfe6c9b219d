"""What a trace can be trusted for: links, losses, resolution, graphs, and what recording it cost.

The cost of recording is an estimate from what was recorded; only an unprofiled run can tell it exactly. Unit costs of
torch.profiler come from captures of host-bound programs and their unprofiled step times (H200, torch 2.11, shapes
recorded): about 1 us per operator and 3 us per CUDA call. A Python frame costs 0.4 us (calls of an empty function,
torch 2.13, with stacks); an operator with stacks or memory recorded costs 1.5 us more, an allocation as much. Nsight
Systems records no operators; its 1 us per CUDA call is not counted here.

A trace may be the capture of a CUDA graph, in which kernels are recorded into the graph and do not run.
"""

import numpy as np
import polars as pl

from timesink.knowledge.calls import CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH, LAUNCH
from timesink.knowledge.ranges import CAPTURED_SIZE
from timesink.measures.steps import steps
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import BoolArray, flag_at
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, PROFILER_OVERHEAD, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_US
from timesink.whatif import Case
from timesink.whatif.unprofiled import recording_us


class Quality(Record):
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
        head_count=head_count(trace),
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


def head_count(trace: Trace) -> int:
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


class ProfilerCost(Record):
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


class GraphCapture(Record):
    """`captured_ns` is the time between the begin and the end of captures, `span_ns` that from the first CUDA call to
    the last, of all processes. A graph may be captured in pieces, with work that is not captured between them: where no
    graph is launched, captures last from the first begin to the last end. What an engine does in a range that says it
    captures (`capture_32_FULL`: it runs once eagerly, too) is capture."""

    captured_ns: int
    span_ns: int

    @property
    def share(self) -> float:
        """Captured time over the span, 0 to 1."""
        return min(self.captured_ns / self.span_ns, 1.0) if self.span_ns else 0.0


@remembered
def graph_capture(trace: Trace) -> GraphCapture:
    """Captures begun and ended by calls of one process, each end with the last begin before it."""
    calls = trace.get(API_CALLS)
    marks = calls.with_columns(
        begin=matches(calls["name"], CAPTURE_BEGIN), end=matches(calls["name"], CAPTURE_END)
    ).filter(pl.col("begin") | pl.col("end"))
    if not marks.height:
        return GraphCapture(0, 0)
    pairs = marks.sort("rank", "process", "start_ns").with_columns(
        pl.when("begin").then("end_ns").forward_fill().over("rank", "process").alias("begun_ns")
    )
    captured = pairs.filter(pl.col("end") & pl.col("begun_ns").is_not_null())
    union = Intervals.union_of(captured["begun_ns"].to_numpy(), captured["start_ns"].to_numpy())
    if len(union) and not matches(calls["name"], GRAPH_LAUNCH).any():
        union = Intervals.union_of(union.start_ns[:1], union.end_ns[-1:])
    engines = trace.get(RANGES)
    union = union | Intervals.of(engines.filter(matches(engines["name"], CAPTURED_SIZE) & (engines["process"] >= 0)))
    span_ns = int(calls["end_ns"].to_numpy().max()) - int(calls["start_ns"].to_numpy().min())
    return GraphCapture(union.total_ns, span_ns)
