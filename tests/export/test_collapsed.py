"""Stacks as flame graphs take them: one line a call path, with its GPU time, the idle time, or the host's."""

from __future__ import annotations

import io
import json
from typing import Literal

import pytest
from tests.tables import trace_of

from timesink.errors import UsageError
from timesink.export.stacks import write_collapsed, write_speedscope

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
