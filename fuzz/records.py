"""The small files timesink takes besides traces: its own records, what programs hand over, configurations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz import seeds
from timesink.capture import Capture
from timesink.capture.recorded_run import link_times, recorded_run
from timesink.capture.redaction import redact
from timesink.measures.communication.stage_logs import read_stage_logs
from timesink.memory_plan import configuration, read_model, stored_configuration
from timesink.verify import baseline, calibration, changepoint, counters, environment, ledger
from timesink.verify.environment import Finished
from timesink.verify.runs import JsonFile, StepsFile


@dataclass(frozen=True, slots=True)
class Record:
    """One kind of file and what reads it."""

    name: str
    file: str
    seeds: tuple[bytes, ...]
    work: Callable[[Path], object]


def _text(*documents: Any) -> bytes:
    return "\n".join(json.dumps(document) for document in documents).encode()


def _manifest(kind: str) -> bytes:
    return (seeds.DATA / "capture" / "compiled" / kind / "manifest.json").read_bytes()


def _finished(path: Path) -> Finished:
    return Finished(0.0, 1.0, path, path)


def _redacted(path: Path) -> None:
    redact(path, path.with_name(f"redacted-{path.name}"), ["somebody"])


_RUN = {"mean": 0.01, "median": 0.01, "n": 50, "date": "2026-01-01T00:00:00+00:00", "sha": "abc"}
_BASELINE = {
    "schema_version": baseline.VERSION,
    "tool_version": "0.1.0",
    "suite": "train",
    "environment": {"gpu": "H200"},
    "workload": "w",
    "statistic": dict(baseline.STATISTIC),
    "runs": [_RUN, _RUN, _RUN],
    "counters": {"launches": {"value": 3, "unit": "", "how": "exact", "better": "lower"}},
    "updates": [{"date": "2026-01-01", "reason": "first", "sha": "abc"}],
}
_CALIBRATION = {
    "schema_version": calibration.VERSION,
    "environment": {"gpu": "NVIDIA H200"},
    "sessions": [{"run_means_s": [0.01, 0.011, 0.0105], "date": "2026-01-01"}] * 2,
}
_LEDGER = (
    {
        "event": "add",
        "number": 1,
        "date": "d",
        "hypothesis": "h",
        "finding": "",
        "predicted_ms": [1, 2, 3],
        "change": "",
    },
    {
        "event": "close",
        "number": 1,
        "date": "d",
        "outcome": "faster",
        "measured_ms": [1, 2, 3],
        "note": "",
        "change": "",
    },
)
_MODEL = {"kind": "decoder", "layers": 12, "hidden": 768, "heads": 12, "feedforward": 3072, "vocab": 50257}
_CONFIGURATION = {"name": "gpt", "model": _MODEL, "train": {"batch": 8, "sequence": 1024}, "parallel": {"data": 2}}
_HUGGING = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
_STAGES = tuple({"step": n // 4, "tA0": n * 1.0, "tA1": n + 0.4, "tB0": n + 0.5, "tB1": n + 0.9} for n in range(12))
_STAGES_CSV = b"step,tA0,tA1\n0,0,0.5\n0,1,1.5\n0,2,2.5\n1,9,9.5\n"
_LINKS = [{"kind": "allreduce", "bytes": 4 << 2 * power, "time_ns": 1e4 + 2**power} for power in range(12)]
_LINK_TIMES = {"timesink_nccl_bench": 1, "ranks": 2, "gpu": "H200", "library": "NCCL 2.28", "calls": _LINKS}
_COUNTERS = {"graph breaks": 3, "tokens/s": {"value": 812, "better": "higher", "how": "exact", "unit": "tokens/s"}}

RECORDS = (
    Record("baseline", "baseline.json", (_text(_BASELINE),), baseline.read),
    Record("calibration", "calibration.json", (_text(_CALIBRATION),), calibration.read),
    Record("ledger", "ledger.jsonl", (_text(*_LEDGER), _text(_LEDGER[0])), ledger.read),
    Record("manifest", "manifest.json", (_manifest("torch"), _manifest("nsys")), environment.read_manifest),
    Record("capture-folder", "manifest.json", (_manifest("torch"),), lambda path: Capture.load(path.parent)),
    Record("link-times", "nccl-bench.json", (_text(_LINK_TIMES),), lambda path: link_times([path.parent])),
    Record("capture-steps", "manifest.json", (_manifest("torch"),), lambda path: recorded_run([path.parent])),
    Record("counters", "counters.json", (_text(_COUNTERS),), counters.read_counters),
    Record("history", "history.jsonl", (_text(*({"mean": n / 100} for n in range(1, 9))),), changepoint.read_history),
    Record(
        "steps-lines",
        "steps.jsonl",
        (_text(*({"seconds": 0.01, "check": str(n)} for n in range(6))),),
        lambda path: StepsFile().collect(path.parent, _finished(path)),
    ),
    Record(
        "steps-json",
        "steps.json",
        (_text({"step_times_ms": [10, 11, 12], "check": 1.5}),),
        lambda path: JsonFile(path, "step_times_ms").collect(path.parent, _finished(path)),
    ),
    Record("stage-log", "stages.jsonl", (_text(*_STAGES), _STAGES_CSV), lambda path: read_stage_logs([path])),
    Record(
        "memory-configuration",
        "config.json",
        (_text(_CONFIGURATION),),
        lambda path: configuration(stored_configuration(path)),
    ),
    Record("hugging-face", "config.json", (_text(_HUGGING),), read_model),
    Record("redact-json", "trace.json", (_manifest("torch"),), _redacted),
    Record("redact-log", "compile.log", (b"user somebody on host\n/home/somebody/x.py TOKEN=abc\n",), _redacted),
    Record("redact-ncu", "report.ncu-rep", seeds.ncu_report()[:1], _redacted),
    Record("redact-page", "page.csv", seeds.ncu_csv(), _redacted),
    Record("redact-packed", "trace.json.gz", seeds.kineto()[1:3], _redacted),
    Record("redact-snapshot", "snapshot.pickle", seeds.torch_snapshot()[:1], _redacted),
    Record("redact-structured-log", "compile.log", seeds.torch_logs()[:2], _redacted),
    Record("redact-sqlite", "report.sqlite", seeds.nsys_sqlite(), _redacted),
)
