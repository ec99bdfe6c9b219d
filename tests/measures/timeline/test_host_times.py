"""Tables of ranges and calls, against a slower obvious count."""

import statistics
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from tests.strategies import traces

from timesink.measures.timeline.host_times import call_times, range_times
from timesink.measures.timeline.ranges import range_projection
from timesink.model.tables import API_CALLS, RANGES
from timesink.model.trace import Trace


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
