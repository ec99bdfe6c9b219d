"""Stacks for other programs: lines of a flame graph ("main;step;loss 1234", in nanoseconds), and speedscope files."""

from __future__ import annotations

import json
from typing import IO, Any, Final, Literal

import polars as pl

from timesink.errors import UsageError
from timesink.export.tracks import edges, nesting_lanes
from timesink.measures.lines.by_line import host_stack_times, path_times
from timesink.measures.lines.stacks import Line, Stack
from timesink.model.tables import FRAMES
from timesink.model.trace import Trace
from timesink.untrusted.scrub import scrub

Time = Literal["gpu", "idle", "host"]
NOWHERE: Final = "(no line recorded)"


def stack_times(trace: Trace, time: Time) -> list[tuple[int, Stack, int]]:
    """Rank, stack (empty where unknown) and ns of every call path that has any of that time.

    GPU time is that of the work launched there, idle time that of devices that waited for it, host time its own.
    """
    if time == "host":
        return [(rank, stack, ns) for (rank, stack), ns in (host_stack_times(trace) or {}).items() if ns > 0]
    paths = path_times(trace)
    return [(path.rank, path.stack, ns) for path in paths if (ns := path.gpu_ns if time == "gpu" else path.idle_ns) > 0]


def write_collapsed(trace: Trace, file: IO[str], time: Time = "gpu") -> int:
    """Write every stack and return how many; `UsageError` where there is none. Several ranks are told apart."""
    times = stack_times(trace, time)
    if not any(stack for _, stack, _ in times):
        raise UsageError("the trace holds no stacks and no ranges", remedy="record them: capture torch --stacks")
    several = len({rank for rank, _, _ in times}) > 1
    totals: dict[str, int] = {}
    for rank, stack, time_ns in times:
        frames = [*([f"rank {rank}"] if several else []), *(map(frame_text, stack) if stack else [NOWHERE])]
        text = ";".join(frames)
        totals[text] = totals.get(text, 0) + time_ns
    file.writelines(f"{text} {time_ns}\n" for text, time_ns in totals.items())
    return len(totals)


def frame_text(line: Line) -> str:
    """``step (train.py:12)``; nothing in it parts frames or lines."""
    place = "" if line.file is None else f" ({line.file}:{line.line})"
    return scrub(f"{line.function}{place}").replace(";", ",")


Frame = tuple[str, str | None, int | None]
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def write_speedscope(trace: Trace, file: IO[str]) -> int:
    """Write one profile per host thread, then one of GPU time per rank, and return how many.

    `UsageError` where no stacks were recorded. Times of calls are nanoseconds from the first frame of the trace. Frames
    of one thread that cross, which a stack cannot hold, go to a further profile of the thread.
    """
    frames = trace.get(FRAMES)
    if frames.is_empty():
        raise UsageError("the trace holds no Python stacks", remedy="record them: timesink capture torch --stacks")
    shared: dict[Frame, int] = {}
    origin = int(frames["start_ns"].min())  # type: ignore[arg-type]
    profiles = [
        profile
        for key, rows in frames.group_by("rank", "process", "thread", maintain_order=True)
        for profile in _profiles(f"rank {key[0]}, thread {key[2]}", rows, origin, shared)
    ]
    busiest = max(range(len(profiles)), key=lambda number: len(profiles[number]["events"]))
    profiles += _gpu_profiles(trace, shared)
    listed = [
        {key: value for key, value in (("name", name), ("file", path), ("line", line)) if value is not None}
        for name, path, line in shared
    ]
    document = {
        "$schema": SCHEMA,
        "shared": {"frames": listed},
        "profiles": profiles,
        "activeProfileIndex": busiest,  # a progress bar's thread may come first
        "exporter": "timesink",
    }
    json.dump(document, file, separators=(",", ":"))
    return len(profiles)


def _profiles(title: str, rows: pl.DataFrame, origin: int, shared: dict[Frame, int]) -> list[dict[str, Any]]:
    start = (rows["start_ns"] - origin).to_list()
    end = (rows["end_ns"] - origin).to_list()
    places = rows.select(pl.col("name", "file").cast(pl.String), "line").iter_rows()
    number = [
        shared.setdefault((scrub(name), None if path is None else scrub(path), line), len(shared))
        for name, path, line in places
    ]
    profiles = []
    for lane in nesting_lanes(start, end):
        times = {"startValue": min(start[row] for row in lane), "endValue": max(end[row] for row in lane)}
        events = [
            {"type": "O" if edge.is_begin else "C", "frame": number[edge.row], "at": edge.time_ns}
            for edge in edges(lane, start, end)
        ]
        profiles.append({"type": "evented", "name": title, "unit": "nanoseconds", **times, "events": events})
    return profiles


def _gpu_profiles(trace: Trace, shared: dict[Frame, int]) -> list[dict[str, Any]]:
    """GPU time by the stack that launched the work, a profile per rank."""
    by_rank: dict[int, list[tuple[list[int], int]]] = {}
    for rank, stack, time_ns in stack_times(trace, "gpu"):
        places: list[Frame] = [
            (scrub(line.function), None if line.file is None else scrub(line.file), line.line) for line in stack
        ]
        numbers = [shared.setdefault(place, len(shared)) for place in places or [(NOWHERE, None, None)]]
        by_rank.setdefault(rank, []).append((numbers, time_ns))
    profiles = []
    for rank, stacks in sorted(by_rank.items()):
        samples, weights = map(list, zip(*stacks, strict=True))
        times = {"unit": "nanoseconds", "startValue": 0, "endValue": sum(weights)}
        profiles.append(
            {"type": "sampled", "name": f"GPU time, rank {rank}", **times, "samples": samples, "weights": weights}
        )
    return profiles
