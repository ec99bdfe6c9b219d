"""What a Perfetto trace shows: tracks of slices and counters, made of tables and of what timesink found.

A track of Perfetto holds begin and end events that nest, and nothing else; intervals that cross go to several tracks.

Stacks for other programs are here too: lines of a flame graph ("main;step;loss 1234", in nanoseconds), and speedscope
files.
"""

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final, Literal, NamedTuple

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import Diagnosis
from timesink.errors import UsageError
from timesink.measures.idle.blame import idle_blame
from timesink.measures.lines import host_stack_times, path_times
from timesink.measures.lines.stacks import Line, Stack
from timesink.measures.steps import steps
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.launches import launch_units
from timesink.measures.timeline.replay import critical_path
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, FRAMES, HOST_OPS, OS_CALLS, RANGES, THREADS
from timesink.model.trace import Trace
from timesink.records import Record
from timesink.untrusted import scrub

_HOST: tuple[tuple[str, Table], ...] = (
    ("ranges", RANGES),
    ("Python", FRAMES),
    ("operators", HOST_OPS),
    ("runtime calls", API_CALLS),
    ("OS calls", OS_CALLS),
)


class SliceTrack(Record, eq=False):
    """Intervals under one heading of a group. `flow` ties a launch to its device work: the same number on both, or 0.

    Names are untrusted text. `table` is where the rows come from, empty for what timesink found.
    """

    group: str
    label: str
    start_ns: list[int]
    end_ns: list[int]
    names: list[str]
    flow: list[int]
    table: str = ""


class CounterTrack(Record, eq=False):
    """A value that holds from each time to the next."""

    group: str
    label: str
    unit: str
    time_ns: list[int]
    value: list[int]


def slice_tracks(trace: Trace, diagnosis: Diagnosis | None) -> Iterator[SliceTrack]:
    """What timesink found first, then host threads, then streams, rank by rank."""
    if diagnosis is not None:
        yield from _findings(diagnosis)
    yield from _derived(trace)
    yield from _host(trace)
    yield from _streams(trace)


def counter_tracks(trace: Trace) -> Iterator[CounterTrack]:
    """Per device: launches waiting in its queues, and bytes being copied."""
    if DEVICE_OPS not in trace:
        return
    units = launch_units(trace)
    for (rank, device), rows in units.group_by("rank", "device", maintain_order=True):
        ordered = rows.sort("call_start_ns", "call")
        times, depth = ordered["call_start_ns"].to_list(), ordered["queue_depth"].to_list()
        yield CounterTrack(_device(rank, device), "launches ahead in the queue", "launches", times, depth)
    copies = trace[DEVICE_OPS].filter((pl.col("kind") == "copy") & pl.col("bytes").is_not_null())
    for (rank, device), rows in copies.group_by("rank", "device", maintain_order=True):
        times, in_flight = _in_flight(rows)
        yield CounterTrack(_device(rank, device), "bytes being copied", "bytes", times, in_flight)


def _in_flight(copies: pl.DataFrame) -> tuple[list[int], list[int]]:
    size = copies["bytes"].to_numpy()
    times = np.concatenate((copies["start_ns"].to_numpy(), copies["end_ns"].to_numpy()))
    change = np.concatenate((size, -size))
    distinct, at = np.unique(times, return_inverse=True)
    total = np.zeros(distinct.size, np.int64)
    np.add.at(total, at, change)
    return distinct.tolist(), np.cumsum(total).tolist()


def _findings(diagnosis: Diagnosis) -> Iterator[SliceTrack]:
    """One track per finding and device: what it claims."""
    for number, (card, finding) in enumerate(diagnosis.findings, start=1):
        for device, claimed in sorted(finding.claim.intervals.items()):
            if count := len(claimed):
                label, names = f"finding {number}: {card.code} {finding.name}", [finding.message] * count
                times = claimed.start_ns.tolist(), claimed.end_ns.tolist()
                yield SliceTrack(_device(*device), label, *times, names, [0] * count)


def _derived(trace: Trace) -> Iterator[SliceTrack]:
    if DEVICE_OPS not in trace:
        return
    for (rank, device), rows in steps(trace).windows.group_by("rank", "device", maintain_order=True):
        names = [f"step {number}" for number in rows["step"].to_list()]
        yield _track(_device(rank, device), "steps", rows, names)
    for (rank, device), rows in idle_blame(trace).frame.group_by("rank", "device", maintain_order=True):
        yield _track(_device(rank, device), "idle, because of", rows, rows["cause"].cast(pl.String).to_list())
    for rank, path in sorted(critical_path(trace).items()):
        names = [f"{kind}: {name}" if name else kind for kind, name in zip(path.kinds, path.names, strict=True)]
        none = [0] * len(names)
        yield SliceTrack(f"rank {rank}", "critical path", path.start_ns.tolist(), path.end_ns.tolist(), names, none)


def _host(trace: Trace) -> Iterator[SliceTrack]:
    titles = {row[:3]: row[3] for row in trace.get(THREADS).select("rank", "process", "thread", "name").iter_rows()}
    calls = trace.get(API_CALLS).height
    launching = np.zeros(calls, np.int64)  # for each call that launched device work its row plus one, 0 for the others
    if calls and trace.get(DEVICE_OPS).height:
        call = np.asarray(launch_links(trace).call, np.int64)
        launching[call[call >= 0]] = call[call >= 0] + 1
    for kind, table in _HOST:
        frame = trace.get(table).with_row_index("row")
        for (rank, process, thread), rows in frame.group_by("rank", "process", "thread", maintain_order=True):
            title = f"thread {thread} {titles.get((rank, process, thread), '')}".rstrip()
            flow = launching[rows["row"].to_numpy()].tolist() if table is API_CALLS else None
            group = f"rank {rank}, process {process}"
            yield _track(group, f"{title}: {kind}", rows, _names(rows), table=table.name, flow=flow)


def _streams(trace: Trace) -> Iterator[SliceTrack]:
    ops = trace.get(DEVICE_OPS)
    flow = np.asarray(launch_links(trace).call, np.int64) + 1 if ops.height else np.empty(0, np.int64)
    streams = ops.with_row_index("row").group_by("rank", "device", "context", "stream", maintain_order=True)
    for (rank, device, context, stream), rows in streams:
        label = f"stream {stream}" + ("" if context is None else f" of context {context}")
        launch = np.maximum(flow[rows["row"].to_numpy()], 0).tolist()
        yield _track(_device(rank, device), label, rows, _names(rows), table=DEVICE_OPS.name, flow=launch)


def _track(
    group: str, label: str, rows: pl.DataFrame, names: list[str], *, table: str = "", flow: list[int] | None = None
) -> SliceTrack:
    start, end = rows["start_ns"].to_list(), rows["end_ns"].to_list()
    return SliceTrack(group, label, start, end, names, flow or [0] * len(names), table)


def _names(rows: pl.DataFrame) -> list[str]:
    return rows["name"].cast(pl.String).to_list()


def _device(rank: object, device: object) -> str:
    return f"rank {rank}, GPU {device}"


class Edge(NamedTuple):
    """One end of the interval `row`; `is_begin` says which."""

    time_ns: int
    row: int
    is_begin: bool


def nesting_lanes(start_ns: Sequence[int], end_ns: Sequence[int]) -> list[list[int]]:
    """Rows on as few lines as this order finds, such that on each line any two intervals are apart or nested.

    Rows come longest first among those that start together; each goes to the first line whose innermost open interval
    it fits into.
    """
    order = sorted(range(len(start_ns)), key=lambda row: (start_ns[row], -end_ns[row], row))
    lanes: list[list[int]] = []
    open_ends: list[list[int]] = []
    for row in order:
        for lane, ends in zip(lanes, open_ends, strict=True):
            while ends and ends[-1] <= start_ns[row]:  # it has ended
                ends.pop()
            if not ends or end_ns[row] <= ends[-1]:
                lane.append(row)
                ends.append(end_ns[row])
                break
        else:
            lanes.append([row])
            open_ends.append([end_ns[row]])
    return lanes


def edges(rows: Sequence[int], start_ns: Sequence[int], end_ns: Sequence[int]) -> Iterator[Edge]:
    """The events of one line in order: what ends at an instant ends before what begins there."""
    stack: list[int] = []
    for row in rows:
        while stack and end_ns[stack[-1]] <= start_ns[row]:
            closed = stack.pop()
            yield Edge(end_ns[closed], closed, is_begin=False)
        stack.append(row)
        yield Edge(start_ns[row], row, is_begin=True)
    yield from (Edge(end_ns[row], row, is_begin=False) for row in reversed(stack))


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
        if time != "host" and any(stack for _, stack, _ in stack_times(trace, "host")):
            raise UsageError(f"no stack of the trace has {time} time", remedy="--time host is the CPU's")
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
