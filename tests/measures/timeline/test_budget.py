from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.strategies import frame, traces
from tests.tables import trace_of

from timesink.diagnosis import budgets
from timesink.knowledge.op_class import op_class
from timesink.measures import timeline as lines_of
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import step_budgets
from timesink.measures.timeline import (
    covered_by_device,
    device_gaps,
    device_names,
    device_timeline,
)
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, DEVICES
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


@given(traces())
def test_the_four_parts_make_the_span(trace: Trace) -> None:
    for budget in (*device_timeline(trace), *device_timeline(trace.linked_only())):
        parts = (budget.compute_ns, budget.exposed_communication_ns, budget.exposed_copy_ns, budget.idle_ns)
        assert sum(parts) == budget.span_ns
        assert min(parts) >= 0
        assert budget.exposed_communication_ns <= budget.communication_ns
        assert budget.exposed_copy_ns <= budget.copy.total_ns


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


# Rank 0: a gap before op 1, whose launch came 15 late, and before op 2, queued in time, of three that begin together;
# an op of no length ends the span. Rank 1 has one gap, ended by an op whose launch was not recorded.
GAPS = """
| device_ops | rank | name | stream | start_ns | end_ns | correlation |
| first      |    0 | a    |      7 |       10 |     20 |           1 |
| late       |    0 | a    |      7 |       50 |     60 |           2 |
| unknown    |    0 | a    |      8 |       90 |     92 |          99 |
| second     |    0 | a    |      9 |       90 |     95 |           4 |
| sooner     |    0 | a    |     10 |       90 |     99 |           3 |
| empty      |    0 | a    |      7 |      130 |    130 |           5 |
| other      |    1 | b    |      7 |        0 |      5 |           1 |
| unlinked   |    1 | b    |      7 |        8 |     11 |          98 |

| api_calls | rank | name             | start_ns | end_ns | correlation |
| first     |    0 | cudaLaunchKernel |        1 |      2 |           1 |
| late      |    0 | cudaLaunchKernel |       35 |     36 |           2 |
| sooner    |    0 | cudaLaunchKernel |       41 |     42 |           3 |
| second    |    0 | cudaLaunchKernel |       43 |     44 |           4 |
| empty     |    0 | cudaLaunchKernel |      125 |    140 |           5 |
| other     |    1 | cudaLaunchKernel |        0 |      1 |           1 |
"""
GAPS_BY_HAND = [  # rank, start, end, op, launch, how late the host was
    (0, 20, 50, 1, 35, 15),
    (0, 60, 90, 4, 41, 0),
    (0, 99, 130, 5, 125, 26),
    (1, 5, 8, 7, None, None),
]


def test_gaps_and_who_ended_them_by_hand() -> None:
    columns = ("rank", "start_ns", "end_ns", "op", "launch_start_ns", "host_late_ns")
    gaps = device_gaps(trace_of(GAPS))
    assert gaps.frame.select(columns).rows() == GAPS_BY_HAND
    assert gaps.frame["call"].to_list() == [1, 2, 4, None]
    for rank in (0, 1):
        own = pl.concat(gaps.slices(rank))
        assert own.select(columns).rows() == [row for row in GAPS_BY_HAND if row[0] == rank]
    for at_once in (1, 2, 3):
        with mock.patch.object(lines_of, "GAPS_AT_ONCE", at_once):
            assert device_gaps(trace_of(GAPS)).frame.select(columns).rows() == GAPS_BY_HAND


@st.composite
def launched_ops(draw: st.DrawFn) -> tuple[Int64Array, Int32Array, Int64Array]:
    """Starts of ops, the call that launched each (-1: not recorded), and when calls began; several may be one graph."""
    starts = sorted(draw(st.lists(st.integers(0, 4), min_size=1, max_size=8)))
    began = draw(st.lists(st.integers(0, 9), max_size=4))
    calls = draw(st.lists(st.integers(-1, len(began) - 1), min_size=len(starts), max_size=len(starts)))
    return np.array(starts), np.array(calls, np.int32), np.array([*began, NEVER])


NEVER = np.iinfo(np.int64).max


@given(launched_ops())
@example((np.array([10, 20]), np.array([0, 1], np.int32), np.array([5, 2, NEVER])))  # a later op, launched before
@example((np.array([0, 10, 10]), np.array([0, 1, 2], np.int32), np.array([0, 5, 2, NEVER])))  # the next one
@example((np.array([0, 10, 10]), np.array([0, 1, 1], np.int32), np.array([0, 5, NEVER])))  # both by one graph
@example((np.array([0, 10, 10]), np.array([0, 1, -1], np.int32), np.array([0, 5, NEVER])))
def test_of_ops_that_start_together_the_first_launched_is_found_one_by_one(
    ops: tuple[Int64Array, Int32Array, Int64Array],
) -> None:
    start, call, launched = ops
    asked = np.arange(start.size)
    one_by_one = [
        min((row for row in asked[first:] if start[row] == start[first]), key=lambda row: (launched[call[row]], row))
        for first in asked
    ]
    assert lines_of._find_first_launched(asked, start, call, launched).tolist() == one_by_one


def test_gaps_without_any_call_have_no_launch() -> None:
    gaps = device_gaps(trace_of(GAPS.partition("| api_calls")[0])).frame
    assert gaps.select("op", "launch_start_ns", "host_late_ns").rows()[0] == (1, None, None)
    assert gaps.height == 4


def test_gaps_are_numbered_by_the_stretch_that_ends_them() -> None:
    line = device_timeline(trace_of(GAPS))[0, 0]
    gaps = {(first, last): line.idle_between(first, last) for first in range(4) for last in range(first + 1, 5)}
    assert {key: list(zip(part.start_ns, part.end_ns, strict=True)) for key, part in gaps.items()} == {
        (0, 1): [], (0, 2): [(20, 50)], (0, 3): [(20, 50), (60, 90)], (0, 4): [(20, 50), (60, 90), (99, 130)],
        (1, 2): [(20, 50)], (1, 3): [(20, 50), (60, 90)], (1, 4): [(20, 50), (60, 90), (99, 130)],
        (2, 3): [(60, 90)], (2, 4): [(60, 90), (99, 130)], (3, 4): [(99, 130)],
    }  # fmt: skip


def test_the_budget_of_each_device_by_hand() -> None:
    """Of two steps of 50: kernels take 20 of each, a copy 10 more of the second, a collective 10 more of the first."""
    (budget,) = budgets.step_budgets(trace_of(LOOP))
    assert (budget.rank, budget.device, budget.steps) == (0, 0, 2)
    assert budget.period_ns == 50
    parts = {part.kind: part.time_ns for part in budget.parts}
    assert {kind: parts.get(kind) for kind in ("compute", "copy", "communication")} == {
        "compute": 20, "copy": 5, "communication": 5,
    }  # fmt: skip
    assert sum(parts.values()) == pytest.approx(50)
    idle = [part.time_ns for part in budget.parts if part.kind not in ("compute", "communication", "copy")]
    assert idle == sorted(idle, reverse=True)
    assert len(idle) > 1


@pytest.mark.parametrize("count", [0, 2, 3])
def test_a_budget_tells_of_how_many_steps_it_is(count: int) -> None:
    """Of marked steps the last one is cut off; without any mark it is of the span, and of no step."""
    ranges = LOOP.index("| 0      | ProfilerStep#0")
    marks = "".join(line + "\n" for line in LOOP[ranges:].splitlines()[:count])
    budget, *_ = budgets.step_budgets(trace_of(LOOP[:ranges] + marks))
    assert budget.steps == max(count - 1, 0)


def test_a_part_of_less_than_a_nanosecond_a_step_is_in_the_budget() -> None:
    """The copy is over a nanosecond after the kernel of one of the two steps that are kept."""
    (budget,) = budgets.step_budgets(trace_of(LOOP.replace("|       75 |     90 |", "|       75 |     81 |")))
    assert {part.kind: part.time_ns for part in budget.parts}["copy"] == 0.5


def test_what_is_covered_of_rows_whose_device_has_no_intervals_is_nothing() -> None:
    rows = trace_of(LOOP)[DEVICE_OPS]
    whole = Intervals.one(-(10**9), 10**12)
    assert covered_by_device(rows, {(0, 7): whole}).sum() == 0
    assert covered_by_device(rows, {(0, 0): whole}).sum() == (rows["end_ns"] - rows["start_ns"]).sum()


def test_names_of_devices_that_the_trace_names() -> None:
    devices = [{"rank": 0, "device": 1, "name": "NVIDIA H100"}, {"rank": 2, "device": 0, "name": None}]
    assert device_names(Trace("test", {DEVICES: frame(DEVICES, devices)})) == {(0, 1): "NVIDIA H100"}
