"""How much of a trace is the capture of a CUDA graph, in which kernels are recorded into the graph and do not run."""

from __future__ import annotations

import polars as pl

from timesink.knowledge.calls import CAPTURE_BEGIN, CAPTURE_END, GRAPH_LAUNCH
from timesink.knowledge.ranges import CAPTURED_SIZE
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.record import dataclass
from timesink.model.tables import API_CALLS, RANGES
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True)
class GraphCapture:
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
