from statistics import median

import polars as pl
from hypothesis import given
from tests.strategies import traces

from timesink.knowledge.op_class import op_class
from timesink.measures.communication import communication
from timesink.measures.kernels import kernels, median_kernel_ns
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.copies import copies
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


@given(traces())
def test_copies_add_up(trace: Trace) -> None:
    found, ops = copies(trace), trace[DEVICE_OPS].filter(pl.col("kind") == "copy")
    assert found["count"].sum() == ops.height
    assert found["bytes"].sum() == ops["bytes"].sum()
    assert found["total_ns"].sum() == (ops["end_ns"] - ops["start_ns"]).sum()
    assert (found["exposed_ns"] <= found["union_ns"]).all()
    assert (found["union_ns"] <= found["total_ns"]).all()
    for budget in device_timeline(trace):
        mine = found.filter((pl.col("rank") == budget.rank) & (pl.col("device") == budget.device))
        assert mine["exposed_ns"].sum() >= budget.exposed_copy_ns


@given(traces())
def test_the_median_kernel_of_a_device_is_the_middle_of_its_kernels(trace: Trace) -> None:
    lengths: dict[tuple[int, int], list[int]] = {}
    for op in trace.get(DEVICE_OPS).filter(pl.col("kind") == "kernel").iter_rows(named=True):
        lengths.setdefault((op["rank"], op["device"]), []).append(op["end_ns"] - op["start_ns"])
    assert median_kernel_ns(trace) == {device: median(some) for device, some in lengths.items()}


@given(traces())
def test_kernel_shares_sum_to_one_on_each_device(trace: Trace) -> None:
    frame = kernels(trace)
    assert frame["count"].sum() == (trace[DEVICE_OPS]["kind"] == "kernel").sum()
    shares = frame.filter(pl.col("total_ns").sum().over("rank", "device") > 0).group_by("rank", "device")
    for share in shares.agg(pl.col("time_ratio").sum())["time_ratio"]:
        assert abs(share - 1) < 1e-12


@given(traces())
def test_exposed_and_hidden_communication_make_all_of_it(trace: Trace) -> None:
    ops = trace[DEVICE_OPS].with_columns(op_class(trace[DEVICE_OPS]))
    for one in communication(trace):
        mine = ops.filter((pl.col("rank") == one.rank) & (pl.col("device") == one.device))
        talk, work = (Intervals.of(mine.filter(pl.col("op_class") == name)) for name in ("communication", "compute"))
        assert one.overlapped_ns == (talk & work).total_ns
        assert one.exposed_ns + one.overlapped_ns == one.total_ns == talk.total_ns
