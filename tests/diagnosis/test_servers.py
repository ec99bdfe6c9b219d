"""A server waits for requests: its idle GPU is no Python to move and no input to prepare, unless something shows that.

Of each request its input is copied, forty kernels run and the answer is waited for; between two requests its thread
waits as long as they take to come.

A program that waits for loader workers gains no more than it waits, and no estimate makes its step longer.
"""

import json
import random
from pathlib import Path

import polars as pl
import pytest
from benchmarks.faults.pack import unpacked
from benchmarks.faults.score import captures_in
from tests.gate.sentences import false_sentences
from tests.strategies import frame

from timesink.diagnosis.engine import diagnose
from timesink.diagnosis.verdicts import Bottleneck, Diagnosis
from timesink.measures.ranks.paces import estimated_step_ns
from timesink.measures.timeline.replay import pricers
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, OS_CALLS
from timesink.model.trace import Trace
from timesink.readers import read

KERNELS, REQUESTS = 40, 12


def served(path: Path, *, between_us: float = 100_000, frame_name: str = "", launch: str = "aten::linear") -> Trace:
    """A capture by torch.profiler of a server, with one Python frame in each wait."""
    drawn, events, now, free, number = random.Random(1), list[dict[str, object]](), 1000.0, 0.0, 1

    def host(name: str, category: str, at: float, length: float, **args: object) -> None:
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 100, "tid": 100, "ts": at, "dur": length, "args": args}
        )

    def device(name: str, category: str, earliest: float, length: float, **args: object) -> None:
        nonlocal free, number
        at = max(free, earliest)
        args |= {"device": 0, "stream": 7, "correlation": number}
        events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": length, "args": args}
        )
        free, number = at + length + 1, number + 1

    for request in range(REQUESTS):
        wait = drawn.uniform(0.4, 1.6) * between_us
        if frame_name:
            host(frame_name, "python_function", now + 1, wait - 2, **{"Python id": request})
        now += wait
        host("cudaMemcpyAsync", "cuda_runtime", now, 20, correlation=number)
        device("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", now + 12, 10, bytes=65536)
        for _ in range(KERNELS):
            now += 30
            host(launch, "cpu_op", now - 4, 14)
            host("cudaLaunchKernel", "cuda_runtime", now, 5, correlation=number)
            device("volta_sgemm_128x64_tn", "kernel", now + 8, 60, grid=[64, 1, 1], block=[128, 1, 1])
        now += 30
        host("cudaMemcpyAsync", "cuda_runtime", now, free - now + 20, correlation=number)
        device("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", free, 8, bytes=4096)
        now = free + 25
    gpu = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108, "computeMajor": 8, "computeMinor": 0}
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": events}))
    return read(path, cache=False)


def by_nsys(trace: Trace, os_call: str = "") -> Trace:
    """The same as Nsight Systems records it, with a call into the operating system in each wait."""
    calls = trace[API_CALLS].sort("start_ns")
    rows = [
        {"rank": 0, "process": 100, "thread": 100, "name": os_call, "start_ns": end + 1_000, "end_ns": begin - 1_000}
        for end, begin in zip(calls["end_ns"][:-1], calls["start_ns"][1:], strict=True)
        if os_call and begin - end > 1_000_000
    ]
    tables = {table: trace[table] for table in (API_CALLS, DEVICE_OPS, DEVICES) if table in trace}
    return Trace("server", {**tables, **({OS_CALLS: frame(OS_CALLS, rows)} if rows else {})})


@pytest.mark.parametrize("beside", ["poll", "epoll_wait", "accept4", "pthread_cond_wait", "recv", "clock_nanosleep"])
def test_that_another_thread_waits_is_no_wait_of_the_one_that_launches(beside: str, tmp_path: Path) -> None:
    trace = by_nsys(served(tmp_path / "server.json"), "write")
    first, last = trace[API_CALLS]["start_ns"].min(), trace[API_CALLS]["end_ns"].max()
    row = {"rank": 0, "process": 100, "thread": 101, "name": beside, "start_ns": first, "end_ns": last}
    tables = {**trace.tables, OS_CALLS: pl.concat([trace[OS_CALLS], frame(OS_CALLS, [row])]).sort("start_ns")}
    assert promised(diagnose(Trace("a program that writes", tables))) > 0.5


def promised(diagnosis: Diagnosis) -> float:
    """The most that a finding of idle time promises, as a share of the step."""
    idle = (Bottleneck.HOST_PYTHON, Bottleneck.INPUT_PIPELINE, Bottleneck.UNRECORDED_CODE, Bottleneck.OPERATING_SYSTEM)
    told = [finding for _, finding in diagnosis.findings if finding.bottleneck in idle and finding.recoverable]
    assert any(one.recoverable and one.of_ms and one.recoverable.most > 0.5 * one.of_ms for one in told)
    return max(one.recoverable.value / one.of_ms for one in told if one.recoverable and one.of_ms)


WAITING = (
    "queue.py(154): get", "<built-in method poll of select.epoll object at 0x7f3a>", "<built-in function sleep>",
    "<method 'recv' of '_socket.socket' objects>", "<built-in method acquire of _thread.lock object at 0x7f3a>",
    "/usr/lib/python3.11/threading.py(320): wait", "multiprocessing/connection.py(246): recv",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("frame_name", ["", *WAITING])
@pytest.mark.parametrize("between_us", [20_000, 100_000])
def test_torch_profiler_shows_a_server_that_waits(frame_name: str, between_us: float, tmp_path: Path) -> None:
    diagnosis = diagnose(served(tmp_path / "server.json", between_us=between_us, frame_name=frame_name))
    assert promised(diagnosis) == 0.0
    assert diagnosis.bottleneck is not Bottleneck.INPUT_PIPELINE


@pytest.mark.parametrize(
    "os_call", ["", "epoll_wait", "poll", "recv", "accept4", "clock_nanosleep", "pthread_cond_wait", "sem_wait"]
)
def test_nsight_systems_shows_a_server_that_waits(os_call: str, tmp_path: Path) -> None:
    assert promised(diagnose(by_nsys(served(tmp_path / "server.json"), os_call))) == 0.0


@pytest.mark.parametrize(
    ("trace", "tool"),
    [
        ({"frame_name": "serve.py(12): tokenize"}, "torch"),  # Python that runs
        ({"frame_name": "<built-in method get of dict object at 0x7f3a>"}, "torch"),
        ({"launch": "autograd::engine::evaluate_function: MmBackward0"}, "torch"),  # it trains
        ({}, "write"),
        ({}, "read"),
    ],
)
def test_what_is_seen_to_work_is_promised(trace: dict[str, str], tool: str, tmp_path: Path) -> None:
    seen = served(tmp_path / "server.json", frame_name=trace.get("frame_name", ""), launch=trace.get("launch", "mm"))
    assert promised(diagnose(seen if tool == "torch" else by_nsys(seen, tool))) > 0.5


CAPTURES = Path(__file__).resolve().parents[2] / "benchmarks" / "faults" / "captures"


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        "eighth/unpacked_by_two_workers", "eighth/unpacked_in_time", "too_few_workers", "workers_started_anew",
        "loader_keeping_up",
    ],
)  # fmt: skip
def test_no_more_is_saved_than_is_waited_for(program: str, tmp_path: Path) -> None:
    unpacked(CAPTURES / f"{program}.torch.tar.xz", tmp_path)
    for paths in captures_in(tmp_path).values():
        trace = read(paths, cache=False)
        assert false_sentences(diagnose(trace), trace) == []
        low_ns, expected_ns, high_ns = estimated_step_ns(trace) or (0.0, 0.0, 0.0)
        assert low_ns <= expected_ns <= high_ns <= pricers(trace)[0].step_ns
