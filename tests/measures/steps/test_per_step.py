"""Time per step, and copies as intervals, by hand.

How often slow steps come, counted from all the steps of a recording.
"""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measures.steps.spike_traces import simulated
from tests.measures.steps.test_steps import loop
from tests.tables import trace_of

from timesink.diagnosis import budgets
from timesink.measures.steps import per_step, steps
from timesink.measures.steps.per_step import (
    begun_per_step,
    in_most_steps,
    largest_per_step_ns,
    longest_period_ns,
    per_step_ns,
    period_name,
    period_ns,
    share_of_step,
    step_budgets,
    step_windows,
)
from timesink.measures.steps.slow_steps import slow_rates, weights
from timesink.measures.timeline import device_timeline
from timesink.model.intervals import Intervals

US = 1_000
DEVICE = (0, 0)

STEPS = """
| ranges | name             | start_us | end_us | times | every_us |
| step   | ProfilerStep#{n} |        0 |    100 |     5 |      100 |

| api_calls | name             | correlation | start_us | end_us | times | every_us |
| launch    | cudaLaunchKernel |           1 |        1 |      2 |     5 |      100 |

| device_ops | name | correlation | start_us | end_us | times | every_us |
| kernel     | a    |           1 |       10 |     60 |     5 |      100 |
"""


def test_figures_are_means_over_the_kept_steps() -> None:
    trace = trace_of(STEPS)
    busy = device_timeline(trace)[DEVICE].busy
    assert period_name(trace) == "step"
    assert period_ns(trace, DEVICE) == 100 * US
    assert per_step_ns(trace, DEVICE, busy) == 50 * US
    assert share_of_step(trace, DEVICE, busy) == pytest.approx(0.5)


def test_time_outside_the_kept_steps_does_not_count() -> None:
    trace = trace_of(STEPS)
    assert per_step_ns(trace, DEVICE, Intervals.one(5_000 * US, 6_000 * US)) == 0
    assert largest_per_step_ns(trace, {}) == 0


def test_of_several_devices_the_largest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_step, "per_step_ns", lambda _, device, claimed: device[1] + claimed.total_ns)
    claimed = {(0, 5): Intervals.one(0, 2), (0, 1): Intervals.one(3, 7)}
    assert largest_per_step_ns(trace_of(STEPS), claimed) == 7


def test_every_mean_counts_slow_steps_as_often_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim of 50 of 100 us in each step; with weights of 0, 1, 2 and more, 30 us of the second count for that."""
    trace = trace_of(STEPS)
    busy = device_timeline(trace)[DEVICE].busy
    assert largest_per_step_ns(trace, {DEVICE: busy}) == 50 * US
    asked: list[object] = []

    def weights_in(_: object, rank: object, lengths: np.ndarray) -> np.ndarray:
        asked.extend((rank, *lengths.tolist()))
        return np.arange(lengths.size, dtype=float)

    monkeypatch.setattr(per_step, "weights_in", weights_in)
    trace = trace_of(STEPS)  # weights are worked out once a trace
    start = int(per_step.step_windows(trace, DEVICE)[0][1])
    claimed = {DEVICE: Intervals.one(start, start + 30 * US), (0, 0): Intervals.one(start, start + 30 * US)}
    kept = per_step.step_windows(trace, DEVICE)[0].size
    assert largest_per_step_ns(trace, claimed) == pytest.approx(30 * US / sum(range(kept)))
    assert asked[: kept + 1] == [0] + [100 * US] * kept
    assert per_step_ns(trace, DEVICE, claimed[DEVICE]) == pytest.approx(30 * US / sum(range(kept)))
    assert period_ns(trace, DEVICE) == 100 * US


def test_instants_are_counted_in_the_kept_steps_of_their_rank_their_ends_left_out() -> None:
    trace = trace_of("""
| ranges | name             | rank | start_us | end_us | times | every_us |
| one    | ProfilerStep#{n} |    0 |        0 |    100 |     5 |      130 |
| other  | ProfilerStep#{n} |    1 |       40 |     90 |     5 |       50 |

| api_calls | name             | rank | correlation | start_us | end_us | times | every_us |
| of one    | cudaLaunchKernel |    0 |           1 |        1 |      2 |     5 |      130 |
| of other  | cudaLaunchKernel |    1 |         101 |       41 |     42 |     5 |       50 |

| device_ops | name | rank | correlation | start_us | end_us | times | every_us |
| of one     | a    |    0 |           1 |       10 |     60 |     5 |      130 |
| of other   | a    |    1 |         101 |       50 |     70 |     5 |       50 |
""")
    for rank in (0, 1):
        kept = steps(trace).kept.filter(pl.col("rank") == rank)
        start, end = kept["host_start_ns"].to_list(), kept["host_end_ns"].to_list()
        assert len(start) == 4
        instants = [at + by for at in (*start, *end) for by in (-1, 0, 0, 1, 7)]
        within = sum(a <= instant < b for instant in instants for a, b in zip(start, end, strict=True))
        assert begun_per_step(trace, rank, pl.Series(instants)) == pytest.approx(within / len(start))
        assert begun_per_step(trace, rank, pl.Series([start[1]])) == pytest.approx(1 / len(start))
    assert begun_per_step(trace, 2, pl.Series([5, 5_000])) == 2


def test_a_device_without_steps_is_measured_in_the_longest_not_in_the_last() -> None:
    """Steps of 130 us, and after them, on another rank, of 60; a third device works from the second of 130 us on."""
    trace = trace_of("""
| ranges | name             | rank | start_us | end_us | times | every_us |
| last   | ProfilerStep#{n} |    0 |    1_000 |  1_050 |     5 |       60 |
| long   | ProfilerStep#{n} |    1 |        0 |    100 |     5 |      130 |

| api_calls | name             | rank | correlation | start_us | end_us | times | every_us |
| of last   | cudaLaunchKernel |    0 |           1 |    1_001 |  1_002 |     5 |       60 |
| of long   | cudaLaunchKernel |    1 |         101 |        1 |      2 |     5 |      130 |

| device_ops | name | rank | correlation | start_us | end_us | times | every_us |
| of last    | a    |    0 |           1 |    1_010 |  1_030 |     5 |       60 |
| of long    | a    |    1 |         101 |       10 |     60 |     5 |      130 |
| of none    | a    |    2 |             |      200 |    300 |    10 |      100 |
""")
    assert {rank: period_ns(trace, (rank, 0)) / US for rank in range(3)} == {0: 60, 1: 130, 2: 130}
    assert [*map(list, step_windows(trace, (2, 0)))] == [list(at[2:]) for at in step_windows(trace, (1, 0))]
    assert longest_period_ns(trace) == 130 * US
    assert longest_period_ns(trace_of("| device_ops | name | start_us | end_us |")) == 0


def test_which_steps_are_the_longest_is_asked_of_their_weighted_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 100, 100, 100 and 300 us, of which the first alone counts, and of 130."""
    monkeypatch.setattr(per_step, "weights_in", lambda _, __, lengths: (np.arange(lengths.size) == 0).astype(float))
    trace = trace_of("""
| ranges | name             | rank | start_us | end_us | times | every_us |
| usual  | ProfilerStep#{n} |    0 |        0 |    100 |     4 |      100 |
| last   | ProfilerStep#4   |    0 |      600 |    700 |       |          |
| even   | ProfilerStep#{n} |    1 |        0 |    130 |     5 |      130 |

| api_calls | name             | rank | correlation | start_us | end_us | times | every_us |
| of usual  | cudaLaunchKernel |    0 |           1 |        1 |      2 |     4 |      100 |
| of last   | cudaLaunchKernel |    0 |          21 |      601 |    602 |       |          |
| of even   | cudaLaunchKernel |    1 |         101 |        1 |      2 |     5 |      130 |

| device_ops | name | rank | correlation | start_us | end_us | times | every_us |
| of usual   | a    |    0 |           1 |       10 |     60 |     4 |      100 |
| of last    | a    |    0 |          21 |      610 |    660 |       |          |
| of even    | a    |    1 |         101 |       10 |     60 |     5 |      130 |
| of none    | a    |    2 |             |        0 |    600 |       |          |
""")
    start, end = step_windows(trace, (0, 0))
    assert ((end - start) // US).tolist() == [100, 100, 100, 300]
    assert period_ns(trace, (0, 0)) == 100 * US
    assert period_ns(trace, (2, 0)) == 130 * US


def test_budgets_of_steps_are_in_the_order_of_the_devices() -> None:
    more = (
        f"| api_calls | name | correlation | start_us | end_us | times | every_us |\n"
        f"| launch | cudaLaunchKernel | {first} | 2 | 3 | 5 | 100 |\n\n"
        f"| device_ops | name | device | correlation | start_us | end_us | times | every_us |\n"
        f"| kernel | a | {device} | {first} | 10 | 60 | 5 | 100 |\n\n"
        for device, first in enumerate(range(11, 80, 10), start=1)
    )
    trace = trace_of(STEPS + "\n" + "".join(more))
    count = steps(trace).kept.height
    assert step_budgets(trace)["device"].to_list() == [device for device in range(8) for _ in range(count)]


@pytest.mark.parametrize(
    ("recorded", "kept"),
    [
        ("0 | 415", [10, 110, 210, 310]),
        ("110 | 310", [110, 210]),
        ("150 | 290", []),
        ("210 | 390", []),
        ("600 | 700", []),
    ],
)
def test_a_gpu_without_steps_is_measured_in_those_that_lie_in_its_recording(recorded: str, kept: list[int]) -> None:
    """Of GPU 1 a copy at each end of what is recorded: what was before and after nobody knows, and it is not idle."""
    first, last = (int(at) for at in recorded.split("|"))
    other = f"""
| device_ops | kind | name        | device | start_us   | end_us      |
| first      | copy | Memcpy HtoD |      1 | {first}    | {first + 5} |
| last       | copy | Memcpy HtoD |      1 | {last - 5} | {last}      |
"""
    trace = trace_of(STEPS + other)
    start = step_windows(trace, (0, 1))[0]
    assert (start // US).tolist() == (kept or [first])
    for (_, device), parts in step_budgets(trace).group_by("rank", "device"):
        spent = parts.select(pl.sum_horizontal(pl.col("^.*_ns$").exclude("start_ns", "end_ns", "period_ns")))
        assert spent.to_series().to_list() == parts["period_ns"].to_list(), device
    for budget in budgets.step_budgets(trace):
        assert sum(part.time_ns for part in budget.parts) == pytest.approx(budget.period_ns)


def test_the_ends_of_a_recording_count_where_their_length_is_seen() -> None:
    trace = loop([53_000, 2_600, 2_400, 53_200, 2_600, 2_500])
    assert slow_rates(trace) == {0: 2 / 6}


def test_alike_steps_have_no_rate() -> None:
    assert slow_rates(loop([100, 101, 102, 100, 103])) == {}


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_weights_are_one_on_average_and_give_slow_steps_their_rate(periods: list[int], rate: float) -> None:
    lengths = np.array(periods, np.float64)
    weight = weights(rate, lengths)
    long = lengths > 1.5 * np.median(lengths)
    assert np.isclose(weight.mean(), 1.0)
    if long.any():
        assert np.isclose(weight[long].sum() / weight.sum(), rate)


def test_a_host_that_waits_in_some_steps_for_many_is_not_slow_in_them() -> None:
    trace, _ = simulated(3, "gc")  # the host runs ahead and waits in every fourth step; one of 38 is slow
    assert slow_rates(trace)[0] <= 2 / steps(trace).windows.height


@pytest.mark.parametrize(
    ("count", "begun", "most"), [(5, 0, False), (5, 2, False), (5, 3, True), (4, 2, False), (4, 3, True)]
)
def test_most_steps_are_more_than_half_of_them(count: int, begun: int, most: bool) -> None:
    trace = trace_of(STEPS.replace("|     5 |", f"|     {count + 1} |"))
    kept = steps(trace).kept
    assert kept.height == count
    rows = kept.head(begun).select("rank", pl.col("host_start_ns").alias("start_ns") + 1)
    assert in_most_steps(trace, rows) is most
