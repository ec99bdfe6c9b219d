"""The lines of calls that timesink's capture adds to a trace of torch.profiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timesink.capture.agent.recorders import MEMBER, add_call_lines
from timesink.knowledge.frames import CALL_LINES
from timesink.model.tables import FRAMES
from timesink.readers import read

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
