"""Tables of ranges and calls, against a slower obvious count."""

from __future__ import annotations

import statistics
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from tests.strategies import traces
from tests.tables import trace_of

from timesink.measures.timeline.host_times import call_times, range_times
from timesink.measures.timeline.ranges import range_projection
from timesink.model.tables import API_CALLS, RANGES
from timesink.model.trace import Trace

STEPS = """
| ranges | name | start_us | end_us |
| a | ProfilerStep#1 | 0 | 100 |
| b | forward | 10 | 40 |
| c | ProfilerStep#2 | 100 | 220 |
| d | forward | 110 | 150 |
| e | block | 120 | 140 |
"""


def test_steps_are_one_name_and_paths_go_down() -> None:
    times = range_times(trace_of(STEPS), by_path=True)
    assert dict(times.select("name", "count").iter_rows()) == {
        "ProfilerStep": 2,
        "ProfilerStep / forward": 2,
        "ProfilerStep / forward / block": 1,
    }
    assert times["total_ns"].to_list() == [220_000, 70_000, 20_000]
    assert times["time_ratio"][0] == pytest.approx(1.0)


def test_phases_of_a_layer_have_the_gpus_share_of_its_time() -> None:
    """qkv 85 and attention 70 of 200 us, launched in 4 us each; the rest is idle."""
    times = range_times(
        trace_of("""
        | ranges | name      | start_us | end_us |
        | layer  | layer     |        0 |    200 |
        | q      | qkv       |        0 |      4 |
        | a      | attention |       10 |     14 |

        | api_calls | name             | start_us | end_us | correlation |
        | x         | cudaLaunchKernel |        1 |      3 |           1 |
        | y         | cudaLaunchKernel |       11 |     13 |           2 |

        | device_ops | name | kind   | start_us | end_us | correlation |
        | k          | a    | kernel |        5 |     90 |           1 |
        | l          | b    | kernel |      100 |    170 |           2 |
        """)
    )
    shares = dict(times.select("name", "device_ratio").iter_rows())
    assert shares == pytest.approx({"layer": 155 / 200, "qkv": 85 / 200, "attention": 70 / 200})


def test_a_share_of_ranges_on_several_threads_is_of_the_time_and_not_of_their_sum() -> None:
    times = range_times(
        trace_of("""
        | ranges | name | thread | start_us | end_us |
        | a      | load |      1 |        0 |     60 |
        | b      | load |      2 |       20 |     80 |
        | c      | load |      2 |       90 |    100 |
        | d      | rest |      1 |       60 |    100 |
        """)
    )
    assert dict(times.select("name", "time_ratio").iter_rows()) == pytest.approx({"load": 0.9, "rest": 0.4})
    assert dict(times.select("name", "total_ns").iter_rows()) == {"load": 130_000, "rest": 40_000}


@given(traces())
def test_a_share_of_ranges_is_how_long_one_of_them_is_open(trace: Trace) -> None:
    ranges = trace.get(RANGES)
    spans = {rank: (part["start_ns"].min(), part["end_ns"].max()) for (rank,), part in ranges.group_by("rank")}
    open_at: dict[tuple[int, str, str], set[int]] = defaultdict(set)
    marks = sorted({*ranges["start_ns"], *ranges["end_ns"]})
    lengths = {start: end - start for start, end in pairwise(marks)}
    for rank, name, kind, start, end in ranges.select("rank", "name", "kind", "start_ns", "end_ns").iter_rows():
        shown = name if not name.startswith("ProfilerStep#") else "ProfilerStep"
        open_at[rank, shown, kind].update(mark for mark in lengths if start <= mark < end)
    times = range_times(trace)
    for rank, name, kind, ratio in times.select("rank", "name", "kind", "time_ratio").iter_rows():
        first, last = spans[rank]
        assert 0 <= ratio <= 1
        label = name.rpartition(":")[2] if (rank, name, kind) not in open_at else name
        expected = sum(lengths[mark] for mark in open_at[rank, label, kind]) / max(last - first, 1)
        assert ratio == pytest.approx(expected)


@given(traces())
def test_every_figure_is_that_of_a_plain_count(trace: Trace) -> None:
    durations: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank, name, start, end in trace.get(API_CALLS).select("rank", "name", "start_ns", "end_ns").iter_rows():
        durations[rank, name].append(end - start)
    counted = {
        key: (len(ns), sum(ns), pytest.approx(statistics.mean(ns)), statistics.median(ns), min(ns), max(ns))
        for key, ns in durations.items()
    }
    columns = ("count", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns")
    times = call_times(trace, API_CALLS)
    assert {row[:2]: row[2:] for row in times.select("rank", "name", *columns).iter_rows()} == counted


@given(traces())
def test_nothing_is_lost_between_names_paths_and_ranges(trace: Trace) -> None:
    ranges, projected = trace.get(RANGES), range_projection(trace)
    for by_path in (False, True):
        times = range_times(trace, by_path=by_path)
        assert times["count"].sum() == ranges.height
        assert times["total_ns"].sum() == (ranges["end_ns"] - ranges["start_ns"]).sum()
        assert times["op_count"].sum() == projected["op_count"].sum()
        assert (times["idle_ns"] >= 0).all()
        assert times["device_ns"].sum() + times["idle_ns"].sum() == times["projected_ns"].sum()
