import polars as pl
import pytest
from hypothesis import given
from tests.strategies import shifted, traces

from timesink.measures.timeline import device_gaps, device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.launches import launch_units, launches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace


@given(traces())
def test_the_host_is_late_in_no_more_than_the_gaps(trace: Trace) -> None:
    gaps = device_gaps(trace).frame
    for (rank, device), line in device_timeline(trace).by_device.items():
        of_device = gaps.filter((pl.col("rank") == rank) & (pl.col("device") == device))
        length = of_device["end_ns"] - of_device["start_ns"]
        assert length.sum() == line.idle.total_ns == line.idle_ns
        assert of_device["host_late_ns"].is_between(0, length).all()
        late_ns = launches(trace)[rank, device].host_late_ratio * line.span_ns
        assert late_ns == pytest.approx(of_device["host_late_ns"].sum())


@given(traces())
def test_every_linked_op_has_one_launch(trace: Trace) -> None:
    units, links = launch_units(trace), launch_links(trace)
    assert units["op_count"].sum() == links.linked_count
    assert not units.select("rank", "device", "call").is_duplicated().any()
    assert (units["queue_depth"] >= 0).all()


@given(traces())
def test_a_link_is_within_one_process_and_correlation(trace: Trace) -> None:
    ops, calls, links = trace[DEVICE_OPS], trace[API_CALLS], launch_links(trace)
    known = set(calls.select("rank", "process", "correlation").rows())
    for op, call in enumerate(links.call.tolist()):
        key = ops.select("rank", "process", "correlation").row(op)
        assert (call >= 0) == (key[2] is not None and key in known)
        assert call < 0 or calls.select("rank", "process", "correlation").row(call) == key


@given(traces())
def test_moving_the_clock_changes_no_launch(trace: Trace) -> None:
    here, there = launch_units(trace), launch_units(shifted(trace, 10**15))
    assert here.select("call", "op", "queue_depth").equals(there.select("call", "op", "queue_depth"))
