"""Calls into the operating system hold up the device where nothing else explains the time, and with what is between."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest
from tests.tables import trace_of

from timesink.diagnosis.engine import diagnose
from timesink.measures.idle.blame import idle_shares
from timesink.measures.idle.causes import os_time
from timesink.model.tables import OS_CALLS
from timesink.readers import read

WRITES = Path(__file__).resolve().parents[2] / "data" / "nsys" / "writes.sqlite.xz"


def test_time_between_two_calls_that_move_data_is_theirs_where_nothing_else_was_done() -> None:
    trace = trace_of("""
    | os_calls  | name              | thread | start_us | end_us |
    | first     | write             |      1 |        0 |   1000 |
    | near      | write             |      1 |     2000 |   2500 |
    | launches  | write             |      1 |     3500 |   3600 |
    | elsewhere | write             |      1 |     4000 |   4100 |
    | far       | write             |      1 |     9000 |   9100 |
    | in a call | poll              |      1 |     9310 |   9390 |
    | other     | pthread_cond_wait |      1 |     9500 |   9600 |
    | no call   | pthread_create    |      1 |     9700 |   9800 |

    | api_calls | name                  | correlation | thread | start_us | end_us |
    | a         | cudaLaunchKernel      |           1 |      1 |     3000 |   3010 |
    | b         | cudaStreamSynchronize |             |      1 |     9300 |   9400 |

    | ranges | name | thread | start_us | end_us |
    | one    | log  |      1 |     3900 |   9200 |
    """)
    found = os_time(trace)
    ends = trace[OS_CALLS]["end_ns"].to_list()
    assert (found.until_ns[found.own] // 1000).tolist() == [2000, 2500, 3600, 4100, 9100, 9600]
    assert found.until_ns[1:].tolist() == ends[1:]
    assert found.for_thread.tolist() == [False] * 6 + [True, False]


def test_a_program_that_writes_in_each_step_waits_for_the_operating_system(tmp_path: Path) -> None:
    """Its steps of 4.8 ms write for 3.2 ms, of which the wait for the GPU before would hide 1.1 ms."""
    path = tmp_path / "writes.sqlite"
    path.write_bytes(lzma.decompress(WRITES.read_bytes()))
    trace = read(path, cache=False)
    largest, *_ = idle_shares(trace)
    assert largest.cause == "os_call"
    assert largest.per_step_ns == pytest.approx(2.06e6, rel=0.01)
    assert "most of it at fsync in range write samples" in diagnose(trace).statement
