"""Synchronisations, data loading and trace quality."""

import polars as pl
from hypothesis import given
from tests.strategies import shifted, traces
from tests.tables import trace_of

from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.quality import quality
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.intervals import Intervals
from timesink.model.trace import ImportNote, NoteKind, Trace


@given(traces())
def test_no_drain_is_busy_or_charged_twice(trace: Trace) -> None:
    found = synchronisations(trace)
    for (rank, device), line in device_timeline(trace).by_device.items():
        mine = found.drains.filter((pl.col("rank") == rank) & (pl.col("device") == device))
        drained = Intervals.of(mine)
        assert drained.total_ns == (mine["end_ns"] - mine["start_ns"]).sum()
        assert (drained & line.busy).total_ns == 0
    assert found.calls["drain_ns"].sum() == (found.drains["end_ns"] - found.drains["start_ns"]).sum()


@given(traces())
def test_the_loading_of_a_rank_is_the_union_of_its_rows(trace: Trace) -> None:
    found = input_pipeline(trace)
    for rank, one in found.by_rank.items():
        rows = found.frame.filter(pl.col("rank") == rank)
        assert one.loading.total_ns <= (rows["end_ns"] - rows["start_ns"]).sum()
        assert (one.name, one.thread) in rows.select("name", "thread").rows()


def test_what_a_trace_can_be_trusted_for() -> None:
    trace = trace_of(
        """
        | device_ops | name | start_ns | end_ns | correlation | graph_id |
        | head       | a    |        0 |     10 |             |          |
        | linked     | b    |       20 |     50 |           1 |          |
        | graph      | c    |       50 |     80 |           2 |        4 |
        | lost       | d    |       80 |     90 |          99 |          |

        | api_calls | name             | start_ns | end_ns | correlation |
        | b         | cudaLaunchKernel |       10 |     20 |           1 |
        | c         | cudaGraphLaunch  |       20 |     30 |           2 |
        | nothing   | cudaLaunchKernel |       30 |     40 |           3 |

        | profiler_overhead | name          | start_ns | end_ns |
        | flush             | Buffer Flush  |        0 |     10 |
        | request           | Activity Ask  |        5 |     20 |
        """,
        notes=(ImportNote(NoteKind.DATA_LOSS, "cut off", 7), ImportNote(NoteKind.SKIPPED, "flows", 3)),
    )
    found = quality(trace)
    assert (found.device_op_count, found.linked_count, found.head_count) == (4, 2, 1)
    assert found.dead_launch_count == 1
    assert found.graph_ratio == 30 / 80
    assert (found.overhead_ns, found.lost_count) == (20, 7)
    assert (found.linked_ratio, found.resolution_ns) == (0.5, 10)


def test_an_empty_trace_has_no_quality_to_state() -> None:
    found = quality(Trace("empty", {}))
    assert (found.linked_ratio, found.resolution_ns, found.graph_ratio) == (None, None, 0.0)


@given(traces())
def test_moving_the_clock_by_whole_microseconds_changes_no_quality(trace: Trace) -> None:
    assert quality(trace) == quality(shifted(trace, 10**12))
