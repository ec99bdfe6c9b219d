"""Python stacks of host threads as a speedscope file (its "evented" profiles, file-format-schema.json)."""

from __future__ import annotations

import json
from typing import IO, Any

import polars as pl

from timesink.errors import UsageError
from timesink.export.tracks import edges, nesting_lanes
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace
from timesink.untrusted.scrub import scrub

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(trace: Trace, file: IO[str]) -> int:
    """Write one profile per host thread and return how many; `UsageError` where no stacks were recorded.

    Times are nanoseconds from the first frame of the trace. Frames of one thread that cross, which a stack cannot hold,
    go to a further profile of the thread.
    """
    frames = trace.get(FRAMES)
    if frames.is_empty():
        raise UsageError("the trace holds no Python stacks", remedy="record them: timesink capture torch --stacks")
    shared: dict[tuple[str, str | None, int | None], int] = {}
    origin = int(frames["start_ns"].min())  # type: ignore[arg-type]
    profiles = [
        profile
        for key, rows in frames.group_by("rank", "process", "thread", maintain_order=True)
        for profile in _profiles(f"rank {key[0]}, thread {key[2]}", rows, origin, shared)
    ]
    listed = [
        {key: value for key, value in (("name", name), ("file", path), ("line", line)) if value is not None}
        for name, path, line in shared
    ]
    busiest = max(range(len(profiles)), key=lambda number: len(profiles[number]["events"]))
    document = {
        "$schema": SCHEMA,
        "shared": {"frames": listed},
        "profiles": profiles,
        "activeProfileIndex": busiest,  # a progress bar's thread may come first
        "exporter": "timesink",
    }
    json.dump(document, file, separators=(",", ":"))
    return len(profiles)


def _profiles(
    title: str, rows: pl.DataFrame, origin: int, shared: dict[tuple[str, str | None, int | None], int]
) -> list[dict[str, Any]]:
    start = (rows["start_ns"] - origin).to_list()
    end = (rows["end_ns"] - origin).to_list()
    places = rows.select(pl.col("name", "file").cast(pl.String), "line").iter_rows()
    number = [
        shared.setdefault((scrub(name), None if path is None else scrub(path), line), len(shared))
        for name, path, line in places
    ]
    return [
        {
            "type": "evented",
            "name": title,
            "unit": "nanoseconds",
            "startValue": min(start[row] for row in lane),
            "endValue": max(end[row] for row in lane),
            "events": [
                {"type": "O" if edge.is_begin else "C", "frame": number[edge.row], "at": edge.time_ns}
                for edge in edges(lane, start, end)
            ],
        }
        for lane in nesting_lanes(start, end)
    ]
