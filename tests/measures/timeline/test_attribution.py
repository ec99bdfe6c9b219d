from __future__ import annotations

import polars as pl
from hypothesis import given
from tests.strategies import reordered, traces
from tests.tables import trace_of

from timesink.measures.timeline.attribution import attribution, launch_links, operator_kernels
from timesink.measures.timeline.ranges import range_projection
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace

NESTED = """
| device_ops  | name | start_ns | end_ns | correlation | external_id |
| of mm       | gemm |      100 |    130 |           1 |           2 |
| of linear   | bias |      130 |    140 |           2 |           1 |
| by id only  | late |      150 |    155 |             |           3 |
| of nobody   | lost |      160 |    161 |             |             |

| api_calls | name             | start_ns | end_ns | correlation |
| in mm     | cudaLaunchKernel |       12 |     13 |           1 |
| in linear | cudaLaunchKernel |       35 |     36 |           2 |

| host_ops | name         | start_ns | end_ns | external_id |
| outer    | aten::linear |        0 |     40 |           1 |
| inner    | aten::mm     |       10 |     20 |           2 |
| other    | aten::add    |       50 |     60 |           3 |
"""


def test_a_kernel_belongs_to_the_innermost_operator_around_its_launch() -> None:
    found = attribution(trace_of(NESTED))
    rows = found.operators.select("name", "calls", "kernels", "self_device_ns", "total_device_ns").rows()
    assert rows == [("aten::linear", 1, 1, 10, 40), ("aten::mm", 1, 1, 30, 30), ("aten::add", 1, 1, 5, 5)]
    assert (found.total_ns, found.unattributed_ns, found.unattributed_count) == (46, 1, 1)


def test_the_kernels_of_an_operator_are_those_it_launched_or_that_were_launched_inside_it() -> None:
    trace = trace_of(NESTED)
    own = operator_kernels(trace).select("operator", "name", "count", "total_ns", "operator_ratio").rows()
    assert own == [
        ("aten::mm", "gemm", 1, 30, 1.0),
        ("aten::linear", "bias", 1, 10, 1.0),
        ("aten::add", "late", 1, 5, 1.0),
    ]
    inside = operator_kernels(trace, "linear").select("operator", "name", "total_ns", "operator_ratio").rows()
    assert inside == [("aten::linear", "gemm", 30, 0.75), ("aten::linear", "bias", 10, 0.25)]
    assert not operator_kernels(trace, "no such").height


@given(traces())
def test_the_kernels_of_all_operators_sum_to_what_they_launched(trace: Trace) -> None:
    found = operator_kernels(trace)
    assert found.equals(operator_kernels(trace, "")) or not trace.get(HOST_OPS).height
    own = attribution(trace).operators.filter(pl.col("self_device_ns") > 0)
    sums = found.group_by("rank", "operator").agg(pl.col("total_ns").sum()).filter(pl.col("total_ns") > 0)
    assert dict(zip(sums.select("rank", "operator").rows(), sums["total_ns"], strict=True)) == dict(
        zip(own.select("rank", "name").rows(), own["self_device_ns"], strict=True)
    )


def test_first_contact_defect_22_copies_and_memsets_of_an_operator_are_no_kernels_of_it() -> None:
    trace = trace_of("""
        | device_ops | name   | kind   | start_ns | end_ns | correlation |
        | clear      | memset | set    |       90 |     95 |           1 |
        | multiply   | gemm   | kernel |      100 |    130 |           2 |

        | api_calls | name             | start_ns | end_ns | correlation |
        | a         | cudaMemsetAsync  |       12 |     13 |           1 |
        | b         | cudaLaunchKernel |       14 |     15 |           2 |

        | host_ops  | name     | start_ns | end_ns |
        | here      | aten::mm |       10 |     20 |
        """)
    assert attribution(trace).operators.select("kernels", "self_device_ns").rows() == [(1, 35)]


def test_the_place_of_the_launch_outweighs_the_external_id() -> None:
    trace = trace_of("""
        | device_ops | name | start_ns | end_ns | correlation | external_id |
        | a          | gemm |      100 |    130 |           1 |           9 |

        | api_calls | name             | start_ns | end_ns | correlation |
        | a         | cudaLaunchKernel |       12 |     13 |           1 |

        | host_ops  | name          | start_ns | end_ns | external_id |
        | here      | aten::mm      |       10 |     20 |           2 |
        | elsewhere | aten::detach_ |       50 |     60 |           9 |
        """)
    found = attribution(trace)
    assert dict(found.operators.select("name", "self_device_ns").rows()) == {"aten::mm": 30, "aten::detach_": 0}


def test_kernels_of_a_graph_go_to_the_operator_around_the_replay_or_to_nobody() -> None:
    text = """
        | device_ops | name | start_ns | end_ns | correlation | external_id |
        | first      | gemm |      100 |    130 |           1 |           7 |
        | second     | gelu |      130 |    140 |           1 |           7 |

        | api_calls | name            | start_ns | end_ns | correlation |
        | replay    | cudaGraphLaunch |       12 |     13 |           1 |

        | host_ops | name       | start_ns | end_ns | external_id |
        | captured | aten::mm   |       50 |     60 |           7 |
        """
    found = attribution(trace_of(text))
    assert found.unattributed_ns == 40
    assert launch_links(trace_of(text)).shared.all()
    around = attribution(trace_of(text + "| around | graph_replay | 10 | 20 | 8 |"))
    assert dict(around.operators.select("name", "self_device_ns").rows()) == {"graph_replay": 40, "aten::mm": 0}


def test_a_recursive_operator_counts_its_work_once() -> None:
    found = attribution(
        trace_of("""
        | device_ops | name | start_ns | end_ns | correlation |
        | a          | gemm |      100 |    130 |           1 |

        | api_calls | name             | start_ns | end_ns | correlation |
        | a         | cudaLaunchKernel |       12 |     13 |           1 |

        | host_ops | name      | start_ns | end_ns |
        | outer    | aten::div |        0 |     40 |
        | inner    | aten::div |       10 |     20 |
        """)
    )
    assert found.operators.select("calls", "total_device_ns", "total_host_ns").rows() == [(2, 30, 40)]


@given(traces())
def test_self_times_and_the_rest_make_the_total(trace: Trace) -> None:
    found, ops = attribution(trace), trace[DEVICE_OPS]
    assert found.total_ns == int((ops["end_ns"] - ops["start_ns"]).sum())
    assert int(found.operators["self_device_ns"].sum()) + found.unattributed_ns == found.total_ns
    kernels = ops["kind"].is_in(["kernel", "graph"]).to_numpy()
    assert int(found.operators["kernels"].sum()) == int((kernels & (found.host_op >= 0)).sum())
    assert int((found.host_op < 0).sum()) == found.unattributed_count
    assert (found.operators["total_device_ns"] <= found.total_ns).all()


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


def test_a_range_owns_the_union_of_the_work_launched_in_it_on_its_thread() -> None:
    found = range_projection(
        trace_of("""
        | device_ops     | name | stream | start_ns | end_ns | correlation |
        | first          | a    |      7 |      100 |    130 |           1 |
        | beside it      | b    |     20 |      120 |    150 |           2 |
        | other thread's | c    |      7 |      150 |    190 |           3 |

        | api_calls | name             | thread | start_ns | end_ns | correlation |
        | a         | cudaLaunchKernel |      1 |       12 |     13 |           1 |
        | b         | cudaLaunchKernel |      1 |       25 |     26 |           2 |
        | c         | cudaLaunchKernel |      2 |       14 |     15 |           3 |

        | ranges  | name    | start_ns | end_ns |
        | outer   | step    |        0 |     40 |
        | inner   | forward |       10 |     20 |
        | nothing | idle    |       50 |     60 |
        """)
    )
    columns = ("name", "op_count", "device_ns", "first_ns", "last_ns")
    assert found.with_columns(pl.col("name").cast(pl.String)).select(columns).rows() == [
        ("step", 2, 50, 100, 150),
        ("forward", 1, 30, 100, 130),
    ]


def test_ranges_that_cross_each_own_what_was_launched_in_them() -> None:
    found = range_projection(
        trace_of("""
        | device_ops | name | start_ns | end_ns | correlation |
        | a          | a    |      100 |    110 |           1 |
        | b          | b    |      110 |    130 |           2 |

        | api_calls | name             | start_ns | end_ns | correlation |
        | a         | cudaLaunchKernel |        5 |      6 |           1 |
        | b         | cudaLaunchKernel |       15 |     16 |           2 |

        | ranges | name  | kind      | start_ns | end_ns |
        | early  | early | start_end |        0 |     20 |
        | late   | late  | start_end |       10 |     30 |
        """)
    )
    assert dict(found.select("name", "device_ns").rows()) == {"early": 30, "late": 20}


@given(traces())
def test_a_range_and_its_device_time_obey_their_bounds(trace: Trace) -> None:
    found = range_projection(trace)
    for row in found.iter_rows(named=True):
        assert 0 <= row["device_ns"] <= row["last_ns"] - row["first_ns"]
