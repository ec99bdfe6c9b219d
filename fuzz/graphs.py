"""One capture told three times, so that `--capture` joins them: as it ran, as replays of graphs, as it was recorded."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from fuzz import laws

_PROGRAM = "weights_cast_every_call"
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemsetAsync")

Event = dict[str, Any]


@cache
def eager() -> bytes:
    """The capture, with its operators and launches."""
    return laws.programs()[laws.CAPTURES.index(_PROGRAM)]


@cache
def replayed() -> bytes:
    """Its steps without operators and launches: what a step launched follows one launch of a graph."""
    made: list[Event] = []
    for number, (mark, launches, work) in enumerate(_steps(), 1):
        own = {"correlation": number}
        made += [mark, {**launches[0], "name": "cudaGraphLaunch", "args": own}]
        made += [{**event, "args": {**event["args"], **own}} for event in work]
    return _written(made)


@cache
def recorded() -> bytes:
    """The host's side of one step, whose launches tell the kernels they add to a graph, as captures on ROCm do."""
    mark, launches, work = _steps()[0]
    ran = {event["args"]["correlation"]: event for event in work if event["cat"] == "kernel"}
    made = [event for event in _events() if event.get("cat") == "cpu_op" and _within(event, mark)]
    for launch in launches:
        if kernel := ran.get(launch["args"]["correlation"]):
            shape = {key: kernel["args"][key] for key in ("grid", "block")}
            made.append({**launch, "name": "hipLaunchKernel", "args": {"kernel": kernel["name"], **shape}})
    begin, end = mark["ts"] - 2.0, mark["ts"] + mark["dur"] + 2.0
    for name, at in (("hipStreamBeginCapture", begin), ("hipStreamEndCapture", end)):
        made.append({**launches[0], "name": name, "ts": at, "dur": 1.0, "args": {}})
    return _written(made)


def _steps() -> list[tuple[Event, list[Event], list[Event]]]:
    """The mark of each step that launches something, its launches, and what they launched."""
    found = []
    for mark in (event for event in _events() if event["name"].startswith("ProfilerStep#")):
        launches = [event for event in _events() if event["name"] in _LAUNCHES and _within(event, mark)]
        numbers = {event["args"]["correlation"] for event in launches}
        ran = [event for event in _events() if event.get("cat") in ("kernel", "gpu_memset")]
        if launches:
            found.append((mark, launches, [event for event in ran if event["args"]["correlation"] in numbers]))
    return found


@cache
def _events() -> list[Event]:
    return [event for event in json.loads(eager())["traceEvents"] if event.get("ph") == "X"]


def _within(event: Event, other: Event) -> bool:
    return bool(other["ts"] <= event["ts"] < other["ts"] + other["dur"])


def _written(events: list[Event]) -> bytes:
    return json.dumps({**json.loads(eager()), "traceEvents": events}).encode()
