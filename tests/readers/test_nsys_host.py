"""Ranges, threads and waits of the host in an Nsight Systems export."""

import polars as pl
from tests.readers.nsys_exports import CALL, STRINGS, columns, messages, write_sqlite

from timesink.model.tables import EVENT_WAITS, RANGES, SYNCS, THREAD_STATES
from timesink.model.trace import NoteKind
from timesink.readers import read

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
    assert [count for message, count in messages(trace, NoteKind.ASSUMED) if "synchronizations" in message] == [1]


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


def test_the_order_of_rows_in_the_file_does_not_matter(tmp_path):
    head, *rows = RANGE_ROWS.strip().rsplit("\n", 9)
    there = read(write_sqlite(tmp_path / "a.sqlite", RANGE_ROWS), cache=False)
    back = read(write_sqlite(tmp_path / "b.sqlite", "\n".join([head, *reversed(rows)])), cache=False)
    assert there[RANGES].equals(back[RANGES])
    assert isinstance(there[RANGES].schema["name"], pl.Categorical)
