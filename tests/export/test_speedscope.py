"""A speedscope file read back as its viewer reads it: a stack that opens and closes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import frame

from timesink.errors import UsageError
from timesink.export.stacks import write_speedscope
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace

Call = tuple[str, int, int]


def trace(calls: list[Call]) -> Trace:
    rows = [
        {
            "rank": 0,
            "process": 1,
            "thread": 7,
            "name": name,
            "file": "a.py",
            "line": 3,
            "start_ns": start,
            "end_ns": end,
        }
        for name, start, end in calls
    ]
    rows.sort(key=lambda row: (row["start_ns"], row["end_ns"]))
    return Trace("test", {FRAMES: frame(FRAMES, rows)})


def document(calls: list[Call]) -> dict[str, Any]:
    file = io.StringIO()
    write_speedscope(trace(calls), file)
    return dict(json.loads(file.getvalue()))


def calls_of(read: dict[str, Any]) -> list[Call]:
    found = []
    for profile in read["profiles"]:
        stack: list[tuple[int, int]] = []
        last = profile["startValue"]
        for event in profile["events"]:
            assert event["at"] >= last
            last = event["at"]
            if event["type"] == "O":
                stack.append((event["frame"], event["at"]))
            else:
                opened, start = stack.pop()
                assert opened == event["frame"]
                found.append((read["shared"]["frames"][opened]["name"], start, event["at"]))
        assert not stack
        assert last <= profile["endValue"]
    return sorted(found)


def test_by_hand() -> None:
    read = document([("main", 100, 200), ("load", 120, 150)])
    assert read["shared"]["frames"] == [
        {"name": "main", "file": "a.py", "line": 3},
        {"name": "load", "file": "a.py", "line": 3},
    ]
    (profile,) = read["profiles"]
    assert [(event["type"], event["at"]) for event in profile["events"]] == [("O", 0), ("O", 20), ("C", 50), ("C", 100)]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 9)), min_size=1, max_size=10))
def test_every_call_comes_back_once(given_calls: list[tuple[str, int, int]]) -> None:
    calls = [(name, start, start + length) for name, start, length in given_calls]
    origin = min(start for _, start, _ in calls)
    assert calls_of(document(calls)) == sorted((name, start - origin, end - origin) for name, start, end in calls)


def test_a_trace_without_stacks_says_how_to_record_them() -> None:
    with pytest.raises(UsageError, match="--stacks"):
        write_speedscope(Trace("test", {}), io.StringIO())
