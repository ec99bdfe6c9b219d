"""Measures of a trace that was cut to a window: its edges are neither idle time nor short steps."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from tests.measures.steps.test_steps import loop
from tests.strategies import traces

from timesink.measures.steps import steps
from timesink.measures.steps.per_step import step_budgets
from timesink.measures.timeline import device_timeline
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace


def test_a_step_that_the_window_cuts_is_not_timed() -> None:
    whole = loop([100] * 12)  # kernels run 500 ns after their launch
    cut = steps(whole.between(650, 1_150))
    kept = cut.windows.select("start_ns", "end_ns").rows()
    # Kernels of steps 2 to 6 run in it. Step 2 may lack some, 6 has no successor, 7 to 11 are only launched.
    assert kept == [(801, 901), (901, 1001), (1001, 1101)] and cut.dropped == {"begun_before": 1, "truncated": 1}


def test_steps_inside_a_window_last_as_long_as_in_the_whole_trace() -> None:
    whole = loop([100, 100, 100, 100, 100, 130, 170, 100, 100, 100, 100, 100, 100, 100])
    periods = dict(steps(whole).windows.select("start_ns", "period_ns").rows())
    cut = dict(steps(whole.between(250, 1_450)).windows.select("start_ns", "period_ns").rows())
    assert len(cut) == 7 and cut.items() <= periods.items()


def test_a_slow_first_step_of_a_window_in_the_middle_is_no_warm_up() -> None:
    whole = loop([100, 100, 100, 100, 900, 100, 100, 100, 100, 100, 100, 100])
    cut = steps(whole.between(350, 5_000))
    assert cut.times.max_ns == 900 and cut.dropped == {"begun_before": 1, "truncated": 1}


def test_a_window_from_the_first_event_on_keeps_the_first_steps() -> None:
    whole = loop([100] * 12)
    cut = steps(whole.between(0, 1_150))
    assert cut.windows["start_ns"].to_list() == steps(whole).windows["start_ns"].to_list()[: len(cut.windows)]
    assert cut.dropped == {"truncated": 1}


def test_the_first_steps_of_a_run_are_warm_up_though_a_window_opens_before_them() -> None:
    whole = loop([900, 100, 100, 100, 100, 100, 100, 100])
    late = {table: frame.with_columns(pl.col("start_ns", "end_ns") + 5_000) for table, frame in whole.tables.items()}
    calls = pl.concat([whole[API_CALLS].head(1).with_columns(correlation=pl.lit(99, pl.Int64)), late[API_CALLS]])
    trace = Trace("late", {**late, API_CALLS: calls})
    assert trace.extent_ns is not None and trace.extent_ns[0] == 1
    assert steps(trace.between(3_000, 20_000)).dropped == {"truncated": 1, "warm_up": 1}


def test_a_last_step_without_its_kernel_does_not_end_the_one_before() -> None:
    whole = loop([100] * 8)
    ops = whole[DEVICE_OPS]
    copies = ops.with_columns(pl.col("start_ns", "end_ns") - 60, kind=pl.lit("copy").cast(ops.schema["kind"]))
    both = DEVICE_OPS.check(pl.concat([ops, copies]).sort(DEVICE_OPS.sorted_by))
    trace = Trace("copies", {**whole.tables, DEVICE_OPS: both})
    cut = steps(trace.between(0, 1_060)).windows  # the copy of step 6 at 1041, its kernel at 1101
    assert cut.select("start_ns", "end_ns").rows()[-1] == (901, 1_001) and cut["period_ns"].unique().to_list() == [100]


@given(traces(), st.integers(0, 150), st.integers(1, 150))
def test_a_window_is_busy_where_the_whole_trace_is(trace: Trace, start: int, length: int) -> None:
    whole, cut = device_timeline(trace), device_timeline(trace.between(start, start + length))
    for line in cut:
        busy = whole[line.rank, line.device].busy
        assert line.busy_ns == busy.covered_ns([start], [start + length])[0]
        assert line.busy_ns + line.idle.total_ns == line.span_ns <= length


@given(traces(), st.integers(0, 150), st.integers(1, 150))
def test_steps_of_a_window_are_steps_of_the_trace_or_dropped(trace: Trace, start: int, length: int) -> None:
    cut = trace.between(start, start + length)
    for row in step_budgets(cut).iter_rows(named=True):
        assert start <= row["start_ns"] < row["end_ns"] <= start + length
