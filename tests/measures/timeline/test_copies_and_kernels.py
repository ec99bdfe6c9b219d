from __future__ import annotations

from statistics import median

import polars as pl
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.knowledge.op_class import op_class
from timesink.measures.communication import communication
from timesink.measures.kernels import kernels, median_kernel_ns
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.copies import copies
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


def test_copies_are_told_apart_by_direction_and_memory() -> None:
    found = copies(
        trace_of("""
        | device_ops | kind   | name   | stream | copy_kind | src_memory | dst_memory | bytes | start_ns | end_ns |
        | hidden     | copy   | Memcpy |     21 | h2d       | pinned     | device     |   500 |        0 |     50 |
        | half       | copy   | Memcpy |     21 | h2d       | pinned     | device     |   700 |       90 |    110 |
        | slow       | copy   | Memcpy |     21 | h2d       | pageable   | device     |   100 |      120 |    140 |
        | unsized    | copy   | Memcpy |     21 | d2d       |            |            |       |      150 |    160 |
        | kernel     | kernel | gemm   |      7 |           |            |            |       |        0 |    100 |
        """)
    )
    columns = ("copy_kind", "src_memory", "count", "bytes", "total_ns", "union_ns", "exposed_ns", "gigabytes_per_s")
    assert found.select(columns).rows() == [
        ("h2d", "pinned", 2, 1200, 70, 70, 10, 1200 / 70),
        ("h2d", "pageable", 1, 100, 20, 20, 20, 5.0),
        ("d2d", "unknown", 1, 0, 10, 10, 10, None),
    ]


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


def test_kernels_of_a_name_are_summed_per_device() -> None:
    found = kernels(
        trace_of("""
        | device_ops | device | name | kind   | start_ns | end_ns |
        | a          |      0 | gemm | kernel |        0 |     30 |
        | b          |      0 | gemm | kernel |       30 |     40 |
        | c          |      0 | add  | kernel |       40 |     50 |
        | d          |      1 | gemm | kernel |        0 |      5 |
        | no kernel  |      1 | set  | set    |        5 |     50 |
        """)
    )
    columns = ("device", "name", "count", "total_ns", "mean_ns", "min_ns", "max_ns", "time_ratio")
    assert found.select(columns).rows() == [
        (0, "gemm", 2, 40, 20.0, 10, 30, 0.8),
        (0, "add", 1, 10, 10.0, 10, 10, 0.2),
        (1, "gemm", 1, 5, 5.0, 5, 5, 1.0),
    ]


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


def test_communication_beside_computation_is_hidden() -> None:
    found = communication(
        trace_of("""
        | device_ops | name            | stream | start_ns | end_ns |
        | gemm       | gemm            |      7 |        0 |     40 |
        | reduce     | ncclDevKernel_X |     20 |       30 |     70 |
        """)
    )
    one = found[0, 0]
    assert (one.total_ns, one.exposed_ns, one.overlapped_ns, one.overlap_ratio) == (40, 30, 10, 0.25)
    assert found.by_name.select("name", "count", "total_ns").rows() == [("ncclDevKernel_X", 1, 40)]


def test_no_communication_has_no_overlap_ratio() -> None:
    found = communication(trace_of("| device_ops | name | start_ns | end_ns |\n| a | gemm | 0 | 1 |"))
    assert (found[0, 0].total_ns, found[0, 0].overlap_ratio) == (0, None)


@given(traces())
def test_exposed_and_hidden_communication_make_all_of_it(trace: Trace) -> None:
    ops = trace[DEVICE_OPS].with_columns(op_class(trace[DEVICE_OPS]))
    for one in communication(trace):
        mine = ops.filter((pl.col("rank") == one.rank) & (pl.col("device") == one.device))
        talk, work = (Intervals.of(mine.filter(pl.col("op_class") == name)) for name in ("communication", "compute"))
        assert one.overlapped_ns == (talk & work).total_ns
        assert one.exposed_ns + one.overlapped_ns == one.total_ns == talk.total_ns
