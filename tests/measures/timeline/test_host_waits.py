"""Synchronisations, data loading and trace quality."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from tests.measures.timeline.tensorboard_breakdown import ROLES, tensorboard_breakdown
from tests.strategies import shifted, traces
from tests.tables import trace_of

from timesink.measures.idle.input_pipeline import input_pipeline
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.quality import quality
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.intervals import Intervals
from timesink.model.trace import ImportNote, NoteKind, Trace

DRAIN = """
| device_ops | name | start_ns | end_ns | correlation |
| before     | a    |       10 |     50 |           1 |
| after      | b    |       80 |     90 |           3 |

| api_calls | name                  | start_ns | end_ns | correlation |
| launch    | cudaLaunchKernel      |        0 |      5 |           1 |
| sync      | cudaStreamSynchronize |       20 |     53 |           2 |
| launch    | cudaLaunchKernel      |       70 |     74 |           3 |

| host_ops | name                      | start_ns | end_ns |
| item     | aten::item                |       15 |     60 |
| read     | aten::_local_scalar_dense |       18 |     58 |

| ranges | name  | start_ns | end_ns |
| loss   | loss  |       12 |     65 |
"""


def test_a_drain_is_charged_to_the_call_that_let_the_queue_run_dry() -> None:
    found = synchronisations(trace_of(DRAIN))
    columns = ("name", "kind", "blocked_ns", "host_op", "range", "drain_ns")
    assert found.calls.select(columns).rows() == [
        ("cudaStreamSynchronize", "stream", 33, "aten::_local_scalar_dense", "loss", 30)
    ]
    assert found.drains.select("start_ns", "end_ns").rows() == [(50, 80)]


def test_a_call_that_finds_the_gpu_idle_causes_no_drain() -> None:
    late = DRAIN.replace("|       20 |     53 |", "|       55 |     60 |")
    assert synchronisations(trace_of(late)).calls["drain_ns"].to_list() == [0]


def test_work_launched_before_the_call_returned_is_no_drain() -> None:
    early = DRAIN.replace("|       70 |     74 |", "|       52 |     54 |")
    assert synchronisations(trace_of(early)).calls["drain_ns"].to_list() == [0]


def test_which_calls_block() -> None:
    names = {
        "cudaDeviceSynchronize": "device",
        "cudaStreamSynchronize_v3020": "stream",
        "cudaEventSynchronize": "event",
        "cuStreamSynchronize_ptsz": "stream",
        "hipDeviceSynchronize": "device",
        "cudaMemcpy": "copy",
        "cudaMemcpy2D_v3020": "copy",
        "cuMemcpyDtoH_v2": "copy",
        "hipMemcpyWithStream": "copy",
        "cudaMemcpyAsync": None,
        "cudaMemcpy2DAsync_ptsz_v7000": None,
        "cudaEventQuery": None,
        "cudaStreamWaitEvent": None,
        "cudaLaunchKernel": None,
    }
    rows = "\n".join(f"| c | {name} | {i} | {i + 1} |" for i, name in enumerate(names))
    found = synchronisations(trace_of(f"| api_calls | name | start_ns | end_ns |\n{rows}")).calls
    assert dict(found.select("name", "kind").rows()) == {name: kind for name, kind in names.items() if kind}


def test_an_asynchronous_copy_to_pageable_memory_blocks() -> None:
    text = """
        | device_ops | kind | name   | copy_kind | dst_memory | start_ns | end_ns | correlation |
        | back       | copy | Memcpy | d2h       | {}         |       10 |     20 |           1 |

        | api_calls | name            | start_ns | end_ns | correlation |
        | back      | cudaMemcpyAsync |        0 |     21 |           1 |
        """
    blocking = synchronisations(trace_of(text.format("pageable"))).calls
    assert blocking.select("kind", "blocked_ns").rows() == [("pageable_copy", 21)]
    assert synchronisations(trace_of(text.format("pinned"))).calls.height == 0


@given(traces())
def test_no_drain_is_busy_or_charged_twice(trace: Trace) -> None:
    found = synchronisations(trace)
    for (rank, device), line in device_timeline(trace).by_device.items():
        mine = found.drains.filter((pl.col("rank") == rank) & (pl.col("device") == device))
        drained = Intervals.of(mine)
        assert drained.total_ns == (mine["end_ns"] - mine["start_ns"]).sum()
        assert (drained & line.busy).total_ns == 0
    assert found.calls["drain_ns"].sum() == (found.drains["end_ns"] - found.drains["start_ns"]).sum()


LOADING = """
| device_ops | name | kind   | copy_kind | src_memory | start_ns | end_ns | correlation |
| batch      | copy | copy   | h2d       | pageable   |       42 |     45 |           1 |
| step 0     | a    | kernel |           |            |       50 |     70 |           2 |
| batch      | copy | copy   | h2d       | pageable   |      142 |    145 |           3 |
| step 1     | a    | kernel |           |            |      150 |    170 |           4 |

| api_calls | name             | start_ns | end_ns | correlation |
| batch     | cudaMemcpyAsync  |       40 |     46 |           1 |
| step 0    | cudaLaunchKernel |       47 |     49 |           2 |
| batch     | cudaMemcpyAsync  |      140 |    146 |           3 |
| step 1    | cudaLaunchKernel |      147 |    149 |           4 |

| ranges | name           | start_ns | end_ns |
| 0      | ProfilerStep#0 |        0 |    100 |
| 1      | ProfilerStep#1 |      100 |    200 |
"""


def test_host_work_before_the_copy_of_the_batch_is_loading() -> None:
    trace = trace_of(LOADING)
    found = input_pipeline(trace)[0]
    assert found.name is None
    assert (found.loading.start_ns.tolist(), found.loading.end_ns.tolist()) == ([0, 100], [40, 140])
    idle = device_timeline(trace)[0, 0].idle & found.loading
    assert idle.total_ns == 40  # the second batch: the GPU had not begun when the first was made


def test_a_name_for_loading_outweighs_the_inference() -> None:
    named = LOADING + "| load | next_batch | 5 | 20 |"
    found = input_pipeline(trace_of(named))[0]
    assert (found.name, found.loading.total_ns) == ("next_batch", 15)


def test_a_copy_after_other_work_of_the_step_brings_no_batch() -> None:
    swapped = LOADING.replace("|       40 |     46 |           1 |", "|       48 |     49 |           1 |")
    swapped = swapped.replace("|      140 |    146 |           3 |", "|      148 |    149 |           3 |")
    assert not input_pipeline(trace_of(swapped)).by_rank


def test_loading_on_threads_that_launch_nothing_costs_nothing_directly() -> None:
    worker = LOADING.replace(
        "| ranges | name           | start_ns | end_ns |", "| ranges | name | start_ns | end_ns | thread |"
    )
    worker = worker.replace("ProfilerStep#0 |        0 |    100 |", "ProfilerStep#0 | 0 | 100 | 1 |")
    worker = worker.replace(
        "ProfilerStep#1 |      100 |    200 |", "ProfilerStep#1 | 100 | 200 | 1 |\n| w | load_batch | 0 | 90 | 9 |"
    )
    assert input_pipeline(trace_of(worker))[0].name is None


def test_names_that_say_loading() -> None:
    names = {
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": True,
        "data_load": True,
        "load_batch": True,
        "get_batch": True,
        "data loading": True,
        "wait_for_batch": True,
        "fetch_next_batch": True,
        "forward": False,
        "aten::batch_norm": False,
        "optimizer.step": False,
        "metadata_reload": False,
        "## all2all_tw_data:wait ##": False,
        "aten::get_data_ptr": False,
    }
    rows = "\n".join(f"| r | {name} | {10 * i} | {10 * i + 5} |" for i, name in enumerate(names))
    found = input_pipeline(trace_of(f"| ranges | name | start_ns | end_ns |\n{rows}"))
    assert set(found.frame["name"]) == {name for name, loads in names.items() if loads}


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


def test_steps_of_the_old_plug_in_begin_where_the_one_before_ended() -> None:
    found = tensorboard_breakdown(
        trace_of("""
        | device_ops | name | kind   | start_ns | end_ns | correlation |
        | late       | a    | kernel |       90 |    130 |           1 |
        | second     | a    | kernel |      150 |    160 |           2 |

        | api_calls | name             | start_ns | end_ns | correlation |
        | a         | cudaLaunchKernel |       10 |     20 |           1 |
        | b         | cudaLaunchKernel |      140 |    145 |           2 |

        | ranges | name           | start_ns | end_ns |
        | 0      | ProfilerStep#0 |        0 |    100 |
        | 1      | ProfilerStep#1 |      100 |    200 |
        """)
    ).frame
    assert found.select("start_ns", "end_ns", "kernel_ns", "runtime_ns", "other_ns").rows() == [
        (0, 130, 40, 10, 80),
        (130, 200, 10, 5, 55),
    ]
    assert (found.select(pl.sum_horizontal(ROLES)).to_series() == found["end_ns"] - found["start_ns"]).all()
