from __future__ import annotations

import polars as pl
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.knowledge.op_class import op_class
from timesink.measures.steps.per_step import step_budgets
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace

LOOP = """
| device_ops | kind   | name            | stream | start_ns | end_ns | correlation |
| step 0     | kernel | gemm            |      7 |       10 |     30 |           1 |
| step 0     | kernel | ncclDevKernel_X |     20 |       20 |     40 |           2 |
| step 1     | kernel | gemm            |      7 |       60 |     80 |           3 |
| step 1     | copy   | Memcpy DtoH     |     21 |       75 |     90 |           4 |
| step 2     | kernel | gemm            |      7 |      110 |    130 |           5 |

| api_calls | name             | start_ns | end_ns | correlation |
| step 0    | cudaLaunchKernel |        1 |      2 |           1 |
| step 0    | cudaLaunchKernel |        3 |      4 |           2 |
| step 1    | cudaLaunchKernel |       51 |     52 |           3 |
| step 1    | cudaMemcpyAsync  |       53 |     54 |           4 |
| step 2    | cudaLaunchKernel |      101 |    102 |           5 |

| ranges | name           | start_ns | end_ns |
| 0      | ProfilerStep#0 |        0 |     50 |
| 1      | ProfilerStep#1 |       50 |    100 |
| 2      | ProfilerStep#2 |      100 |    150 |
"""


def test_compute_hides_communication_and_both_hide_copies() -> None:
    budget = device_timeline(
        trace_of("""
        | device_ops | kind   | name            | stream | start_ns | end_ns |
        | gemm       | kernel | gemm            |      7 |        0 |     40 |
        | reduce     | kernel | ncclDevKernel_X |     20 |       30 |     60 |
        | copy       | copy   | Memcpy HtoD     |     21 |       35 |     70 |
        | set        | set    | Memset          |      7 |       90 |    100 |
        """)
    )[0, 0]
    assert budget.compute_ns == 50
    assert (budget.communication_ns, budget.exposed_communication_ns) == (30, 20)
    assert (budget.copy_ns, budget.exposed_copy_ns) == (35, 10)
    assert (budget.idle_ns, budget.span_ns) == (20, 100)


def test_the_budget_of_a_step_covers_its_window_and_no_more() -> None:
    rows = step_budgets(trace_of(LOOP))
    assert rows.select(pl.exclude("rank", "device")).rows() == [
        (0, 10, 60, 50, 20, 10, 0, 20),
        (1, 60, 110, 50, 20, 0, 10, 20),
    ]


@given(traces())
def test_the_four_parts_make_the_span(trace: Trace) -> None:
    for budget in (*device_timeline(trace), *device_timeline(trace.linked_only())):
        parts = (budget.compute_ns, budget.exposed_communication_ns, budget.exposed_copy_ns, budget.idle_ns)
        assert sum(parts) == budget.span_ns
        assert min(parts) >= 0
        assert budget.exposed_communication_ns <= budget.communication_ns
        assert budget.exposed_copy_ns <= budget.copy_ns


@given(traces())
def test_every_instant_goes_to_the_class_of_highest_priority_that_runs(trace: Trace) -> None:
    ops = trace[DEVICE_OPS].with_columns(op_class(trace[DEVICE_OPS]))
    for budget in device_timeline(trace):
        mine = ops.filter((pl.col("rank") == budget.rank) & (pl.col("device") == budget.device))
        owner: dict[int, str] = {}
        for name in ("copy", "communication", "compute"):
            rows = mine.filter(pl.col("op_class") == name).select("start_ns", "end_ns").iter_rows()
            owner |= {instant: name for start, end in rows for instant in range(start, end)}
        owned = list(owner.values())
        assert budget.compute_ns == owned.count("compute")
        assert budget.exposed_communication_ns == owned.count("communication")
        assert budget.exposed_copy_ns == owned.count("copy")


@given(traces())
def test_the_parts_of_every_step_make_its_period(trace: Trace) -> None:
    rows = step_budgets(trace)
    parts = pl.sum_horizontal("compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    assert rows.height == steps(trace).windows.height
    assert rows.select((parts == pl.col("period_ns")).all()).item()
