"""Ranks and launched GPU work are chosen where a file is read, from Python as on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from timesink.errors import UsageError
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.readers import read


def _file(folder: Path, rank: int) -> Path:
    """A trace with one call that launches a kernel, and a kernel without its launch."""
    events = [
        _event("cuda_runtime", "cudaLaunchKernel", 10, tid=1, correlation=5),
        _event("kernel", "launched", 20, tid=7, correlation=5, device=0, stream=7),
        _event("kernel", "running before", 0, tid=7, correlation=4, device=0, stream=7),
    ]
    path = folder / f"rank{rank}.json"
    path.write_text(json.dumps({"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}))
    return path


def _event(category: str, name: str, start_us: int, *, tid: int, **args: int) -> dict[str, object]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start_us, "dur": 5, "args": args}


def test_only_the_ranks_asked_for_are_kept(tmp_path: Path) -> None:
    files = [_file(tmp_path, 0), _file(tmp_path, 1)]
    trace = read(files, ranks=[1], cache=False)
    assert trace.rank_numbers == (1,)
    assert {rank for frame in trace.tables.values() for rank in frame["rank"].unique()} == {1}
    with pytest.raises(UsageError, match="no rank 2, 3; choose from 0, 1"):
        read(files, ranks=[1, 3, 2], cache=False)


def test_work_without_its_launch_is_left_out_and_counted(tmp_path: Path) -> None:
    path = _file(tmp_path, 0)
    whole, linked = read(path, cache=False), read(path, linked_only=True, cache=False)
    assert whole[DEVICE_OPS].height == 2
    assert linked[DEVICE_OPS]["name"].to_list() == ["launched"]
    assert linked[API_CALLS].equals(whole[API_CALLS])
    assert [(note.count, note.table) for note in linked.notes[len(whole.notes) :]] == [(1, "device_ops")]
