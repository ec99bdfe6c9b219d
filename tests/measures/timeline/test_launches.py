from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from tests.strategies import shifted, traces
from tests.tables import trace_of

from timesink.measures.timeline import device_gaps, device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.launches import launch_units, launches
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace

THREE_GAPS = """
| device_ops | name | start_ns | end_ns | correlation |
| first      | a    |       10 |     20 |           1 |
| late       | b    |       50 |     60 |           2 |
| queued     | c    |       63 |     70 |           3 |
| unknown    | d    |       75 |     80 |             |

| api_calls | name             | start_ns | end_ns | correlation |
| first     | cudaLaunchKernel |        0 |      5 |           1 |
| late      | cudaLaunchKernel |       42 |     45 |           2 |
| queued    | cudaLaunchKernel |       46 |     48 |           3 |
"""


def test_a_gap_is_the_hosts_until_the_launch() -> None:
    gaps = device_gaps(trace_of(THREE_GAPS)).frame
    columns = ("start_ns", "end_ns", "launch_start_ns", "host_late_ns")
    assert gaps.select(columns).rows() == [
        (20, 50, 42, 22),
        (60, 63, 46, 0),
        (70, 75, None, None),
    ]


def test_ops_of_two_ranks_that_start_at_once_end_gaps_of_their_own_rank_only() -> None:
    trace = trace_of("""
        | device_ops | rank | name | start_ns | end_ns | correlation |
        | first      |    0 | a    |       10 |     20 |           1 |
        | last       |    0 | b    |       50 |     60 |           2 |
        | other rank |    1 | c    |       50 |     70 |           1 |

        | api_calls  | rank | name             | start_ns | end_ns | correlation |
        | first      |    0 | cudaLaunchKernel |        0 |      5 |           1 |
        | last       |    0 | cudaLaunchKernel |       42 |     45 |           2 |
        | other rank |    1 | cudaLaunchKernel |        3 |      6 |           1 |
    """)
    assert device_gaps(trace).frame.select("op", "launch_start_ns").rows() == [(1, 42)]


def test_launches_of_a_device() -> None:
    found = launches(trace_of(THREE_GAPS))[0, 0]
    assert found.launch_count == 3
    assert (found.latency_p50_ns, found.run_ahead_p50_ns, found.interval_p50_ns) == (5.0, 10.0, 23.0)
    assert found.host_late_ratio == 22 / 70
    assert found.empty_queue_ratio == 2 / 3


def test_queue_depth_counts_earlier_launches_onto_the_stream_that_wait() -> None:
    units = launch_units(
        trace_of("""
        | device_ops | name | stream | start_ns | end_ns | correlation |
        | running    | a    |      7 |        2 |     50 |           1 |
        | waiting    | b    |      7 |       50 |     60 |           2 |
        | waiting    | c    |      7 |       60 |     70 |           3 |
        | elsewhere  | d    |     20 |       60 |     61 |           4 |

        | api_calls | name             | start_ns | end_ns | correlation |
        | a         | cudaLaunchKernel |        0 |      1 |           1 |
        | b         | cudaLaunchKernel |        3 |      4 |           2 |
        | c         | cudaLaunchKernel |        5 |      6 |           3 |
        | d         | cudaLaunchKernel |       55 |     56 |           4 |
        """)
    )
    assert units["queue_depth"].to_list() == [0, 0, 1, 0]


def test_a_graph_launch_is_one_launch() -> None:
    trace = trace_of("""
        | device_ops | name | stream | start_ns | end_ns | correlation |
        | one        | a    |      7 |       10 |     20 |           1 |
        | two        | b    |     20 |       12 |     30 |           1 |
        | three      | c    |      7 |       30 |     40 |           1 |

        | api_calls | name            | start_ns | end_ns | correlation |
        | replay    | cudaGraphLaunch |        0 |      5 |           1 |
        """)
    found = launches(trace)[0, 0]
    assert found.launch_count == 1
    assert launch_units(trace).select("op_count", "op_start_ns").rows() == [(3, 10)]


def test_without_calls_nothing_is_known_of_launches() -> None:
    found = launches(trace_of("| device_ops | name | start_ns | end_ns |\n| a | a | 0 | 5 |\n| b | b | 9 | 10 |"))[0, 0]
    assert (found.launch_count, found.host_late_ratio, found.latency_p50_ns) == (0, 0.0, None)


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


def test_ids_far_apart_are_found_without_a_table() -> None:
    trace = trace_of(f"""
        | device_ops | name | start_ns | end_ns | correlation |
        | a          | a    |       10 |     20 |           1 |
        | b          | b    |       20 |     30 |  {2**62}    |
        | c          | c    |       30 |     40 |           7 |

        | api_calls | name             | start_ns | end_ns | correlation |
        | a         | cudaLaunchKernel |        0 |      1 |           1 |
        | b         | cudaLaunchKernel |        1 |      2 |  {2**62}    |
        """)
    assert launch_links(trace).call.tolist() == [0, 1, -1]
    assert trace[DEVICE_OPS].select(pl.len()).item() == 3
