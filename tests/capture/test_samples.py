"""Stacks that are looked at while steps are recorded: what is seen, and what the reader makes of it."""

import json
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.tables import trace_of

from timesink.capture.agent.samples import MEMBER, FrameSampler, Known, _places
from timesink.knowledge.frames import SAMPLES
from timesink.measures.idle.input_pipeline import waits_for_work
from timesink.model.tables import HOST_STACKS
from timesink.readers import read


def busy(until_s: float) -> int:
    turns = 0
    while time.perf_counter() < until_s:
        turns += 1
    return turns


def test_most_looks_are_at_the_line_that_works() -> None:
    sampler = FrameSampler()
    sampler.start()
    busy(time.perf_counter() + 0.5)
    seen = json.loads(sampler.stop())
    own = threading.get_native_id()
    looks = [seen["stacks"][at] for at, thread in zip(seen["stack"], seen["thread"], strict=True) if thread == own]
    assert len(looks) >= 5
    assert sum("test_samples.py" in look.split(";")[0] and ": busy" in look for look in looks) > 0.8 * len(looks)
    assert sum(seen["later_ns"]) == pytest.approx(time.time_ns(), abs=2e9)


def test_what_was_never_started_has_nothing() -> None:
    assert FrameSampler().stop() == ""


def written(folder: Path, member: object) -> Path:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 9, "ts": 10, "dur": 5}
    path = folder / "run.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event], MEMBER: member}))
    return path


def test_looks_are_rows_of_their_thread_and_time(tmp_path: Path) -> None:
    assert MEMBER == SAMPLES
    member = {"stacks": ["a.py(3): f", "b.py(4): g"], "later_ns": [11_000, 500], "thread": [9, 9], "stack": [1, 0]}
    rows = read([written(tmp_path, member)])[HOST_STACKS]
    assert rows["time_ns"].to_list() == [11_000, 11_500]
    assert rows["stack"].cast(str).to_list() == ["b.py(4): g", "a.py(3): f"]
    assert rows["process"].to_list() == [7, 7]


@pytest.mark.parametrize(
    "member",
    [
        5,
        {"stacks": ["a"]},
        {"stacks": ["a"], "later_ns": [1], "thread": [1], "stack": [3]},
        {"stacks": ["a"], "later_ns": [2**70], "thread": [1], "stack": [0]},
    ],
)
def test_a_member_of_another_shape_is_no_look(tmp_path: Path, member: object) -> None:
    assert not read([written(tmp_path, member)]).get(HOST_STACKS).height


def test_a_thread_seen_to_wait_twice_waits_in_between() -> None:
    trace = trace_of("""
| device_ops | name | start_us | end_us | correlation |
|---|---|---|---|---|
| k | gemm | 100 | 110 | 1 |

| api_calls | name | thread | start_us | end_us | correlation |
|---|---|---|---|---|---|
| c | cudaLaunchKernel | 1 | 95 | 99 | 1 |

| host_stacks | thread | time_us | kind | stack |
|---|---|---|---|---|
| s | 1 | 10 | sample | `queue.py(171): get;serve.py(9): main` |
| s | 1 | 60 | sample | `queue.py(171): get;serve.py(9): main` |
| s | 1 | 90 | sample | `serve.py(12): main` |
""")
    waited = waits_for_work(trace)[0]
    assert (waited.start_ns.tolist(), waited.end_ns.tolist()) == ([10_000], [60_000])


def test_python_between_calls_is_seen_where_it_is() -> None:
    """A thread that hands the interpreter over every few hundred microseconds is not only seen as it does so."""
    before = sys.getswitchinterval()
    sampler = FrameSampler()
    sampler.start()
    assert sys.getswitchinterval() <= 0.001
    until_s = time.perf_counter() + 0.6
    while time.perf_counter() < until_s:
        counted(20_000)
        zlib.crc32(b"handed over" * 9000)
    seen = json.loads(sampler.stop())
    assert sys.getswitchinterval() == before
    looks = [seen["stacks"][at].partition(";")[0] for at in seen["stack"]]
    assert any(": counted" in look for look in looks)  # none of 511 was, before


def counted(count: int) -> int:
    total = 0
    for number in range(count):
        total += number
    return total


def test_code_that_is_gone_lends_no_other_its_place() -> None:
    """Functions made and dropped in turn, of the program and of a library, take each other's addresses."""
    known = Known()
    for number in range(400):
        file = "/made/program.py" if number % 2 else "/usr/lib/python3/site-packages/made.py"
        scope: dict[str, Any] = {"sys": sys}
        exec(compile("def f(): return sys._getframe()", file, "exec"), scope)
        _places(scope["f"](), known)
        assert known[id(scope["f"].__code__)][1] == bool(number % 2)
