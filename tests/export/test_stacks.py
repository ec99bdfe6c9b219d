"""Stacks as flame graphs take them, one line a call path; and a speedscope file read back as its viewer reads it."""

import io
import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import frame
from tests.tables import trace_of

from timesink.errors import UsageError
from timesink.export.tracks import write_collapsed, write_speedscope
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace

TRACE = """
device_ops | kind   | name | device | stream | start_us | end_us | correlation
first      | kernel | k    |      0 |      7 |       20 |     50 |           1
second     | kernel | k    |      0 |      7 |       60 |    100 |           2
lost       | kernel | k    |      0 |      7 |      100 |    150 |           3

api_calls | name             | thread | start_us | end_us | correlation
one       | cudaLaunchKernel |      1 |       12 |     14 |           1
two       | cudaLaunchKernel |      1 |       52 |     54 |           2

frames | name | file     | line | thread | start_us | end_us | frame_id | parent_id
main   | main | train.py |   40 |      1 |        0 |    200 |        1 | -
block  | f;g  | train.py |    7 |      1 |       10 |     40 |        2 |         1
"""
GPU_NS = 120_000


def collapsed(time: Literal["gpu", "idle", "host"]) -> dict[str, int]:
    file = io.StringIO()
    write_collapsed(trace_of(TRACE), file, time)
    return {stack: int(ns) for stack, _, ns in (line.rpartition(" ") for line in file.getvalue().splitlines())}


def test_stacks_hold_the_time_of_the_work_that_was_launched_there() -> None:
    assert collapsed("gpu") == {
        "main (train.py:40);f,g (train.py:7)": 30_000,
        "main (train.py:40)": 40_000,
        "(no line recorded)": 50_000,
    }


def test_idle_time_and_host_time_are_there_too() -> None:
    assert sum(collapsed("idle").values()) == 10_000
    assert collapsed("host") == {"main (train.py:40)": 170_000, "main (train.py:40);f,g (train.py:7)": 30_000}


def test_speedscope_has_the_gpu_time_beside_the_calls() -> None:
    file = io.StringIO()
    assert write_speedscope(trace_of(TRACE), file) == 2
    document = json.loads(file.getvalue())
    calls, gpu = document["profiles"]
    names = [frame["name"] for frame in document["shared"]["frames"]]
    assert (calls["type"], gpu["type"], gpu["endValue"]) == ("evented", "sampled", GPU_NS)
    stacks = {";".join(names[at] for at in stack): ns for stack, ns in zip(gpu["samples"], gpu["weights"], strict=True)}
    assert stacks == {"main;f;g": 30_000, "main": 40_000, "(no line recorded)": 50_000}


def test_a_trace_without_stacks_and_ranges_is_refused() -> None:
    bare = TRACE.partition("frames |")[0]
    with pytest.raises(UsageError, match="no stacks"):
        write_collapsed(trace_of(bare), io.StringIO())


@pytest.mark.parametrize("time", ["gpu", "idle"])
def test_stacks_of_the_cpu_alone_are_not_called_absent(time: Literal["gpu", "idle"]) -> None:
    of_the_host = trace_of(TRACE[TRACE.index("frames |") :])
    with pytest.raises(UsageError, match=f"no stack of the trace has {time} time") as refused:
        write_collapsed(of_the_host, io.StringIO(), time)
    assert "--time host" in refused.value.remedy
    assert write_collapsed(of_the_host, io.StringIO(), "host") == 2


Call = tuple[str, int, int]


def trace_of_calls(calls: list[Call]) -> Trace:
    known = {"rank": 0, "process": 1, "thread": 7, "file": "a.py", "line": 3}
    rows = [known | {"name": name, "start_ns": start, "end_ns": end} for name, start, end in calls]
    rows.sort(key=lambda row: (row["start_ns"], row["end_ns"]))
    return Trace("test", {FRAMES: frame(FRAMES, rows)})


def document(calls: list[Call]) -> dict[str, Any]:
    file = io.StringIO()
    write_speedscope(trace_of_calls(calls), file)
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
