"""Every real Kineto file reads as the slow reader reads it, or ends in a clear error.

Samples of hardware counters in a trace of PyTorch, as Kineto writes them since August 2026.

The lines of calls that timesink's capture adds to a trace of torch.profiler.
"""

import gzip
import json
import lzma
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zstandard
from polars.testing import assert_frame_equal
from tests.readers.slow_kineto import COLUMNS, read_slowly

from timesink.capture.agent.recorders import MEMBER, add_call_lines
from timesink.errors import UnreadableTrace
from timesink.knowledge.frames import CALL_LINES
from timesink.measures.counters.sampled import sampled
from timesink.model.intervals import Intervals
from timesink.model.tables import ALL, DEVICE_OPS, FRAMES, GPU_METRICS, SOURCES
from timesink.model.trace import NoteKind, Trace
from timesink.readers import read

DEMO = Path(str(files("timesink.cli").joinpath("demo/gpt_before.json.xz")))
FILES = (
    *("after_fix.json", "before_fix.json", "backward_thread.json", "gpu_metrics_input.json"),
    *("alexnet.json.gz", "amd_mi250_minitoy.json.gz", "compare_base.json.gz", "compare_test.json.gz"),
    *("event_sync_multi_stream.json.gz", "h100_Falconsai_nsfw_image_detection.json.gz", "simple_add.json.gz"),
    *("h100_gaunernst_bert-small-uncased.json.gz", "mi210_gpu_only.json.gz", "ns_resolution_rank0.json.gz"),
    *("mi300_Falconsai_nsfw_image_detection.json.gz", "mi300_gaunernst_bert-small-uncased.json.gz"),
    *("resnet50_workers0.json.gz", "resnet50_workers4.json.gz", "sglang_decode.json.gz"),
    *("torch_compile_triton.json.gz", "triton_example.json.gz", "vllm_decode_graph.json.gz"),
    "dlrm_8rank/worker3_step_12.1694128201557.pt.trace.json.gz",
    *("odd/cpu_only.json.gz", "odd/cupti_profiler.json.gz", "odd/large_integer.json.gz"),
    *("odd/mtia_455k_events.json.gz", "odd/rank_non_gpu.json.gz", "odd/toplevel_list_2021.json.gz"),
)
NO_GPU_WORK = ("odd/cpu_only", "odd/cupti_profiler", "odd/mtia_455k_events", "odd/rank_non_gpu")
BY_NAME = {table.name: table for table in ALL}


def assert_reads_alike(path: Path) -> Trace:
    trace = read(path, cache=False)
    expected = read_slowly(path)
    for name, columns in COLUMNS.items():
        table = BY_NAME[name]
        rows = sorted(trace.get(table).select(columns.split()).rows(), key=repr)
        wanted = expected.get(name, [])
        assert len(rows) == len(wanted), name
        assert rows == wanted, next((row, want) for row, want in zip(rows, wanted, strict=True) if row != want)
    return trace


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_public_file_reads_as_the_slow_reader_reads_it(shared_data: Path, name: str) -> None:
    trace = assert_reads_alike(shared_data / "public" / "kineto" / name)
    assert SOURCES in trace
    says_so = any("no GPU work was recorded" in note.message for note in trace.notes)
    assert says_so == name.startswith(NO_GPU_WORK) == (DEVICE_OPS not in trace)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt_before", "gpt_after"])
def test_a_capture_of_our_own_reads_as_the_slow_reader_reads_it(shared_data: Path, name: str) -> None:
    trace = assert_reads_alike(shared_data / "own" / "kineto" / f"{name}.json.gz")
    assert [note for note in trace.notes if note.kind is NoteKind.DATA_LOSS] == []


def test_the_list_of_files_is_complete(shared_data: Path) -> None:
    root = shared_data / "public" / "kineto"
    found = {str(file.relative_to(root)) for file in root.rglob("*.json*")}
    assert {name for name in found if not name.startswith("dlrm_8rank/")} == {
        name for name in FILES if not name.startswith("dlrm_8rank/")
    }


SEEDS = sorted((Path(__file__).parents[2] / "fuzz" / "corpus" / "decode").glob("*.seed"))


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.stem)
def test_every_fuzz_seed_ends_in_a_trace_or_a_clear_error(tmp_path: Path, seed: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(seed.read_bytes()[1:])  # the first byte only chooses the fuzzer's windows
    try:
        trace = read(file, cache=False)
    except UnreadableTrace as refusal:
        assert refusal.remedy
    else:
        for table in trace:
            table.check(trace[table])


BASE_NS = 1_756_000_000_000_000_000
SM, TENSOR = "sm__cycles_active.avg", "sm__pipe_tensor_cycles_active.avg"
OF_PEAK = ".pct_of_peak_sustained_elapsed"


def sample(name: str, ts: float, value: float, device: int = 0) -> str:
    """An event as `output_json.cpp` lays it out."""
    head = f'\n  {{\n    "ph": "C",\n    "cat": "hardware_counters",\n    "name": "{name}",\n'
    place = f'    "pid": "GPU {device} Counters",\n    "tid": 0,\n    "ts": {ts:.3f},\n'
    return f'{head}{place}    "args": {{\n      "": {value}\n    }}\n  }}'


def written(path: Path, *events: str) -> Path:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0.0, "dur": 5000.0}
    other = {"ph": "C", "cat": "gpu_memory", "name": "Total", "pid": 0, "tid": 0, "ts": 1.0, "args": {"bytes": 5}}
    text = ",".join([json.dumps(kernel | {"args": {"device": 0, "stream": 7}}), json.dumps(other), *events])
    body = f'{{"schemaVersion": 1, "baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{text}]}}'.encode()
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


def rows(trace: Trace) -> list[tuple[object, ...]]:
    return trace[GPU_METRICS].select("device", "name", "time_ns", "value").rows()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_each_sample_is_a_row_on_the_clock_of_the_trace(name: str, tmp_path: Path) -> None:
    events = [sample(SM + OF_PEAK, 12.5, 71.25), sample("dram__bytes_read.sum", 12.5, 1.5e9, device=1)]
    trace = read(written(tmp_path / name, *events), cache=False)
    assert rows(trace) == [
        (0, SM + OF_PEAK, BASE_NS + 12_500, 71.25),
        (1, "dram__bytes_read.sum", BASE_NS + 12_500, 1.5e9),
    ]
    assert [note.count for note in trace.notes if "counter samples" in note.message] == [1]


def test_none_is_lost_between_two_pieces_of_a_long_file(tmp_path: Path) -> None:
    events = [sample(SM + OF_PEAK, at, at % 100) for at in range(20_000)]
    trace = read(written(tmp_path / "trace.json", *events), cache=False)
    assert trace[GPU_METRICS]["value"].to_list() == [float(at % 100) for at in range(20_000)]


def test_they_are_the_counters_that_nsys_samples(tmp_path: Path) -> None:
    """What runs in the stretch is busy with tensor cores for 40 % of it."""
    events = [sample(name + OF_PEAK, 100.0 * at, of) for at in range(40) for name, of in ((SM, 90.0), (TENSOR, 40.0))]
    trace = read(written(tmp_path / "trace.json", *events), cache=False)
    found = sampled(trace, (0, 0), Intervals.one(BASE_NS, BASE_NS + 5_000_000))
    assert [(one.what, round(one.share, 3)) for one in found] == [("SMs active", 0.9), ("tensor cores active", 0.4)]


def test_a_trace_without_samples_has_no_table_of_them(tmp_path: Path) -> None:
    assert GPU_METRICS not in read(written(tmp_path / "trace.json"), cache=False)


EVENTS = [
    {"ph": "X", "cat": "python_function", "name": "train.py(7): step", "pid": 1, "tid": 1, "ts": 10.5, "dur": 50,
     "args": {"Python id": 1, "Python parent id": None}},
    {"ph": "X", "cat": "python_function", "name": "torch/f.py(3): f", "pid": 1, "tid": 1, "ts": 12.25, "dur": 5,
     "args": {"Python id": 2, "Python parent id": 1}},
]  # fmt: skip


def profile_of(*calls: tuple[int, str, int]) -> Any:
    """A profiler with a tree of one root, whose children are calls: start in ns, file and line of the caller."""
    made = [
        SimpleNamespace(
            start_time_ns=start,
            typed=(None, SimpleNamespace(caller=SimpleNamespace(file_name=file, line_number=line))),
            children=[],
        )
        for start, file, line in calls
    ]
    root = SimpleNamespace(start_time_ns=0, typed=(None, SimpleNamespace()), children=made)
    kineto = SimpleNamespace(experimental_event_tree=lambda: [root])
    return SimpleNamespace(profiler=SimpleNamespace(kineto_results=kineto))


def trace_file(folder: Path, base_ns: int = 0) -> Path:
    path = folder / "run.json"
    text = json.dumps({"schemaVersion": 1, "with_stack": 1, "traceEvents": EVENTS, "baseTimeNanoseconds": base_ns})
    path.write_text(text + "\n")
    return path


@pytest.mark.parametrize("base_ns", [0, 1_700_000_000_000_000_000])
def test_lines_that_capture_adds_are_read_back(tmp_path: Path, base_ns: int) -> None:
    path = trace_file(tmp_path, base_ns)
    calls = ((base_ns + 12_250, "train.py", 9), (base_ns + 11_000, "torch/f.py", 3), (base_ns + 10_500, "train.py", 0))
    assert add_call_lines(profile_of(*calls), path)
    assert CALL_LINES == MEMBER
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, path.with_suffix(".json.gz")):
        assert read([file])[FRAMES]["call_line"].to_list() == [None, 9]


def test_a_file_that_does_not_end_as_json_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text('{"traceEvents": [')
    assert not add_call_lines(profile_of((5, "train.py", 9)), path)
    assert path.read_text() == '{"traceEvents": ['


def test_a_profiler_without_a_tree_adds_nothing(tmp_path: Path) -> None:
    assert not add_call_lines(SimpleNamespace(profiler=None), trace_file(tmp_path))


@pytest.mark.parametrize(
    "member", [5, {"start_ns": [1]}, {"start_ns": [1], "line": ["x"]}, {"start_ns": [2**70], "line": [1]}]
)
def test_a_member_of_another_shape_is_no_line(tmp_path: Path, member: object) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"traceEvents": EVENTS, CALL_LINES: member}))
    assert read([path])[FRAMES]["call_line"].to_list() == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress, zstandard.compress], ids=["gzip", "xz", "zstd"])
def test_a_trace_is_read_however_it_is_packed(packed: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Known by its first bytes, under any name; one that is cut off yields what came before."""
    text = lzma.decompress(DEMO.read_bytes())
    (tmp_path / "trace").write_bytes(packed(text))
    demo, found = read(DEMO, cache=False), read(tmp_path / "trace", cache=False)
    for table in demo.tables.keys() - {SOURCES}:
        assert_frame_equal(found[table], demo[table])
    whole = (tmp_path / "trace").read_bytes()
    (tmp_path / "trace").write_bytes(whole[: len(whole) * 9 // 10])
    most = read(tmp_path / "trace", cache=False)
    assert most.damage and 0 < most[DEVICE_OPS].height < demo[DEVICE_OPS].height
