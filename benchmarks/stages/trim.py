"""Leave out of a trace of torch.profiler what no measure of a pipeline reads: ``trim.py FROM TO``.

Device work, its launches, ranges and calls that wait or send messages stay.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
CALLS = {"cuda_runtime", "cuda_driver"}
KEPT = {*WORK, "user_annotation", "Trace", None}
MESSAGES = re.compile(r"record_param_comms|c10d|nccl")
UNREAD = ("Ev Idx", "cbid", "queued", "context", "warps per SM", "blocks per SM", "est. achieved occupancy %")


def trimmed(trace: dict[str, Any]) -> dict[str, Any]:
    events = trace["traceEvents"]
    launched = {event["args"].get("correlation") for event in events if event.get("cat") in WORK}

    def is_read(event: dict[str, Any]) -> bool:
        category = event.get("cat")
        if category == "cpu_op":
            return bool(MESSAGES.search(event["name"]))
        if category in CALLS:
            return event["args"].get("correlation") in launched or "Synchronize" in event["name"]
        return category in KEPT

    kept = [event for event in events if is_read(event)]
    for event in kept:
        for name in UNREAD:
            event.get("args", {}).pop(name, None)
    return {**trace, "traceEvents": kept}


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(json.dumps(trimmed(json.loads(source.read_text())), separators=(",", ":")))
