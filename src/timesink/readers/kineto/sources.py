"""What a Kineto file says of itself."""

from __future__ import annotations

from typing import Any

import polars as pl

from timesink.readers.kineto.decoded import Decoded

Columns = dict[str, Any]

_OPTIONS = {
    "record_shapes": "profiler records shapes",
    "with_stack": "profiler records stacks",
    "profile_memory": "profiler records memory",
    "with_flops": "profiler counts operations",
    "with_modules": "profiler records modules",
}
_LIBRARIES = {"backend": "communication backend", "nccl_version": "NCCL"}
_INT32_MAX = (1 << 31) - 1


def rank(decoded: Decoded) -> int:
    """The rank in `distributedInfo`; 0 where the file has none."""
    return _count(_distributed(decoded).get("rank")) or 0


def source(decoded: Decoded, reader_format: str) -> Columns:
    """The row of `sources`. The window is that of the profiler's own spans, which enclose what they recorded."""
    spans = decoded.tables["spans"]
    start, end = spans.take("start_ns"), spans.take("end_ns")
    return {
        "path": [str(decoded.path)],
        "format": [reader_format],
        "tool_version": pl.Series([_tool(decoded)], dtype=pl.String),
        "size_bytes": [decoded.path.stat().st_size],
        "clock_origin_ns": [decoded.base_ns],
        "start_ns": pl.Series([None if start is None else start.min()], dtype=pl.Int64),
        "end_ns": pl.Series([None if end is None else end.max()], dtype=pl.Int64),
        "host": pl.Series([_text(decoded.properties.get("host_name"))], dtype=pl.String),
        "world_size": pl.Series([_count(_distributed(decoded).get("world_size"))], dtype=pl.Int32),
    }


def settings(decoded: Decoded) -> Columns | None:
    """Versions and options that the file states; None where it states none."""
    found: dict[str, Any] = {name: decoded.properties.get(key) for key, name in _OPTIONS.items()}
    found |= {name: _distributed(decoded).get(key) for key, name in _LIBRARIES.items()}
    said = {name: str(value) for name, value in sorted(found.items()) if _plain(value)}
    return {"name": list(said), "value": list(said.values())} if said else None


def _distributed(decoded: Decoded) -> dict[str, Any]:
    found = decoded.properties.get("distributedInfo")
    return found if isinstance(found, dict) else {}


def _tool(decoded: Decoded) -> str | None:
    """Versions the file names; Kineto writes none of its own but that of its schema."""
    names = {
        "schemaVersion": "Kineto schema",
        "cupti_version": "CUPTI",
        "cuda_runtime_version": "CUDA runtime",
        "cuda_driver_version": "CUDA driver",
        "roctracer_version": "roctracer",
        "hip_runtime_version": "HIP runtime",
        "hip_driver_version": "HIP driver",
    }
    said = [f"{name} {decoded.properties[key]}" for key, name in names.items() if _plain(decoded.properties.get(key))]
    return ", ".join(said) or None


def _plain(value: Any) -> bool:
    return isinstance(value, (int, float, str)) and len(str(value)) <= 40


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    """A number that may be written as text; None where it is no 32-bit count."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:12])
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _INT32_MAX else None
