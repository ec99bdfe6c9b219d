"""Samples of hardware counters in a trace of PyTorch, as Kineto writes them since August 2026."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from timesink.measures.counters.sampled import sampled
from timesink.model.intervals import Intervals
from timesink.model.tables import GPU_METRICS
from timesink.model.trace import Trace
from timesink.readers import read

BASE_NS = 1_756_000_000_000_000_000
SM, TENSOR = "sm__cycles_active.avg", "sm__pipe_tensor_cycles_active.avg"
OF_PEAK = ".pct_of_peak_sustained_elapsed"


def sample(name: str, ts: float, value: float, device: int = 0) -> str:
    """An event as `output_json.cpp` lays it out."""
    head = f'\n  {{\n    "ph": "C",\n    "cat": "hardware_counters",\n    "name": "{name}",\n'
    place = f'    "pid": "GPU {device} Counters",\n    "tid": 0,\n    "ts": {ts:.3f},\n'
    return f'{head}{place}    "args": {{\n      "": {value}\n    }}\n  }}'


def written(path: Path, *events: str) -> Path:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 0.0, "dur": 5000.0}
    other = {"ph": "C", "cat": "gpu_memory", "name": "Total", "pid": 0, "tid": 0, "ts": 1.0, "args": {"bytes": 5}}
    text = ",".join([json.dumps(kernel | {"args": {"device": 0, "stream": 7}}), json.dumps(other), *events])
    body = f'{{"schemaVersion": 1, "baseTimeNanoseconds": {BASE_NS}, "traceEvents": [{text}]}}'.encode()
    path.write_bytes(gzip.compress(body) if path.suffix == ".gz" else body)
    return path


def rows(trace: Trace) -> list[tuple[object, ...]]:
    return trace[GPU_METRICS].select("device", "name", "time_ns", "value").rows()


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_each_sample_is_a_row_on_the_clock_of_the_trace(name: str, tmp_path: Path) -> None:
    events = [sample(SM + OF_PEAK, 12.5, 71.25), sample("dram__bytes_read.sum", 12.5, 1.5e9, device=1)]
    trace = read(written(tmp_path / name, *events), cache=False)
    assert rows(trace) == [
        (0, SM + OF_PEAK, BASE_NS + 12_500, 71.25),
        (1, "dram__bytes_read.sum", BASE_NS + 12_500, 1.5e9),
    ]
    assert [note.count for note in trace.notes if "counter samples" in note.message] == [1]


def test_none_is_lost_between_two_pieces_of_a_long_file(tmp_path: Path) -> None:
    events = [sample(SM + OF_PEAK, at, at % 100) for at in range(20_000)]
    trace = read(written(tmp_path / "trace.json", *events), cache=False)
    assert trace[GPU_METRICS]["value"].to_list() == [float(at % 100) for at in range(20_000)]


def test_they_are_the_counters_that_nsys_samples(tmp_path: Path) -> None:
    """What runs in the stretch is busy with tensor cores for 40 % of it."""
    events = [sample(name + OF_PEAK, 100.0 * at, of) for at in range(40) for name, of in ((SM, 90.0), (TENSOR, 40.0))]
    trace = read(written(tmp_path / "trace.json", *events), cache=False)
    found = sampled(trace, (0, 0), Intervals.one(BASE_NS, BASE_NS + 5_000_000))
    assert [(one.what, round(one.share, 3)) for one in found] == [("SMs active", 0.9), ("tensor cores active", 0.4)]


def test_a_trace_without_samples_has_no_table_of_them(tmp_path: Path) -> None:
    assert GPU_METRICS not in read(written(tmp_path / "trace.json"), cache=False)
