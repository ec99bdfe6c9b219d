"""Captures are made small without changing a time, and tell nothing of the machine they came from."""

import json
import sqlite3
from pathlib import Path

import pytest
from benchmarks.faults.trim import scrubbed, trim_nsys, trim_torch

EVENTS = [
    {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#1",
        "pid": 1,
        "tid": 1,
        "ts": 4303083048016.683,
        "dur": 9,
    },
    {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": 4303083048017.001, "dur": 1, "args": {"correlation": 7}},
    {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#2",
        "pid": 1,
        "tid": 1,
        "ts": 4303083048026.0,
        "dur": 9,
    },
    {"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": 4303083048027.0, "dur": 1, "args": {"correlation": 8}},
    {"ph": "X", "cat": "kernel", "name": "late", "ts": 4303083048090.5, "dur": 3, "args": {"correlation": 7}},
    {"ph": "X", "cat": "kernel", "name": "other", "ts": 4303083048095.5, "dur": 3, "args": {"correlation": 8}},
]


def trimmed(tmp_path: Path, events: list[dict[str, object]], steps: int) -> tuple[str, list[dict[str, object]]]:
    raw, small = tmp_path / "raw.json", tmp_path / "small.json"
    raw.write_text(json.dumps({"traceName": "/home/someone/raw.json", "trace_id": "AB", "traceEvents": events}))
    trim_torch(raw, small, steps)
    text = small.read_text()
    return text, json.loads(text)["traceEvents"]


def test_a_kernel_stays_with_the_step_that_launched_it(tmp_path: Path) -> None:
    _, kept = trimmed(tmp_path, EVENTS, steps=1)
    assert [event["name"] for event in kept] == ["ProfilerStep#1", "launch", "late"]


def test_times_are_written_back_digit_for_digit(tmp_path: Path) -> None:
    text, kept = trimmed(tmp_path, EVENTS, steps=2)
    assert '"ts":4303083048016.683' in text
    assert '"ts":4303083048017.001' in text
    assert len(kept) == len(EVENTS)


def test_a_time_that_a_double_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nanoseconds"):
        trimmed(tmp_path, [{**EVENTS[0], "ts": 1.7e15}], steps=1)


def test_no_folder_and_no_trace_identity_is_kept(tmp_path: Path) -> None:
    frame = {
        "ph": "X",
        "cat": "python_function",
        "name": "/home/ann/benchmarks/faults/host.py(3): step",
        "ts": 1,
        "dur": 1,
    }
    text, _ = trimmed(tmp_path, [frame], steps=1)
    assert "someone" not in text
    assert "ann" not in text
    assert "trace_id" not in text
    assert "benchmarks/faults/host.py(3): step" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "/opt/venv/lib/python3.12/site-packages/torch/nn/linear.py(1): forward",
            "python3.12/site-packages/torch/nn/linear.py(1): forward",
        ),
        ("/tmp/cache/ab/triton_poi_0.py(2): run", "triton_poi_0.py(2): run"),
        ("a/b: no absolute path", "a/b: no absolute path"),
    ],
)
def test_paths_lose_the_folders_above(before: str, after: str) -> None:
    assert scrubbed({"name": [before]}) == {"name": [after]}


SCHEMA = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, globalPid INT, correlationId INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (correlationId INT, eventId INT);
CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_GPU (name TEXT, uuid TEXT, busLocation TEXT);
CREATE TABLE ANALYSIS_DETAILS (duration INT, startTime INT, stopTime INT);
CREATE TABLE ProcessStreams (value TEXT);
CREATE TABLE PROCESSES (globalPid INT, pid INT, name TEXT);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel'), (2, 'gemm'), (3, 'warmup'),
  (4, 'case b/low/fault'), (5, 'secret');
INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'case a/high/fault', NULL, 9), (110, 150, 59, 'step', NULL, 9),
  (300, 400, 59, NULL, 4, 9), (1, NULL, 75, 'domain', NULL, 9), (10, 20, 59, 'early', NULL, 9);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (50, 51, 9, 1, 1), (120, 121, 9, 2, 1), (310, 311, 9, 3, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (60, 61, 8, 1, 3), (130, 140, 8, 2, 2), (320, 330, 8, 3, 2);
INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES (1, 70), (2, 71);
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENT_0', 'secret.py'), ('CAPTURE_EVENT_TYPE', 'Cuda');
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Hostname', 'secret'), ('NvDriverVersion', '580');
INSERT INTO TARGET_INFO_GPU VALUES ('NVIDIA H200', 'secret', '0000:00:06.0');
INSERT INTO ANALYSIS_DETAILS VALUES (1000, 0, 1000);
INSERT INTO PROCESSES VALUES (8, 80, '/secret/bin/python3'), (7, 70, 'secretd');
INSERT INTO ProcessStreams VALUES ('secret output');
"""


def cases_of(tmp_path: Path) -> dict[str, sqlite3.Connection]:
    report = tmp_path / "report.sqlite"
    with sqlite3.connect(report) as database:
        database.executescript(SCHEMA)
    trim_nsys(report, tmp_path / "cases")
    return {path.name: sqlite3.connect(path) for path in sorted((tmp_path / "cases").iterdir())}


def test_a_report_is_cut_into_its_cases(tmp_path: Path) -> None:
    cases = cases_of(tmp_path)
    assert list(cases) == ["a.high.fault.sqlite", "b.low.fault.sqlite"]
    case = cases["a.high.fault.sqlite"]
    assert case.execute("SELECT start, correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchall() == [(130, 2)]
    assert case.execute("SELECT eventId FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT").fetchall() == [(71,)]
    assert case.execute("SELECT text FROM NVTX_EVENTS ORDER BY start").fetchall() == [("domain",), ("step",)]
    assert case.execute("SELECT * FROM ANALYSIS_DETAILS").fetchall() == [(100, 100, 200)]
    assert case.execute("SELECT value FROM StringIds ORDER BY id").fetchall() == [("cudaLaunchKernel",), ("gemm",)]


def test_a_cut_report_says_nothing_of_the_machine(tmp_path: Path) -> None:
    for case in cases_of(tmp_path).values():
        assert "secret" not in "".join(case.iterdump())
        assert case.execute("SELECT name FROM PROCESSES").fetchall() == [("python3",)]
        assert case.execute("SELECT * FROM META_DATA_CAPTURE").fetchall() == [("CAPTURE_EVENT_TYPE", "Cuda")]
        assert case.execute("SELECT * FROM TARGET_INFO_SYSTEM_ENV").fetchall() == [("NvDriverVersion", "580")]


JOB = {"backend": "nccl", "rank": 1, "world_size": 2, "pg_config": [{"ranks": [0, 1]}], "secret": "here"}


def test_a_rank_stays_a_rank_of_a_nameless_host(tmp_path: Path) -> None:
    raw, small = tmp_path / "raw.json", tmp_path / "small.json"
    raw.write_text(json.dumps({"distributedInfo": JOB, "host_name": "secret", "traceEvents": EVENTS}))
    trim_torch(raw, small, steps=1)
    trace = json.loads(small.read_text())
    assert "secret" not in small.read_text()
    assert (trace["distributedInfo"]["rank"], trace["distributedInfo"]["world_size"]) == (1, 2)
    assert trace["host_name"] == "node"


def test_a_job_of_one_rank_says_nothing_of_its_host(tmp_path: Path) -> None:
    raw, small = tmp_path / "raw.json", tmp_path / "small.json"
    alone = {**JOB, "rank": 0, "world_size": 1}
    raw.write_text(json.dumps({"distributedInfo": alone, "host_name": "secret", "traceEvents": EVENTS}))
    trim_torch(raw, small, steps=1)
    assert not {"distributedInfo", "host_name"} & json.loads(small.read_text()).keys()


FIRST, SECOND, LAUNCHER = (number << 24 for number in (1, 2, 3))
RANKS = f"""
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, globalPid INT, correlationId INT, shortName INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_CUDA_EVENT (globalPid INT, correlationId INT, eventId INT);
CREATE TABLE OSRT_API (start INT, end INT, globalTid INT, nameId INT);
INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'case a/high/fault', NULL, {FIRST + 1}),
  (90, 190, 59, 'case a/high/fault', NULL, {SECOND + 1});
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (95, 96, {SECOND + 1}, 7, 1), (120, 121, {FIRST + 1}, 8, 1),
  (10, 11, {FIRST + 1}, 7, 1);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (97, 98, {SECOND}, 7, 2), (130, 140, {FIRST}, 8, 2);
INSERT INTO CUPTI_ACTIVITY_KIND_CUDA_EVENT VALUES ({FIRST}, 7, 1), ({SECOND}, 7, 2), ({FIRST}, 8, 3);
INSERT INTO OSRT_API VALUES (101, 102, {FIRST + 2}, 1), (103, 104, {LAUNCHER + 1}, 1);
"""


def test_ranks_of_one_report_are_cut_together_and_their_calls_told_apart(tmp_path: Path) -> None:
    report = tmp_path / "report.sqlite"
    with sqlite3.connect(report) as database:
        database.executescript(RANKS)
    assert trim_nsys(report, tmp_path / "cases") == ["case a/high/fault"]
    case = sqlite3.connect(tmp_path / "cases" / "a.high.fault.sqlite")
    assert case.execute("SELECT start FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1").fetchall() == [(97,), (130,)]
    assert case.execute("SELECT eventId FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT ORDER BY 1").fetchall() == [(2,), (3,)]
    assert case.execute("SELECT globalTid FROM OSRT_API").fetchall() == [(FIRST + 2,)]
