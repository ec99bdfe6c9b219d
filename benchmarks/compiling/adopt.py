"""Keep what tests need of captures from `compile_on_gpu.py`: few steps, no host name, no folder, logs without bulk.

    python -m benchmarks.compiling.adopt UNPACKED_FOLDER tests/data/compile

A spike's trace keeps the steps around the planted one. Of a structured log stay the records that say what was compiled
and why; payloads are scrubbed and their digests written anew. Of a text log the guards' trees go.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults.trim import ABSOLUTE, DROPPED_TOP, PATHS, profiler_steps, scrubbed

AROUND = 5
FIRST = 6
PROGRAMS = (
    "layer_breaks.broken", "print_break.broken", "item_break.broken", "int_argument.broken",
    "layer_breaks_training.broken", "layer_breaks_wide.broken", "reduce_overhead.broken",
)  # fmt: skip
SPIKES = (
    "allocator_retry.1", "checkpoint.1", "gc.1", "recompile.1", "slow_batch.1", "late_peer.1", "none.0",
    "captured_gc.0", "captured_gc_again.1", "captured_checkpoint.0", "captured_recompile.0", "captured_slow_batch.0",
)  # fmt: skip
LOGS = ("print_break", "item_break", "int_argument", "dynamic_shape", "collective_break", "layer_breaks")
KEPT = ("str", "dynamo_start", "compilation_metrics")
METRICS = (
    "co_name", "co_filename", "co_firstlineno", "guard_count", "graph_op_count", "fail_type", "fail_reason",
    "restart_reasons", "start_time", "entire_frame_compile_time_s",
)  # fmt: skip
ARTIFACTS = ("dynamo_graph_break_reason", "recompile_reasons")


def window(events: list[dict[str, Any]], first: int, last: int) -> Iterator[dict[str, Any]]:
    """Metadata, what the host began in those steps, and the device work it launched."""
    bounds = profiler_steps(events)
    begin, end = bounds[max(first, 0)][0], bounds[min(last, len(bounds) - 1)][1]
    host = [e for e in events if e.get("ph") == "X" and begin <= e["ts"] < end and not on_device(e)]
    calls = {e["args"].get("correlation") for e in host if str(e.get("cat")).startswith("cuda_")}
    yield from (e for e in events if e.get("ph") == "M")
    yield from host
    for event in events:
        if event.get("ph") == "X" and on_device(event) and event.get("args", {}).get("correlation") in calls:
            yield event


def on_device(event: dict[str, Any]) -> bool:
    return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation", "cuda_sync")


def keep_trace(source: Path, target: Path, first: int, last: int) -> None:
    trace = json.loads(source.read_bytes())
    for name in DROPPED_TOP:
        trace.pop(name, None)
    trace["traceName"] = source.name
    trace["traceEvents"] = [scrubbed(event) for event in window(trace["traceEvents"], first, last)]
    target.write_bytes(lzma.compress(json.dumps(trace, separators=(",", ":")).encode(), preset=9))


def plain(text: str) -> str:
    return ABSOLUTE.sub("", PATHS.sub("", text))


def keep_structured(source: Path, target: Path) -> None:
    kept, payload, open_record = [], [], None

    def close() -> None:
        if open_record is not None:
            prefix, envelope = open_record
            if "has_payload" in envelope:
                envelope["has_payload"] = hashlib.md5("\n".join(payload).encode()).hexdigest()
            kept.append(f"{prefix}{json.dumps(scrubbed(envelope))}")
            kept.extend(f"\t{line}" for line in payload)

    for line in source.read_text().split("\n"):
        if line.startswith("\t"):
            payload.append(plain(line[1:]))
            continue
        close()
        at = line.find('] {"')
        envelope = json.loads(line[at + 2 :]) if at > 0 else {}
        name = envelope.get("artifact", {}).get("name")
        wanted = any(part in envelope for part in KEPT) or name in ARTIFACTS
        if "compilation_metrics" in envelope:
            metrics = envelope["compilation_metrics"]
            envelope["compilation_metrics"] = {part: metrics.get(part) for part in METRICS}
            envelope.pop("has_payload", None)
        if "dynamo_start" in envelope:
            envelope["dynamo_start"]["stack"] = envelope["dynamo_start"]["stack"][-2:]
        open_record, payload = ((line[: at + 2], envelope) if wanted else None), []
    target.write_text("\n".join(kept) + "\n")


def keep_text(source: Path, target: Path) -> None:
    wanted = ("[__graph_breaks]", "[__recompiles]", "hit config")
    lines = [plain(line) for line in source.read_text().splitlines() if any(part in line for part in wanted)]
    target.write_text("\n".join(lines) + "\n")


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    measured = {}
    for stem in SPIKES:
        for path in sorted(source.glob(f"{stem}.rank*.json")):
            if path.name.endswith("measured.json"):
                measured[path.name.removesuffix(".measured.json")] = json.loads(path.read_text())["step"]
                continue
            at = json.loads(path.with_suffix(".measured.json").read_text())["step"]
            keep_trace(path, target / f"{path.name}.xz", at - AROUND, at + AROUND)
    for path in sorted(source.glob("*.measured.json")):
        row = json.loads(path.read_text())
        if "step_ms" in row:
            measured[path.name.removesuffix(".measured.json")] = round(row["step_ms"], 4)
    for stem in PROGRAMS:
        keep_trace(source / f"{stem}.rank0.json", target / f"{stem}.json.xz", 0, FIRST)
    for stem in LOGS:
        keep_text(source / f"{stem}.broken.rank0.log", target / f"{stem}.text.log")
        structured = min((source / f"{stem}.broken.trace").glob("*.log"))
        keep_structured(structured, target / f"{stem}.trace.log")
    (target / "measured.json").write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
