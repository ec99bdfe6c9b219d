"""Laws of the timeline: every event is in it once, rows do not overlap, and what is joined is never drawn as a gap."""

import base64
import json
import zlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import traces
from tests.tables import trace_of

from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.render.html.figures import packed
from timesink.views.figures import Runs, Timeline
from timesink.views.timeline import timeline_of
from timesink.views.timeline.runs import DEEPEST, joined, joined_below_ns, laid_out, single

BY_HAND = """
| device_ops | name | stream | start_us | end_us | correlation |
| a          | gemm | 7      | 0        | 30     |             |
| b          | gemm | 7      | 40       | 60     | 5           |
| beside b   | relu | 20     | 50       | 70     |             |

| api_calls | name             | start_us | end_us | correlation |
| launch    | cudaLaunchKernel | 32       | 36     | 5           |

| host_ops | name     | start_us | end_us |
| outer    | aten::mm | 31       | 38     |
| inner    | aten::t  | 33       | 34     |
"""
EVENTS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), min_size=1, max_size=60)


def runs_of(events: list[tuple[int, int]]) -> Runs:
    start = np.array([begin for begin, _ in events], np.int64)
    return single(start, start + np.array([length for _, length in events], np.int64), name=np.arange(start.size))


def shown(timeline: Timeline | None) -> dict[str, list[list[tuple[str, int, int]]]]:
    assert timeline is not None
    return {
        lane.label: [
            [
                (timeline.texts[name], start, end)
                for name, start, end in zip(row.name.tolist(), row.start_ns.tolist(), row.end_ns.tolist(), strict=True)
            ]
            for row in lane.rows
        ]
        for lane in timeline.lanes
    }


def test_a_timeline_by_hand() -> None:
    timeline = timeline_of(trace_of(BY_HAND))
    assert shown(timeline) == {
        "GPU 0 idle, because of": [
            [
                ("unrecorded code", 30_000, 31_000),
                ("framework dispatch", 31_000, 32_000),
                ("launch latency", 32_000, 40_000),
            ]
        ],
        "GPU 0 stream 7": [[("gemm", 0, 30_000), ("gemm", 40_000, 60_000)]],
        "GPU 0 stream 20": [[("relu", 50_000, 70_000)]],
        "thread 1: operators": [[("aten::mm", 31_000, 38_000)], [("aten::t", 33_000, 34_000)]],
        "thread 1: runtime calls": [[("cudaLaunchKernel", 32_000, 36_000)]],
    }
    assert timeline is not None
    (stream,) = timeline.lanes[1].rows
    assert stream.from_lane.tolist() == [-1, 4]
    assert stream.from_ns.tolist() == [-1, 32_000]


def test_nothing_on_a_device_is_no_timeline() -> None:
    assert timeline_of(trace_of("| api_calls | name | start_us | end_us |\n| a | cudaMalloc | 0 | 1 |")) is None


@pytest.mark.slow
@given(traces(min_ops=1))
def test_every_event_is_in_its_lane_once(trace: Trace) -> None:
    timeline = timeline_of(trace)
    assert timeline is not None
    for kind, table in (("stream", DEVICE_OPS), ("call", API_CALLS), ("op", HOST_OPS), ("range", RANGES)):
        rows = [row for lane in timeline.lanes if lane.kind == kind for row in lane.rows]
        lanes_of = {lane.rank for lane in timeline.lanes}
        drawn = trace.get(table).filter(trace.get(table)["rank"].is_in(list(lanes_of)))
        assert sum(int(row.count.sum()) for row in rows) == drawn.height
        for row in rows:
            assert (row.start_ns[1:] >= row.end_ns[:-1]).all()


@given(EVENTS)
def test_rows_do_not_overlap_and_hold_every_event(events: list[tuple[int, int]]) -> None:
    rows = laid_out(runs_of(events))
    assert sum(int(row.count.sum()) for row in rows) == len(events)
    assert len(rows) <= DEEPEST
    for row in rows:
        assert (row.start_ns[1:] >= row.end_ns[:-1]).all()
        assert (row.busy_ns <= row.end_ns - row.start_ns).all()
    alone = [(row.start_ns[at], row.end_ns[at]) for row in rows for at in range(row.count.size) if row.count[at] == 1]
    assert set(alone) <= {(start, start + length) for start, length in events}


@given(st.integers(1, DEEPEST - 1), st.integers(1, 5))
def test_nested_events_lie_at_their_depth(depth: int, siblings: int) -> None:
    width = 2 * depth + 2
    events = [(at * width + level, width - 2 * level) for at in range(siblings) for level in range(depth)]
    rows = laid_out(runs_of(events[::-1]))
    assert [row.count.size for row in rows] == [siblings] * depth
    assert [set((row.end_ns - row.start_ns).tolist()) for row in rows] == [
        {width - 2 * level} for level in range(depth)
    ]


@given(EVENTS, st.integers(1, 60))
def test_joining_loses_no_time_and_covers_no_long_gap(events: list[tuple[int, int]], most: int) -> None:
    rows = laid_out(runs_of(events))
    below = joined_below_ns(rows, most)
    after = [joined(row, below) for row in rows]
    assert sum(row.count.size for row in after) <= max(most, len(rows))
    for before, now in zip(rows, after, strict=True):
        assert now.busy_ns.sum() == before.busy_ns.sum()
        assert now.count.sum() == before.count.sum()
        several = now.count > 1
        for start, end in zip(now.start_ns[several], now.end_ns[several], strict=True):
            inside = [
                at for at in range(before.count.size) if start <= before.start_ns[at] and before.end_ns[at] <= end
            ]
            assert all(before.start_ns[b] - before.end_ns[a] < below for a, b in pairwise(inside))


def test_what_fits_is_not_joined() -> None:
    rows = (runs_of([(0, 1), (2, 1), (4, 1)]),)
    assert joined_below_ns(rows, 3) == 0
    assert joined_below_ns(rows, 2) == 2
    (one,) = (joined(row, 2) for row in rows)
    assert (one.start_ns.tolist(), one.end_ns.tolist(), one.busy_ns.tolist(), one.name.tolist()) == (
        [0],
        [5],
        [3],
        [-1],
    )


@given(traces(min_ops=1), st.sampled_from([5, 10_000]))
def test_what_is_packed_is_what_was_given(trace: Trace, most: int) -> None:
    timeline = timeline_of(trace, most_runs=most)
    assert timeline is not None
    plain = json.loads(zlib.decompress(base64.b64decode(packed(timeline))))
    assert plain["length"] == timeline.end_ns - timeline.start_ns
    for lane, given_lane in zip(plain["lanes"], timeline.lanes, strict=True):
        for text, runs in zip(lane["rows"], given_lane.rows, strict=True):
            row = json.loads(text)
            n = row["n"]
            gap, length, idle = (np.broadcast_to(row[key], n) for key in ("gap", "length", "idle"))
            ends = np.cumsum(gap + length) + timeline.start_ns
            assert ends.tolist() == runs.end_ns.tolist()
            assert (ends - length).tolist() == runs.start_ns.tolist()
            assert (length - idle).tolist() == runs.busy_ns.tolist()
            assert np.broadcast_to(row["name"], n).tolist() == runs.name.tolist()
