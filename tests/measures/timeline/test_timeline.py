import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import reordered, shifted, traces

from timesink.measures.timeline import DeviceTimeline, DeviceTimelines, device_timeline
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


def figures(lines: DeviceTimelines) -> list[tuple[int, ...]]:
    """All that a timeline says, less its place on the clock."""

    def parts(line: DeviceTimeline) -> tuple[int, ...]:
        unions = (line.busy, line.compute, line.communication, line.copy)
        return (
            line.rank,
            line.device,
            line.span_ns,
            line.busy_ns,
            *(union.total_ns for union in unions),
            len(line.busy),
        )

    return [parts(line) for line in lines]


def test_no_device_ops_no_timelines() -> None:
    assert len(device_timeline(Trace("empty", {}))) == 0
    assert len(device_timeline(Trace("empty", {DEVICE_OPS: DEVICE_OPS.empty()}))) == 0


@given(traces())
def test_busy_and_idle_make_the_span(trace: Trace) -> None:
    for line in (*device_timeline(trace), *device_timeline(trace.linked_only())):
        assert line.busy_ns + line.idle_ns == line.span_ns
        assert line.idle.total_ns == line.idle_ns


@given(traces())
def test_the_union_is_the_count_of_instants_at_which_something_runs(trace: Trace) -> None:
    ops = trace[DEVICE_OPS]
    for line in device_timeline(trace):
        mine = ops.filter((pl.col("rank") == line.rank) & (pl.col("device") == line.device))
        instants = {t for start, end in mine.select("start_ns", "end_ns").iter_rows() for t in range(start, end)}
        assert line.busy_ns == len(instants)


@given(traces(), st.integers(-(10**18), 10**18))
def test_moving_the_clock_changes_nothing(trace: Trace, by_ns: int) -> None:
    assert figures(device_timeline(shifted(trace, by_ns))) == figures(device_timeline(trace))


@given(traces())
def test_the_order_of_rows_changes_nothing(trace: Trace) -> None:
    assert figures(device_timeline(reordered(trace, pl.DataFrame.reverse))) == figures(device_timeline(trace))


@given(traces(min_ops=1), st.data())
def test_cutting_an_op_in_two_changes_nothing(trace: Trace, data: st.DataObject) -> None:
    ops = trace[DEVICE_OPS]
    at = data.draw(st.integers(0, ops.height - 1))
    cut = data.draw(st.integers(int(ops["start_ns"][at]), int(ops["end_ns"][at])))
    is_it = pl.Series(np.arange(ops.height) == at)
    halves = pl.concat(
        [
            ops.filter(~is_it),
            ops.filter(is_it).with_columns(pl.lit(cut, pl.Int64).alias("end_ns")),
            ops.filter(is_it).with_columns(pl.lit(cut, pl.Int64).alias("start_ns")),
        ]
    )
    cut_trace = Trace("cut", {DEVICE_OPS: halves.sort(DEVICE_OPS.sorted_by)})
    whole = [figure[:-1] for figure in figures(device_timeline(Trace("whole", {DEVICE_OPS: ops})))]
    assert [figure[:-1] for figure in figures(device_timeline(cut_trace))] == whole
