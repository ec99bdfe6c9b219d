"""Laws of the Nsight Systems reader, each on an export one can read."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from tests.readers.nsys_exports import write_sqlite

from timesink.model.schema import Table
from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    DEVICES,
    EVENT_WAITS,
    GPU_METRICS,
    MEMORY_EVENTS,
    OS_CALLS,
    PROFILER_OVERHEAD,
    RANGES,
    SOURCES,
    SYNCS,
    THREAD_STATES,
    THREADS,
)
from timesink.model.trace import NoteKind, Trace
from timesink.readers import read

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
CALL = "CUPTI_ACTIVITY_KIND_RUNTIME"
STRINGS = """
StringIds
id value
1 "gemm"
2 "cudaLaunchKernel_v7000"
3 "cudaStreamSynchronize_v3020"
4 "cudaStreamWaitEvent_v3020"
5 "cuMemcpyHtoDAsync_v2"
"""
ONE_KERNEL = f"""
{STRINGS}

{KERNEL}
start end deviceId contextId streamId correlationId globalPid demangledName
100 150 0 1 7 11 7: 1
"""
START = """
TARGET_INFO_SESSION_START_TIME
utcEpochNs
1700000000000000000
"""


@pytest.fixture
def export(tmp_path: Path):
    def reading(*texts: str) -> Trace:
        return read(write_sqlite(tmp_path / "export.sqlite", "\n\n".join(texts)), cache=False)

    return reading


def columns(trace: Trace, table: Table, *names: str) -> list[tuple[object, ...]]:
    return trace[table].select(*names).rows()


def messages(trace: Trace, kind: NoteKind) -> list[tuple[str, int]]:
    return [(note.message, note.count) for note in trace.notes if note.kind is kind]


def test_process_and_thread_come_out_of_serialized_ids(export):
    calls = f"{CALL}\nstart end eventClass globalTid correlationId nameId\n90 95 0 7:9 11 2"
    trace = export(ONE_KERNEL, calls)
    assert columns(trace, DEVICE_OPS, "process", "device", "stream", "correlation") == [(7, 0, 7, 11)]
    assert columns(trace, API_CALLS, "process", "thread", "correlation") == [(7, 9, 11)]


def test_call_names_lose_the_api_version_but_driver_symbols_keep_theirs(export):
    calls = f"{CALL}\nstart end globalTid correlationId nameId\n90 95 7:9 11 2\n96 97 7:9 12 5"
    assert columns(export(ONE_KERNEL, calls), API_CALLS, "name") == [("cudaLaunchKernel",), ("cuMemcpyHtoDAsync_v2",)]


def test_a_call_repeated_for_its_back_trace_counts_once(export):
    calls = f"{CALL}\nstart end eventClass globalTid correlationId nameId\n90 96 67 7:9 11 2\n91 95 0 7:9 11 2"
    trace = export(ONE_KERNEL, calls)
    assert columns(trace, API_CALLS, "start_ns") == [(91,)]
    assert messages(trace, NoteKind.SKIPPED)[0][1] == 1


def test_times_stand_on_the_wall_clock_where_the_session_start_is_known(export):
    trace = export(ONE_KERNEL, START)
    assert columns(trace, DEVICE_OPS, "start_ns", "end_ns") == [(1700000000000000100, 1700000000000000150)]
    assert columns(trace, SOURCES, "clock_origin_ns") == [(1700000000000000000,)]
    assert not messages(trace, NoteKind.ASSUMED)


def test_a_normalised_export_is_already_on_the_wall_clock(export):
    trace = export(ONE_KERNEL, START, 'META_DATA_EXPORT\nname value\n"EXPORT_PARAM_TIME_NORMALIZE" "true"')
    assert columns(trace, DEVICE_OPS, "start_ns") == [(100,)]


def test_without_a_session_start_times_stay_and_a_note_says_so(export):
    trace = export(ONE_KERNEL)
    assert columns(trace, DEVICE_OPS, "start_ns") == [(100,)]
    assert any("wall clock" in message for message, _ in messages(trace, NoteKind.ASSUMED))


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_the_version_is_found_in_old_and_new_metadata(export, table):
    trace = export(ONE_KERNEL, f'{table}\nname value\n"EXPORT_PRODUCT_VERSION" "2022.2.1.31"')
    assert columns(trace, SOURCES, "tool_version", "format") == [("2022.2.1.31", "nsys_sqlite")]


COPIES = """
CUPTI_ACTIVITY_KIND_MEMCPY
start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind
10 20 0 1 7 1 7: 4096 1 0 2
20 30 0 1 7 2 7: 8192 1 1 2
30 40 0 1 7 3 7: 16 2 2 1
40 50 0 1 7 4 7: 32 11 4 4
50 60 0 1 7 5 7: 64 99 - 99
"""


def test_memory_kind_0_is_pageable_and_1_is_pinned(export):
    assert columns(export(COPIES), DEVICE_OPS, "bytes", "copy_kind", "src_memory", "dst_memory") == [
        (4096, "h2d", "pageable", "device"),
        (8192, "h2d", "pinned", "device"),
        (16, "d2h", "device", "pinned"),
        (32, "h2d", "managed", "managed"),
        (64, "unknown", None, "unknown"),
    ]


def test_copies_are_named_as_in_pytorch(export):
    assert columns(export(COPIES), DEVICE_OPS, "name")[:4] == [
        ("Memcpy HtoD (Pageable -> Device)",),
        ("Memcpy HtoD (Pinned -> Device)",),
        ("Memcpy DtoH (Device -> Pinned)",),
        ("Unified memory Memcpy HtoD (Managed -> Managed)",),
    ]


def test_the_export_own_enumeration_outranks_the_known_one(export):
    swapped = """
ENUM_CUDA_MEM_KIND
id name label
0 "CUDA_MEMOPR_MEMORY_KIND_PINNED" "Pinned"
1 "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE" "Pageable"
"""
    assert columns(export(COPIES, swapped), DEVICE_OPS, "src_memory")[:2] == [("pinned",), ("pageable",)]


def test_memsets_carry_bytes_and_the_memory_they_set(export):
    sets = """
CUPTI_ACTIVITY_KIND_MEMSET
start end deviceId contextId streamId correlationId globalPid value bytes memKind
10 20 0 1 7 1 7: 0 512 2
"""
    assert columns(export(sets), DEVICE_OPS, "kind", "name", "bytes", "dst_memory") == [
        ("set", "Memset (Device)", 512, "device")
    ]


GRAPHS = """
CUPTI_ACTIVITY_KIND_GRAPH_TRACE
start end deviceId contextId streamId correlationId globalPid graphId graphExecId
100 200 0 1 7 5 7: 3 4
300 400 0 1 7 6 7: 3 4
"""


def test_a_whole_graph_replay_is_device_work_even_without_a_kernel_table(export):
    trace = export(GRAPHS)
    assert columns(trace, DEVICE_OPS, "kind", "name", "graph_id", "start_ns", "end_ns") == [
        ("graph", "CUDA graph 4", 4, 100, 200),
        ("graph", "CUDA graph 4", 4, 300, 400),
    ]
    assert [count for message, count in messages(trace, NoteKind.DATA_LOSS) if "graph" in message] == [2]


def test_kernels_of_a_graph_traced_by_node_keep_their_node(export):
    rows = f"{KERNEL}\nstart end deviceId streamId globalPid demangledName graphNodeId\n1 2 0 7 7: 1 42\n3 4 0 7 7: 1 0"
    assert columns(export(STRINGS, rows), DEVICE_OPS, "graph_node_id") == [(42,), (None,)]


def test_a_row_that_ends_before_it_starts_is_left_out_and_counted(export):
    bad = GRAPHS.replace("300 400", "300 0")
    trace = export(bad)
    assert columns(trace, DEVICE_OPS, "start_ns") == [(100,)]
    assert ("rows of CUPTI_ACTIVITY_KIND_GRAPH_TRACE end before they start", 1) in messages(trace, NoteKind.DATA_LOSS)


def test_a_kernel_without_a_name_is_kept_and_counted(export):
    trace = export(ONE_KERNEL.replace("11 7: 1", "11 7: 999"))
    assert columns(trace, DEVICE_OPS, "name") == [("<unnamed>",)]
    assert ("kernels whose name the export does not hold", 1) in messages(trace, NoteKind.DATA_LOSS)


def test_rows_are_ordered_by_device_then_start_then_end(export):
    rows = "\n".join(["1 9 1 7 7: 1", "5 9 0 7 7: 1", "5 6 0 8 7: 1", "1 2 0 7 7: 1", "5 7 0 7 7: 1"])
    trace = export(STRINGS, f"{KERNEL}\nstart end deviceId streamId globalPid demangledName\n{rows}")
    assert columns(trace, DEVICE_OPS, "device", "start_ns", "end_ns") == [
        (0, 1, 2),
        (0, 5, 6),
        (0, 5, 7),
        (0, 5, 9),
        (1, 1, 9),
    ]


def test_without_owners_device_work_belongs_to_the_only_process_that_calls_cuda(export):
    kernels = f"{KERNEL}\nstart end deviceId streamId correlationId demangledName\n100 150 0 7 11 1"
    calls = f"{CALL}\nstart end globalTid correlationId nameId\n90 95 7:9 11 2"
    assert columns(export(STRINGS, kernels, calls), DEVICE_OPS, "process") == [(7,)]


TWO_PROCESSES = f"""
{STRINGS}

{KERNEL}
start end deviceId contextId streamId correlationId globalPid demangledName
100 150 1 1 7 11 7: 1
100 150 0 1 7 11 8: 1
"""


def test_ranks_follow_the_first_device_of_each_process_and_a_note_says_so(export):
    trace = export(TWO_PROCESSES)
    assert columns(trace, DEVICE_OPS, "rank", "device", "process") == [(0, 0, 8), (1, 1, 7)]
    assert columns(trace, SOURCES, "rank") == [(0,), (1,)]
    assert any(
        "process 8 is rank 0, process 7 is rank 1" in message for message, _ in messages(trace, NoteKind.ASSUMED)
    )


def test_processes_that_each_see_one_gpu_as_device_0_stay_apart_by_rank(export):
    trace = export(TWO_PROCESSES.replace("150 1 1", "150 0 1"))
    assert columns(trace, DEVICES, "rank", "device") == [(0, 0), (1, 0)]


def test_mpi_ranks_decide_where_the_export_has_them(export):
    trace = export(TWO_PROCESSES, "MPI_RANKS\nglobalTid rank\n7:7 0\n8:8 1")
    assert columns(trace, DEVICE_OPS, "rank", "process") == [(0, 7), (1, 8)]


def test_the_rank_of_a_single_process_is_read_from_the_environment_of_which_nothing_is_kept(export):
    environment = """
META_DATA_CAPTURE
name value
"CAPTURE_EVENT_TYPE" "Cuda"
"PROCESS_0:ENVIRONMENT_VARIABLE" "RANK=3"
"PROCESS_0:ENVIRONMENT_VARIABLE" "API_TOKEN=hunter2"
"PROCESS_0:ARGUMENT_0" "--password=hunter2"
"""
    trace = export(ONE_KERNEL, environment)
    assert columns(trace, DEVICE_OPS, "rank") == [(3,)]
    texts = [str(trace[table].to_dict(as_series=False)) for table in trace] + [str(note) for note in trace.notes]
    assert not any("hunter2" in text for text in texts)


def test_a_gpu_the_export_does_not_describe_still_has_a_row(export):
    assert columns(export(ONE_KERNEL), DEVICES, "device", "name") == [(0, None)]


def test_each_process_names_gpus_by_its_own_ordinals(export):
    gpus = """
TARGET_INFO_GPU
id name smCount memoryBandwidth computeMajor
0 "small" 10 1000 8
1 "large" 132 4000 9

TARGET_INFO_CUDA_DEVICE
gpuId cudaId pid
1 0 7
"""
    assert columns(export(ONE_KERNEL, gpus), DEVICES, "device", "name", "sm_count", "bandwidth_bytes_per_s") == [
        (0, "large", 132, 4000.0)
    ]


RANGE_ROWS = """
StringIds
id value
1 "registered"
2 "NCCL"

NVTX_EVENTS
start end eventType text globalTid textId domainId
0 - 75 "CCCL" 7:9 - 1
0 - 75 - 7:9 2 2
10 100 59 "step" 7:9 - 0
20 40 59 - 7:9 1 1
30 50 60 "crossing" 7:9 - 0
60 70 59 "allreduce" 7:9 - 2
60 70 59 "other thread" 7:10 - 5
80 - 59 "never closed" 7:9 - 0
85 - 34 "a mark" 7:9 - 0
"""


def test_ranges_have_their_text_domain_kind_and_depth(export):
    trace = export(RANGE_ROWS)
    assert columns(trace, RANGES, "thread", "domain", "name", "kind", "depth") == [
        (9, None, "step", "push_pop", 0),
        (9, "CCCL", "registered", "push_pop", 1),
        (9, None, "crossing", "start_end", 1),
        (9, "NCCL", "allreduce", "push_pop", 1),
        (10, "domain 5", "other thread", "push_pop", 0),
    ]
    assert ("NVTX ranges that were still open when the capture ended", 1) in messages(trace, NoteKind.DATA_LOSS)
    assert ("NVTX marks have no duration and are not kept", 1) in messages(trace, NoteKind.SKIPPED)


def test_mpi_tables_are_ranges_of_the_mpi_domain(export):
    mpi = """
StringIds
id value
1 "MPI_Allreduce"

MPI_COLLECTIVES_EVENTS
start end globalTid textId size
5 9 7:7 1 64
"""
    assert columns(export(mpi), RANGES, "domain", "name", "start_ns", "end_ns") == [("MPI", "MPI_Allreduce", 5, 9)]


def test_the_python_lock_is_a_thread_state_and_not_a_range(export):
    lock = """
NVTX_EVENTS
start end eventType text globalTid textId domainId
10 100 59 "step" 7:9 - 0
20 40 59 "Holding GIL" 7:9 - 1
40 60 59 "Waiting for GIL" 7:9 - 1
"""
    trace = export(lock)
    assert columns(trace, RANGES, "name") == [("step",)]
    assert columns(trace, THREAD_STATES, "state", "start_ns", "end_ns") == [
        ("Holding GIL", 20, 40),
        ("Waiting for GIL", 40, 60),
    ]


def test_scheduling_events_pair_up_within_a_thread(export):
    scheduling = """
ENUM_SAMPLING_THREAD_STATE
id name label
0 "Unknown" "Unknown"
5 "Terminated" "Terminated"

SCHED_EVENTS
start cpu isSchedIn globalTid threadState
10 0 1 7:9 0
30 0 0 7:9 0
15 1 1 7:8 0
5 0 0 7:9 0
50 0 1 7:9 0
70 0 0 7:9 5
"""
    assert columns(export(scheduling), THREAD_STATES, "thread", "state", "start_ns", "end_ns") == [
        (9, "Unscheduled", 5, 10),
        (9, "Running", 10, 30),
        (9, "Unscheduled", 30, 50),
        (9, "Running", 50, 70),
    ]


SYNC = """
CUPTI_ACTIVITY_KIND_SYNCHRONIZATION
start end deviceId contextId streamId correlationId globalPid syncType eventId eventSyncId
10 20 0 1 7 1 7: 2 4294967295 4294967295
30 31 0 1 8 2 7: 2 5 -
40 50 0 1 4294967295 3 7: 4 4294967295 -
"""
SYNC_CALLS = f"{CALL}\nstart end globalTid correlationId nameId\n9 21 7:9 1 3\n29 32 7:9 2 4"


def test_the_call_that_asked_decides_what_was_waited_for(export):
    trace = export(STRINGS, SYNC, SYNC_CALLS)
    assert columns(trace, SYNCS, "kind", "stream", "event_id") == [
        ("stream", 7, None),
        ("stream_wait_event", 8, 5),
        ("device", None, None),
    ]
    assert [count for message, count in messages(trace, NoteKind.ASSUMED) if "synchronisations" in message] == [1]


def test_a_stream_waits_for_the_last_record_of_the_event_before_the_wait(export):
    records = """
CUPTI_ACTIVITY_KIND_CUDA_EVENT
deviceId contextId streamId correlationId globalPid eventId eventSyncId
0 1 20 1 7: 5 -
0 1 21 0 7: 5 -
0 1 22 9 7: 5 -
0 1 23 1 8: 5 -
0 1 24 1 7: 6 -
"""
    waits = columns(
        export(STRINGS, SYNC, SYNC_CALLS, records), EVENT_WAITS, "stream", "waited_stream", "record_correlation"
    )
    assert waits == [(8, 20, 1)]


def test_the_synchronisation_id_outranks_the_order_of_records(export):
    records = """
CUPTI_ACTIVITY_KIND_CUDA_EVENT
deviceId contextId streamId correlationId globalPid eventId eventSyncId
0 1 20 0 7: 5 77
0 1 21 1 7: 5 78
"""
    trace = export(STRINGS, SYNC.replace("5 -", "5 77"), SYNC_CALLS, records)
    assert columns(trace, EVENT_WAITS, "waited_stream", "start_ns") == [(20, 29)]


def test_without_event_records_the_waits_are_kept_with_an_unknown_source(export):
    assert columns(export(STRINGS, SYNC, SYNC_CALLS), EVENT_WAITS, "stream", "waited_stream") == [(8, None)]


def test_released_memory_is_negative_and_host_memory_is_device_minus_one(export):
    memory = """
CUDA_GPU_MEMORY_USAGE_EVENTS
start globalPid deviceId contextId address bytes memKind memoryOperationType streamId
10 7: 0 1 4096 100 2 0 7
20 7: 0 1 4096 100 2 1 7
30 7: 0 1 8192 50 1 0 -
"""
    assert columns(export(memory), MEMORY_EVENTS, "device", "time_ns", "bytes", "action") == [
        (-1, 30, 50, "pinned Allocation"),
        (0, 10, 100, "device Allocation"),
        (0, 20, -100, "device Deallocation"),
    ]


def test_counters_belong_to_the_gpu_in_the_low_half_of_their_type(export):
    metrics = f"""
TARGET_INFO_GPU_METRICS
typeId sourceId typeName metricId metricName
{(1 << 56) + 0} 1 "GPU 0" 3 "SMs Active [Throughput %]"
{(1 << 56) + 1} 1 "GPU 1" 3 "SMs Active [Throughput %]"

GPU_METRICS
rawTimestamp timestamp typeId metricId value
0 10 {(1 << 56) + 1} 3 80
0 10 {(1 << 56) + 0} 3 20.5
0 20 {(1 << 56) + 0} 9 1
"""
    trace = export(metrics)
    assert columns(trace, GPU_METRICS, "device", "name", "time_ns", "value") == [
        (0, "SMs Active [Throughput %]", 10, 20.5),
        (1, "SMs Active [Throughput %]", 10, 80.0),
    ]
    assert ("samples of counters that the file does not name", 1) in messages(trace, NoteKind.DATA_LOSS)


def test_overhead_of_cuda_is_not_the_profilers(export):
    overhead = """
StringIds
id value
1 "CUPTI Buffer flush"
2 "Command Buffer Full"

PROFILER_OVERHEAD
start end globalTid nameId
1 5 7:9 1

CUPTI_ACTIVITY_KIND_OVERHEAD
start end eventClass globalTid correlationId nameId overheadType
6 9 1 7:9 4 1 3
10 19 1 7:9 5 2 8
"""
    trace = export(overhead)
    assert columns(trace, PROFILER_OVERHEAD, "name", "start_ns") == [
        ("CUPTI Buffer flush", 1),
        ("CUPTI Buffer flush", 6),
    ]
    assert ("overhead of CUDA itself, not of the profiler: Command Buffer Full", 1) in messages(trace, NoteKind.SKIPPED)


def test_operating_system_calls_leave_out_the_profilers_own_marks(export):
    calls = """
StringIds
id value
1 "read"
2 "OS runtime libraries profiling started"

OSRT_API
start end eventClass globalTid nameId
5 9 27 7:9 1
0 0 31 7: 2
"""
    assert columns(export(calls), OS_CALLS, "thread", "name") == [(9, "read")]


def test_a_warning_that_events_are_missing_is_a_loss_and_other_chatter_is_not(export):
    told = """
DIAGNOSTIC_EVENT
timestamp severity text
0 1 "Number of CUDA events collected: 12."
0 2 "Not all CUDA events might have been collected."
1 2 "Not all CUDA events might have been collected."
2 2 "No OpenGL events collected. Does the process use OpenGL?"
3 3 "Agent stopped."
"""
    assert messages(export(ONE_KERNEL, told), NoteKind.DATA_LOSS) == [
        ("nsys reports: Not all CUDA events might have been collected.", 2),
        ("nsys reports: Agent stopped.", 1),
    ]


def test_only_threads_of_traced_processes_are_named_and_a_threads_own_name_wins(export):
    names = """
StringIds
id value
1 "kworker"
2 "python"
3 "MPI Rank 0"

ThreadNames
nameId priority globalTid
1 20 2:2
2 20 7:9
3 0 7:9
"""
    trace = export(ONE_KERNEL.replace(STRINGS, ""), names)
    assert trace[THREADS].rows() == [(0, 7, 9, "MPI Rank 0")]


def test_what_was_not_asked_for_has_no_table_and_what_did_not_happen_is_empty(export):
    asked = 'META_DATA_CAPTURE\nname value\n"CAPTURE_EVENT_TYPE" "Cuda"'
    trace = export(asked)
    assert trace[DEVICE_OPS].height == trace[API_CALLS].height == 0
    assert not {RANGES, SYNCS, OS_CALLS, THREAD_STATES, GPU_METRICS, MEMORY_EVENTS} & set(trace)


def test_event_tables_without_a_place_are_named(export):
    trace = export(ONE_KERNEL, "VULKAN_API\nstart end\n1 2", "ENUM_WHATEVER\nid name\n1 2")
    assert ("tables with events that are not read: VULKAN_API", 1) in messages(trace, NoteKind.SKIPPED)


def test_the_order_of_rows_in_the_file_does_not_matter(tmp_path):
    head, *rows = RANGE_ROWS.strip().rsplit("\n", 9)
    there = read(write_sqlite(tmp_path / "a.sqlite", RANGE_ROWS), cache=False)
    back = read(write_sqlite(tmp_path / "b.sqlite", "\n".join([head, *reversed(rows)])), cache=False)
    assert there[RANGES].equals(back[RANGES])
    assert isinstance(there[RANGES].schema["name"], pl.Categorical)
