import polars as pl
from hypothesis import given
from tests.strategies import reordered, traces

from timesink.measures.timeline.attribution import attribution, launch_links, operator_kernels, operator_times
from timesink.measures.timeline.ranges import range_projection
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace


@given(traces())
def test_the_kernels_of_all_operators_sum_to_what_they_launched(trace: Trace) -> None:
    found = operator_kernels(trace)
    assert found.equals(operator_kernels(trace, "")) or not trace.get(HOST_OPS).height
    own = operator_times(trace).filter(pl.col("self_device_ns") > 0)
    sums = found.group_by("rank", "operator").agg(pl.col("total_ns").sum()).filter(pl.col("total_ns") > 0)
    assert dict(zip(sums.select("rank", "operator").rows(), sums["total_ns"], strict=True)) == dict(
        zip(own.select("rank", "name").rows(), own["self_device_ns"], strict=True)
    )


@given(traces())
def test_self_times_and_the_rest_make_the_total(trace: Trace) -> None:
    found, ops = attribution(trace), trace[DEVICE_OPS]
    assert found.total_ns == int((ops["end_ns"] - ops["start_ns"]).sum())
    assert int(operator_times(trace)["self_device_ns"].sum()) + found.unattributed_ns == found.total_ns
    kernels = ops["kind"].is_in(["kernel", "graph"]).to_numpy()
    assert int(operator_times(trace)["kernels"].sum()) == int((kernels & (found.host_op >= 0)).sum())
    assert int((found.host_op < 0).sum()) == found.unattributed_count
    assert (operator_times(trace)["total_device_ns"] <= found.total_ns).all()


@given(traces())
def test_an_op_with_a_place_is_held_by_its_operator_and_by_no_smaller_one(trace: Trace) -> None:
    links, found = launch_links(trace), attribution(trace)
    calls, host = trace[API_CALLS], trace[HOST_OPS]
    for op, row in enumerate(found.host_op.tolist()):
        if links.call[op] < 0:
            continue
        call = calls.row(int(links.call[op]), named=True)
        holding = host.filter(
            (pl.col("rank") == call["rank"])
            & (pl.col("thread") == call["thread"])
            & (pl.col("start_ns") <= call["start_ns"])
            & (pl.col("end_ns") > call["start_ns"])
        )
        lengths = (holding["end_ns"] - holding["start_ns"]).to_list()
        if lengths:
            assert host["end_ns"][row] - host["start_ns"][row] == min(lengths)


@given(traces())
def test_the_order_of_rows_attributes_no_more_and_no_less(trace: Trace) -> None:
    """Of two operators with the same interval either may own a kernel; whether one does must not depend on order."""
    here, there = attribution(trace), attribution(reordered(trace, pl.DataFrame.reverse))
    figures = ("total_ns", "unattributed_ns", "unattributed_count")
    assert [getattr(here, name) for name in figures] == [getattr(there, name) for name in figures]


@given(traces())
def test_a_range_and_its_device_time_obey_their_bounds(trace: Trace) -> None:
    found = range_projection(trace)
    for row in found.iter_rows(named=True):
        assert 0 <= row["device_ns"] <= row["last_ns"] - row["first_ns"]
