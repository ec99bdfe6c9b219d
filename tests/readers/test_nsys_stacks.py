"""Stacks of host threads in an Nsight Systems export: of samples, of CUDA calls, and of Python."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.readers.nsys_exports import columns, messages, write_sqlite

from timesink.model.tables import HOST_STACKS
from timesink.model.trace import NoteKind
from timesink.readers import read

NATIVE = """
StringIds
id value
1 "solve"
2 "/home/me/sim"
3 "cuLaunchKernel"
4 "/usr/lib/libcuda.so.1"
5 "0x7f00"
6 "cudaLaunchKernel_v7000"

COMPOSITE_EVENTS
id start cpu globalTid cpuCycles
1 100 0 7:9 5
2 200 0 7:9 5

SAMPLING_CALLCHAINS
id symbol module kernelMode unresolved stackDepth
1 1 2 0 0 1
1 3 4 0 0 0
2 5 4 0 1 0

CUPTI_ACTIVITY_KIND_RUNTIME
start end eventClass globalTid correlationId nameId callchainId
150 160 0 7:9 11 6 0
170 180 0 7:9 12 6 -

CUDA_CALLCHAINS
id symbol module unresolved stackDepth
0 1 2 0 0
"""
PYTHON = """
NVTX_PAYLOAD_SCHEMAS
domainId schemaId name
1 1 "Python Periodic Sampling"

NVTX_EVENTS
start end eventType text globalTid textId domainId jsonText
10 100 59 "step" 7:9 - 0 -
50 - 34 - 7:9 - 1 -
60 - 34 - 7:9 - 1 "no JSON"
"""
PAYLOAD = (
    '{"Python Periodic Sampling": {"Thread state ID": 1, "Frames": ['
    '{"Function": "inner", "File": "/w/train.py", "Line": 12}, '
    '{"Function": "main;x", "File": "/w/train.py", "Line": 40}]}}'
)


def test_samples_and_calls_have_the_symbols_of_their_chains(export):
    """A symbol that was not resolved is left out, and with it a chain that has no other."""
    assert columns(export(NATIVE), HOST_STACKS, "thread", "time_ns", "kind", "stack") == [
        (9, 100, "sample", "/usr/lib/libcuda.so.1(0): cuLaunchKernel;/home/me/sim(0): solve"),
        (9, 150, "call", "/home/me/sim(0): solve"),
    ]


def test_python_frames_come_from_the_payload_of_marks(tmp_path: Path) -> None:
    path = write_sqlite(tmp_path / "python.sqlite", PYTHON)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE NVTX_EVENTS SET jsonText = ? WHERE start = 50", (PAYLOAD,))
    assert columns(read([path]), HOST_STACKS, "thread", "time_ns", "kind", "stack") == [
        (9, 50, "sample", "/w/train.py(12): inner;/w/train.py(40): main,x")
    ]


def test_python_frames_are_named_by_the_rows_of_their_texts(tmp_path: Path) -> None:
    """As nsys 2025 writes them: numbers of `StringIds`, with the signs of HTML escaped."""
    frames = ({"Function": 901, "File": 900, "Line": 23}, {"Function": 902, "File": 900, "Line": 40})
    payload = json.dumps({"Python Periodic Sampling": {"Frames": frames}})
    texts = '\nStringIds\nid value\n900 "/w/metric.py"\n901 "accuracy"\n902 "&lt;module&gt;"\n'
    path = write_sqlite(tmp_path / "python.sqlite", PYTHON + texts)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE NVTX_EVENTS SET jsonText = ? WHERE start = 50", (payload,))
    assert columns(read([path]), HOST_STACKS, "kind", "stack") == [
        ("sample", "/w/metric.py(23): accuracy;/w/metric.py(40): <module>")
    ]


def test_an_export_without_payloads_says_how_to_get_them(export):
    bare = PYTHON.replace('"no JSON"', "-")
    trace = export(bare)
    assert trace[HOST_STACKS].is_empty()
    assert any("--include-json=true" in text for text, _ in messages(trace, NoteKind.SKIPPED))
