"""Which process, rank and GPU the rows of an Nsight Systems export belong to.

Parts of a table, in the order that its declaration says.

Operators that a program recorded as NVTX ranges give the tables that torch.profiler gives of the same program.
"""

import lzma
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.readers.nsys_exports import CALL, KERNEL, ONE_KERNEL, STRINGS, columns, messages

from timesink.measures.timeline.attribution import attribution, operator_times
from timesink.measures.timeline.host_times import range_times
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, HOST_OPS, RANGES, SOURCES
from timesink.model.trace import NoteKind, Trace
from timesink.readers import read
from timesink.readers.nsys.session import combined, part_of


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


_OF_2021 = """
TARGET_INFO_CUDA_GPU
deviceId name globalMemorySize l2CacheSize coreClockRate numMultiprocessors computeCapabilityMajor pid
"""


@pytest.mark.parametrize(
    ("gpus", "seen"),
    [
        ('0 "Tesla V100" 32510 6291456 1380000 80 7 7', [(0, "Tesla V100", 80, 7, 6291456)]),
        ('0 "Tesla V100" 0 0 0 80 7 7', [(0, "Tesla V100", 80, 7, None)]),
        ('0 "a" 1 2 3 4 5 7\n0 "a" 1 2 3 4 5 8', [(0, "a", 4, 5, 2)]),  # of two processes
        ('1 "b" 1 2 3 4 5 7\n0 "a" 1 2 3 4 5 7', [(0, "a", 4, 5, 2), (1, "b", 4, 5, 2)]),
        ('1 "b" 1 2 3 4 5 7', [(0, *[None] * 4), (1, "b", 4, 5, 2)]),  # not of the one that worked
    ],
)
def test_gpus_are_described_where_exports_of_2021_do(export, gpus: str, seen: list[tuple[object, ...]]) -> None:
    columns_of = ("device", "name", "sm_count", "compute_major", "l2_bytes")
    assert columns(export(ONE_KERNEL, _OF_2021 + gpus), DEVICES, *columns_of) == seen


def test_gpus_of_the_machine_go_before_those_that_cuda_saw(export) -> None:
    newer = 'TARGET_INFO_GPU\nid name\n0 "newer"'
    both = export(ONE_KERNEL, _OF_2021 + '0 "older" 1 2 3 4 5 7', newer)
    assert columns(both, DEVICES, "device", "name") == [(0, "newer")]


few, times = st.integers(0, 2), st.integers(-3, 3)
calls = st.lists(st.tuples(few, few, few, times, st.integers(0, 2)), max_size=12)


@given(st.lists(calls, max_size=3))
def test_calls_stand_by_thread_and_time_and_those_that_tie_in_the_order_of_the_file(
    parts: list[list[tuple[int, int, int, int, int]]],
) -> None:
    rows = [row for part in parts for row in part]
    frames = []
    for number, part in enumerate(parts):
        names = ("rank", "process", "thread", "start_ns")
        columns = {name: pl.Series([row[at] for row in part], dtype=pl.Int64) for at, name in enumerate(names)}
        columns["end_ns"] = columns["start_ns"] + pl.Series([row[4] for row in part], dtype=pl.Int64)
        given = [100 * number + at for at in range(len(part))]
        columns["correlation"] = pl.Series(given, dtype=pl.Int64)
        frames.append(part_of(API_CALLS, {**columns, "name": pl.Series(["call"] * len(part), dtype=pl.String)}))
    at = [100 * number + place for number, part in enumerate(parts) for place in range(len(part))]
    keys = [(*row[:4], row[3] + row[4]) for row in rows]
    expected = [number for _, number in sorted(zip(keys, at, strict=True), key=lambda pair: pair[0])]
    table = combined(API_CALLS, frames)
    assert table["correlation"].to_list() == expected
    assert table.select(API_CALLS.sorted_by).rows() == sorted(keys)


def test_no_parts_are_an_empty_table() -> None:
    assert combined(DEVICE_OPS, []).equals(DEVICE_OPS.empty())


DATA = Path(__file__).resolve().parents[1] / "data" / "nsys"
STEPS = {"nsys": 2, "torch": 4}


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("emitted") / "emit_nvtx.sqlite"
    path.write_bytes(lzma.decompress((DATA / "emit_nvtx.sqlite.xz").read_bytes()))
    return read(path, cache=False)


@pytest.fixture(scope="module")
def profiled() -> Trace:
    return read(DATA / "emit_nvtx.torch.json.gz", cache=False)


def of_model(trace: Trace, steps: int) -> dict[str, tuple[float, float]]:
    """Calls and kernels per step of the operators that launched any, but those that each loop alone has."""
    in_place = pl.col("name").cast(pl.String).str.ends_with("_")
    frame = operator_times(trace).filter(pl.col("kernels") > 0, ~in_place)
    rows = frame.select("name", "calls", "kernels").rows()
    return {name: (calls / steps, kernels / steps) for name, calls, kernels in rows}


def test_the_operator_table_is_torch_profiler_s(emitted: Trace, profiled: Trace) -> None:
    ours = of_model(emitted, STEPS["nsys"])
    assert len(ours) > 8
    assert ours == of_model(profiled, STEPS["torch"])
    assert attribution(emitted).unattributed_count == 0


def test_sequence_numbers_and_shapes_are_read_off_the_names(emitted: Trace) -> None:
    ops = emitted[HOST_OPS].with_columns(pl.col("name", "input_shapes").cast(pl.String))
    products = ops.filter(pl.col("name") == "aten::addmm")
    assert set(products["input_shapes"]) == {
        "[[1024], [64, 512], [512, 1024], [], []]",
        "[[512], [64, 1024], [1024, 512], [], []]",
    }
    assert products["sequence_number"].is_not_null().all()
    assert ops.filter(pl.col("name") == "aten::empty")["sequence_number"].null_count() > 0


def test_the_backward_of_forward_is_the_same_share_under_both(emitted: Trace, profiled: Trace) -> None:
    for trace in (emitted, profiled):
        times = range_times(trace)
        ns = {name: (device, back) for name, device, back in times.select("name", "device_ns", "backward_ns").rows()}
        assert ns["forward"][1] / ns["backward"][0] == pytest.approx(0.975, abs=0.01)


def test_what_nvtx_attaches_to_a_range_is_kept(emitted: Trace) -> None:
    ranges = emitted[RANGES].with_columns(pl.col("name", "domain", "category").cast(pl.String))
    kept = ranges.filter(pl.col("name").is_in(["epoch part", "fetch", "decode"]))
    columns = ("name", "domain", "category", "color", "payload", "kind")
    assert kept.sort("start_ns").select(columns).rows()[:3] == [
        ("epoch part", "trainer", "progress", 255, None, "start_end"),
        ("fetch", "loader", "input", 32768, 2.0, "push_pop"),
        ("decode", None, None, 16744448, 1.0, "push_pop"),
    ]
