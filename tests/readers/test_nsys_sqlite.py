"""Laws of the Nsight Systems reader, each on an export one can read: work on devices and its times."""

import pytest
from tests.readers.nsys_exports import CALL, KERNEL, ONE_KERNEL, START, STRINGS, columns, messages

from timesink.model.tables import API_CALLS, DEVICE_OPS, SOURCES
from timesink.model.trace import NoteKind


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
