"""Files that hold several ranks are split by what their process ids say, or refused with the way out."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from timesink.errors import UnreadableTrace
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, SOURCES
from timesink.readers import read

Spelling = Callable[[int, int], Any]

SPELLINGS: dict[str, Spelling] = {
    "brackets": lambda rank, pid: f"[TP0{rank}-DP00-PP00-EP00] {pid}",
    "path": lambda rank, pid: f"rank{rank}/{pid}",
    "words": lambda rank, pid: f"Rank {rank}: {pid}",
    "behind": lambda rank, pid: f"{pid} (rank {rank})",
    "bracket behind": lambda rank, pid: f"{pid} [DP{rank}]",
    "underscores": lambda rank, pid: f"{pid}_rank_{rank}",
    "short": lambda rank, pid: f"r{rank}-{pid}",
    "host": lambda rank, pid: f"node-{'ab'[rank]} {pid}",
    "bare": lambda rank, pid: f"{rank}:{pid}",
    "million": lambda rank, pid: pid + 1_000_000 * rank,
    "ten million, from one": lambda rank, pid: pid + 10_000_000 * (rank + 1),
    "thousands": lambda rank, pid: pid + 100_000 * rank,
    "node and rank": lambda rank, pid: f"node{rank} rank0 {pid}",
}


def rank_events(rank: int, spell: Spelling, gpu: int = 0, pid: int = 4242) -> list[dict[str, Any]]:
    """Ten kernels of one rank with their operators and launches; rank 1 has shorter ones."""
    host, device = spell(rank, pid), spell(rank, gpu)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": host, "tid": 0, "ts": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x", "ts": 0, "dur": 9e3},
    ]
    for at in range(10):
        ts = 1000.5 + 900 * at
        kernel = {"device": gpu, "context": 1, "stream": 7, "correlation": 100 + at, "External id": at + 1}
        events += [
            {"ph": "X", "cat": "cpu_op", "name": 'a "pid": 3', "pid": host, "tid": 8, "ts": ts, "dur": 60,
             "args": {"External id": at + 1}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": host, "tid": 8, "ts": ts + 5,
             "dur": 3, "args": {"External id": at + 1, "correlation": 100 + at}},
            {"ph": "X", "cat": "kernel", "name": "gemm", "pid": device, "tid": 7, "ts": ts + 10,
             "dur": 800 - 300 * rank, "args": kernel},
        ]  # fmt: skip
    return events


def written(path: Path, ranks: int, spell: Spelling, *, by_turns: bool = True, bare: bool = False) -> Path:
    parts = [rank_events(rank, spell) for rank in range(ranks)]
    events = [event for turn in (zip(*parts, strict=True) if by_turns else parts) for event in turn]
    whole = events if bare else {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events, "z": [1]}
    path.write_text(json.dumps(whole, indent=by_turns or None))
    return path


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("by_turns", [True, False])
def test_each_rank_is_read_by_itself(tmp_path: Path, spelling: str, by_turns: bool) -> None:
    trace = read(written(tmp_path / "merged.json", 2, SPELLINGS[spelling], by_turns=by_turns, bare=not by_turns))
    assert trace.rank_numbers == (0, 1)
    for rank in (0, 1):
        own = trace.of_ranks([rank])
        ops = own[DEVICE_OPS]
        assert (ops["end_ns"] - ops["start_ns"]).to_list() == [(800 - 300 * rank) * 1000] * 10
        assert ops["device"].unique().to_list() == [0]
        assert own[API_CALLS].height == own[HOST_OPS].height == 10
        assert set(own[HOST_OPS]["name"]) == {'a "pid": 3'}
        processes = {process for table in (DEVICE_OPS, API_CALLS, HOST_OPS) for process in own[table]["process"]}
        assert processes == {4242}
    assert [note.count for note in trace.notes if "ranks in one file" in note.message] == [2]
    assert not any(note.kind.is_loss for note in trace.notes)


def test_a_window_of_a_merged_file(tmp_path: Path) -> None:
    path = written(tmp_path / "merged.json", 2, SPELLINGS["brackets"])
    trace = read(path, window="0ms:2ms")
    assert trace.rank_numbers == (0, 1)
    assert trace[DEVICE_OPS].height == 6
    assert trace.source == str(path)


def test_words_of_a_single_rank_are_no_loss(tmp_path: Path) -> None:
    trace = read(written(tmp_path / "one.json", 1, SPELLINGS["words"]))
    assert trace.rank_numbers == (0,)
    assert set(trace[API_CALLS]["process"]) == {4242}


def test_numbers_that_say_a_rank_are_kept(tmp_path: Path) -> None:
    trace = read(written(tmp_path / "merged.json", 2, lambda rank, pid: f"rank {7 - 4 * rank}: {pid}"))
    assert trace.rank_numbers == (3, 7)


def test_no_part_of_it_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    path = written(tmp_path / "merged.json", 2, SPELLINGS["brackets"])
    trace = read(path, cache=False)
    assert [*tmp_path.iterdir()] == [path]
    assert trace[SOURCES]["path"].to_list() == [str(path)] * 2
    assert trace[SOURCES]["size_bytes"].to_list() == [path.stat().st_size] * 2


@pytest.mark.parametrize("gpu_of_rank", [0, 1])
def test_processes_whose_calls_have_numbers_of_their_own(tmp_path: Path, gpu_of_rank: int) -> None:
    parts = [rank_events(rank, lambda _, pid: pid, gpu=gpu_of_rank * rank, pid=4242 + rank) for rank in (0, 1)]
    for event in parts[1]:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] += 5000
    path = tmp_path / "merged.json"
    path.write_text(json.dumps({"traceEvents": parts[0] + parts[1]}))
    trace = read(path)
    assert trace.rank_numbers == (0, 1)
    for rank in (0, 1):
        ops = trace.of_ranks([rank])[DEVICE_OPS]
        assert (ops["end_ns"] - ops["start_ns"]).to_list() == [(800 - 300 * rank) * 1000] * 10


def test_categories_of_the_first_releases(tmp_path: Path) -> None:
    path = written(tmp_path / "merged.json", 2, SPELLINGS["brackets"])
    older = {"kernel": "Kernel", "cuda_runtime": "Runtime", "cpu_op": "Operator"}
    text = path.read_text()
    for new, old in older.items():
        text = text.replace(f'"cat": "{new}"', f'"cat": "{old}"')
    path.write_text(text)
    assert read(path).rank_numbers == (0, 1)


def test_processes_of_one_machine_with_a_gpu_each(tmp_path: Path) -> None:
    path = tmp_path / "merged.json"
    events = [event for rank in (0, 1) for event in rank_events(rank, lambda _, pid: pid, gpu=rank, pid=4242 + rank)]
    path.write_text(json.dumps({"traceEvents": events}))
    refused(path)


@pytest.mark.parametrize("pids", [(4242, 4242), (4242, 4243)])
def test_ranks_that_nothing_tells_apart_are_refused(tmp_path: Path, pids: tuple[int, int]) -> None:
    path = tmp_path / "merged.json"
    events = [event for rank in (0, 1) for event in rank_events(rank, lambda _, pid: pid, pid=pids[rank])]
    path.write_text(json.dumps({"traceEvents": events}))
    refused(path)


def refused(path: Path) -> None:
    with pytest.raises(UnreadableTrace) as said:
        read(path)
    assert "several ranks" in str(said.value)
    assert "rank0.json" in str(said.value.remedy)
