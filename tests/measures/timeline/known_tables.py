"""What device ops of public profiles did and when, without the profiles: enough to measure timelines, nothing else.

Of each op its rank, device, class, start and length; names, launches, and the host's work are left out. The
published figures for the same files stand beside them. `python -m tests.measures.timeline.known_tables` derives both
anew where the profiles are; there `test_known_timelines.py` holds them against the profiles.
"""

import csv
import io
import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.profiles import PROFILES
from tests.strategies import frame

from timesink.knowledge.op_class import op_class
from timesink.model.tables import DEVICE_OPS, DEVICES, SOURCES
from timesink.model.trace import Trace

KEPT = Path(__file__).resolve().parents[2] / "data" / "known"
TRACELENS = (
    "h100_Falconsai_nsfw_image_detection",
    "h100_gaunernst_bert-small-uncased",
    "mi210_gpu_only",
    "mi300_Falconsai_nsfw_image_detection",
    "mi300_gaunernst_bert-small-uncased",
    "sglang_decode",
    "torch_compile_triton",
    "vllm_decode_graph",
)
METRICS = "gpu_metrics_input"
PROFILE_OF = {
    **{name: f"public/kineto/{name}.json.gz" for name in TRACELENS},
    METRICS: f"public/kineto/{METRICS}.json",
    **{name: f"public/nsys/{name}.sqlite" for name in ("h100_2gpu_before", "h100_2gpu_after", "healthy_1pct")},
}
# (kind, class) of an op, by its number in the file; a class is told by the name in a table of ops.
_KINDS = (
    ("kernel", "compute"),
    ("kernel", "communication"),
    ("copy", "copy"),
    ("set", "compute"),
    ("graph", "compute"),
)
_NAMES = {"compute": "kernel", "communication": "ncclDevKernel_AllReduce", "copy": "copy"}
_SMALL = ("rank", "device", "kind", "blocks")


def derived(name: str, trace: Trace) -> dict[str, np.ndarray]:
    """The columns that are kept of a trace; of one, blocks per multiprocessor are published."""
    ops = trace[DEVICE_OPS]
    kinds = zip(ops["kind"].to_list(), op_class(ops).to_list(), strict=True)
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    blocks = ops.select(blocks=ops["grid_x"] * ops["grid_y"] * ops["grid_z"])["blocks"].fill_null(0)
    sms = trace[DEVICES]["sm_count"][0] if DEVICES in trace and trace[DEVICES].height else None
    small = {
        "rank": ops["rank"], "device": ops["device"],
        "kind": np.array([_KINDS.index(kind) for kind in kinds]),
        "blocks": blocks if name == METRICS else np.zeros(ops.height),
    }  # fmt: skip
    return {
        "start_ns": np.diff(start, prepend=0), "length_ns": end - start,
        "origin_ns": np.array([trace[SOURCES]["clock_origin_ns"][0] or 0]),
        "sm_count": np.array([sms or 0]),
        **{name: np.asarray(values).astype(np.int32) for name, values in small.items()},
    }  # fmt: skip


def _as_trace(columns: dict[str, np.ndarray]) -> Trace:
    start = np.cumsum(columns["start_ns"])
    rows: list[dict[str, object]] = []
    for at, (first, length) in enumerate(zip(start.tolist(), columns["length_ns"].tolist(), strict=True)):
        rank, device, number, blocks = (int(columns[name][at]) for name in _SMALL)
        kind, of_class = _KINDS[number]
        rows.append({
            "rank": rank, "device": device, "process": 1, "context": 1, "stream": 7,
            "kind": kind, "name": _NAMES[of_class], "start_ns": first, "end_ns": first + length, "grid_x": blocks,
            "grid_y": 1, "grid_z": 1,
        })  # fmt: skip
    source = {"rank": 0, "path": "", "format": "", "clock_origin_ns": int(columns["origin_ns"][0])}
    device = {"rank": 0, "device": 0, "name": "", "sm_count": int(columns["sm_count"][0])}
    return Trace("known", {DEVICE_OPS: frame(DEVICE_OPS, rows), SOURCES: frame(SOURCES, [source]),
                           DEVICES: frame(DEVICES, [device])})  # fmt: skip


@cache
def _kept() -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(lzma.decompress((KEPT / "device_ops.npz.xz").read_bytes()))) as arrays:
        return {key: arrays[key] for key in arrays.files}


def kept_of(name: str) -> dict[str, np.ndarray]:
    """The columns that are kept of a public profile."""
    return {key.partition("/")[2]: values for key, values in _kept().items() if key.startswith(f"{name}/")}


@cache
def known(name: str) -> Trace:
    """The device ops of a public profile, as kept."""
    return _as_trace(kept_of(name))


@cache
def published() -> dict[str, Any]:
    """What others published: TraceLens' timeline of each profile in ms, and the counters of PyTorch's own tool."""
    found: dict[str, Any] = json.loads((KEPT / "published.json").read_text())
    return found


def _published_of(folder: Path) -> dict[str, Any]:
    timelines = {}
    for name in TRACELENS:
        with (folder / f"{name}.gpu_timeline.csv").open() as text:
            timelines[name] = {row["type"]: float(row["time ms"]) for row in csv.DictReader(text)}
    events = json.loads((folder / "gpu_metrics_expected.json").read_text())["traceEvents"]
    counted = {
        name: [[event["ts"], *event["args"].values()] for event in events if event["name"] == name][2:]
        for name in ("GPU 0 Utilization", "GPU 0 Est. SM Efficiency")
    }
    return {"timelines_ms": timelines, "counters": counted}


def main() -> None:
    from timesink.readers import read

    arrays = {
        f"{name}/{key}": values
        for name, path in PROFILE_OF.items()
        for key, values in derived(name, read(PROFILES / path, cache=False)).items()
    }
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "device_ops.npz.xz").write_bytes(lzma.compress(file.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    text = json.dumps(_published_of(PROFILES / "public" / "expected"), separators=(",", ":"))
    (KEPT / "published.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
