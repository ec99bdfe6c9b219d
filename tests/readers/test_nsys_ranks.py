"""Which process, rank and GPU the rows of an Nsight Systems export belong to."""

from __future__ import annotations

from tests.readers.nsys_exports import CALL, KERNEL, ONE_KERNEL, STRINGS, columns, messages

from timesink.model.tables import DEVICE_OPS, DEVICES, SOURCES
from timesink.model.trace import NoteKind


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
