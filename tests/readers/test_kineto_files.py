"""Every real Kineto file reads as the slow reader reads it, or ends in a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.readers.slow_kineto import COLUMNS, read_slowly

from timesink.errors import UnreadableTrace
from timesink.model.tables import ALL, DEVICE_OPS, SOURCES
from timesink.model.trace import NoteKind, Trace
from timesink.readers import read

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
