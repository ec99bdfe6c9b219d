"""A second reader of Kineto traces, slow and obvious: the json module, Decimal times, one loop over events.

It shares no code with the package and knows only the events that real profilers write.
"""

import gzip
import json
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

TABLE_OF = {
    "kernel": "device_ops",
    "gpu_memcpy": "device_ops",
    "gpu_memset": "device_ops",
    "memcpy": "device_ops",
    "memset": "device_ops",
    "cuda_runtime": "api_calls",
    "cuda_driver": "api_calls",
    "runtime": "api_calls",
    "cpu_op": "host_ops",
    "operator": "host_ops",
    "user_annotation": "ranges",
    "python_function": "frames",
    "cuda_sync": "syncs",
}
RANGE_NAMES = ("ProfilerStep#", "Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")


def read_slowly(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Sorted rows of each table; see `row_of` for what is in a row."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return rows_of(json.loads(text, parse_float=Decimal, strict=False))


def rows_of(document: Any) -> dict[str, list[tuple[Any, ...]]]:
    events = document if isinstance(document, list) else document["traceEvents"]
    base_ns = 0 if isinstance(document, list) else int(document.get("baseTimeNanoseconds", 0))
    tables: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            table = TABLE_OF.get(str(event.get("cat")).lower())
            if table == "host_ops" and event["name"].startswith(RANGE_NAMES):
                table = "ranges"
            if table:
                tables[table].append(row_of(table, event, base_ns))
        elif event["ph"] == "i" and event["name"] == "[memory]":
            tables["memory_events"].append(row_of("memory_events", event, base_ns))
    return {table: sorted(rows, key=repr) for table, rows in tables.items()}


def nanoseconds(microseconds: Any) -> int:
    return int((Decimal(microseconds) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def row_of(table: str, event: dict[str, Any], base_ns: int) -> tuple[Any, ...]:  # noqa: PLR0911
    args = event.get("args", {})
    start = nanoseconds(event["ts"]) + base_ns
    end = start + nanoseconds(event.get("dur", 0))
    thread = int(event["tid"]) if str(event["tid"]).lstrip("-").isdigit() else None
    external = args.get("External id", args.get("external id"))
    match table:
        case "device_ops":
            grid, block = args.get("grid", [None] * 3), args.get("block", [None] * 3)
            where = (args.get("device", event["pid"]), args.get("stream", thread))
            size = None if args.get("bytes") is None else int(args["bytes"])
            return (*where, event["name"], start, end, args.get("correlation"), external, size, *grid, *block)
        case "api_calls":
            return event["pid"], thread, event["name"], start, end, args.get("correlation")
        case "host_ops":
            shapes = args.get("Input Dims", args.get("Input dims"))
            shown = None if shapes is None else json.dumps(shapes, separators=(",", ":"))
            return event["pid"], thread, event["name"], start, end, external, args.get("Sequence number"), shown
        case "ranges":
            return event["pid"], thread, event["name"], start, end
        case "frames":
            return event["pid"], thread, event["name"], start, end, args["Python id"], args["Python parent id"]
        case "syncs":
            return start, end, args["correlation"]
        case "memory_events":
            return event["pid"], thread, start, args["Bytes"], args.get("Addr"), args.get("Total Allocated")
    raise AssertionError(table)


COLUMNS = {
    "device_ops": "device stream name start_ns end_ns correlation external_id bytes "
    "grid_x grid_y grid_z block_x block_y block_z",
    "api_calls": "process thread name start_ns end_ns correlation",
    "host_ops": "process thread name start_ns end_ns external_id sequence_number input_shapes",
    "ranges": "process thread name start_ns end_ns",
    "frames": "process thread name start_ns end_ns frame_id parent_id",
    "syncs": "start_ns end_ns correlation",
    "memory_events": "process thread time_ns bytes address total_allocated_bytes",
}
