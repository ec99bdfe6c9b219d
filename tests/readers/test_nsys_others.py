"""Memory, counters, overhead, calls of the system and messages in an Nsight Systems export; tables it lacks."""

from tests.readers.nsys_exports import ONE_KERNEL, STRINGS, columns, messages

from timesink.model.tables import (
    API_CALLS,
    DEVICE_OPS,
    GPU_METRICS,
    MEMORY_EVENTS,
    OS_CALLS,
    PROFILER_OVERHEAD,
    RANGES,
    SYNCS,
    THREAD_STATES,
    THREADS,
)
from timesink.model.trace import NoteKind


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
        ("Nsight Systems warned 2 times: Not all CUDA events might have been collected", 2),
        ("Nsight Systems warned: Agent stopped", 1),
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
