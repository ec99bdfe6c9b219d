"""The timeline of a finding: the typical step in which it shows, narrowed to where it is, and its lanes.

Lanes say what each host thread did, what each stream ran, and why the device was idle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import polars as pl

from timesink.diagnosis.verdicts import Finding
from timesink.knowledge.op_class import op_class
from timesink.measures.idle.blame import idle_blame
from timesink.measures.steps.per_step import step_windows
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.nesting import Nesting
from timesink.model.schema import Table
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES, THREADS
from timesink.model.trace import Trace
from timesink.views.figures import Item, Lane, LaneKind, TimelineWindow

# Bounds of one picture: more items than pixels, or more lanes than a screen holds, show nothing.
SHOWN_ITEMS = 900
SHOWN_THREADS = 4  # lanes of one screen
SHOWN_ROWS = 4  # lanes of one screen
SHOWN_STREAMS = 12  # lanes of one screen

_HOST: tuple[tuple[LaneKind, str, Table], ...] = (
    ("range", "ranges", RANGES),
    ("op", "operators", HOST_OPS),
    ("call", "CUDA calls", API_CALLS),
)


def lanes_of(trace: Trace, device: tuple[int, int], start_ns: int, end_ns: int) -> tuple[Lane, ...]:
    """Host threads first, then streams, then blame for idle time; the shortest boxes are left out beyond a number."""
    touching = (pl.col("rank") == device[0]) & (pl.col("start_ns") < end_ns) & (pl.col("end_ns") > start_ns)
    lanes = [
        *_host_lanes(trace, touching),
        *_stream_lanes(trace, touching & (pl.col("device") == device[1])),
        *_idle_lane(trace, touching & (pl.col("device") == device[1])),
    ]
    lengths = sorted((item.end_ns - item.start_ns for lane in lanes for item in lane.items), reverse=True)
    shortest = lengths[SHOWN_ITEMS - 1] if len(lengths) > SHOWN_ITEMS else 0
    return tuple(_without_short(lane, shortest) for lane in lanes)


def _without_short(lane: Lane, shortest_ns: int) -> Lane:
    kept = tuple(item for item in lane.items if item.end_ns - item.start_ns >= shortest_ns)
    return replace(lane, items=kept, hidden=len(lane.items) - len(kept))


def _host_lanes(trace: Trace, touching: pl.Expr) -> Iterator[Lane]:
    """The threads with most CUDA calls in the window; without calls, those with most operators or ranges."""
    frames = {table: trace.get(table).filter(touching) for _, _, table in _HOST}
    busy = next((frames[table] for table in (API_CALLS, HOST_OPS, RANGES) if frames[table].height), None)
    if busy is None:
        return
    counts = busy.group_by("process", "thread").len().sort("len", "process", "thread", descending=[True, False, False])
    names = {row[:2]: row[2] for row in trace.get(THREADS).select("process", "thread", "name").iter_rows()}
    for process, thread, _ in counts.head(SHOWN_THREADS).iter_rows():
        name = names.get((process, thread), "")
        title = name if str(thread) in name else f"thread {thread} {name}".rstrip()
        for kind, what, table in _HOST:
            rows = frames[table].filter((pl.col("process") == process) & (pl.col("thread") == thread))
            if rows.height:
                yield Lane(kind, f"{title}: {what}", tuple(_nested(rows, kind)))


def _nested(rows: pl.DataFrame, kind: str) -> Iterator[Item]:
    """Boxes of one thread, the innermost ones of deep nests left out."""
    text = rows.select("start_ns", "end_ns", pl.col("name").cast(pl.String))
    for (start, end, name), depth in zip(text.iter_rows(), Nesting.of(rows).depth.tolist(), strict=True):
        if depth < SHOWN_ROWS:
            yield Item(start, end, name, kind, depth)


def _stream_lanes(trace: Trace, touching: pl.Expr) -> Iterator[Lane]:
    rows = trace.get(DEVICE_OPS).filter(touching)
    order = rows.group_by("context", "stream").len().sort("context", "stream", nulls_last=True)
    contexts = order["context"].n_unique()
    for context, stream, _ in order.head(SHOWN_STREAMS).iter_rows():
        of_stream = rows.filter(pl.col("context").eq_missing(context) & (pl.col("stream") == stream))
        text = of_stream.with_columns(op_class(of_stream)).select(
            "start_ns", "end_ns", pl.col("name", "op_class", "kind", "copy_kind").cast(pl.String), "bytes"
        )
        label = f"GPU {of_stream['device'][0]} stream {stream}" + (f" of context {context}" if contexts > 1 else "")
        yield Lane(
            "stream",
            label,
            tuple(
                Item(start, end, name, purpose, 0, _op_detail(kind, copy, size))
                for start, end, name, purpose, kind, copy, size in text.iter_rows()
            ),
        )


def _op_detail(kind: str, copy_kind: str | None, size: int | None) -> str:
    if kind == "kernel":
        return "kernel"
    return ", ".join([kind, *([copy_kind] if copy_kind else []), *([f"{size:,} bytes"] if size is not None else [])])


def _idle_lane(trace: Trace, touching: pl.Expr) -> Iterator[Lane]:
    """Neighbouring stretches of one cause and place are one box."""
    rows = idle_blame(trace).frame.filter(touching)
    if rows.is_empty():
        return
    items: list[Item] = []
    text = rows.select("start_ns", "end_ns", pl.col("cause", "call", "host_op", "range").cast(pl.String))
    for start, end, cause, *places in text.iter_rows():
        detail = " in ".join(place for place in places if place)
        last = items[-1] if items else None
        if last and (last.end_ns, last.kind, last.detail) == (start, cause, detail):
            items[-1] = replace(last, end_ns=end)
        else:
            items.append(Item(start, end, cause.replace("_", " "), cause, 0, detail))
    yield Lane("idle", f"GPU {rows['device'][0]} idle, because of", tuple(items))


AROUND = 60  # a window is at most this many times as long as the longest stretch claimed in it ...
SHORTEST_NS = 1_000_000  # ... but not shorter than this


def window_of(trace: Trace, finding: Finding) -> TimelineWindow | None:
    """The window of a finding's typical step; None where the finding claims no device time or names no device."""
    device = _device(finding)
    if device is None or device not in device_timeline(trace).by_device:
        return None
    claimed = finding.claim.intervals.get(device, Intervals.none())
    starts, ends = step_windows(trace, device)
    at = _typical(claimed.covered_ns(starts, ends))
    start, end = _narrowed(claimed, int(starts[at]), int(ends[at]))
    shown = claimed.clip(start, end)
    return TimelineWindow(
        *device,
        start_ns=start,
        end_ns=end,
        step=_step_number(trace, device, int(starts[at])),
        claimed=tuple(zip(shown.start_ns.tolist(), shown.end_ns.tolist(), strict=True)),
        lanes=lanes_of(trace, device, start, end),
    )


def _device(finding: Finding) -> tuple[int, int] | None:
    """The device with the most claimed time; else the one the finding names."""
    claimed = finding.claim.intervals
    if any(len(part) for part in claimed.values()):
        return max(sorted(claimed), key=lambda device: claimed[device].total_ns)
    rank, device = finding.where.rank, finding.where.device
    return None if rank is None or device is None else (rank, device)


def _typical(claimed_ns: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    """The step whose claimed time is nearest to the median of the steps that have any; the first of equals."""
    some = claimed_ns[claimed_ns > 0]
    return int(np.argmin(np.abs(claimed_ns - np.median(some)))) if some.size else claimed_ns.size // 2


def _narrowed(claimed: Intervals, start_ns: int, end_ns: int) -> tuple[int, int]:
    """The step, cut to a neighbourhood of its longest claimed stretch where that is much shorter."""
    inside = claimed.clip(start_ns, end_ns)
    if not len(inside):
        return start_ns, end_ns
    longest = int(np.argmax(inside.lengths_ns))
    width = min(max(AROUND * int(inside.lengths_ns[longest]), SHORTEST_NS), end_ns - start_ns)
    middle = (int(inside.start_ns[longest]) + int(inside.end_ns[longest])) // 2
    first = min(max(middle - width // 2, start_ns), end_ns - width)
    return first, first + width


def _step_number(trace: Trace, device: tuple[int, int], start_ns: int) -> int | None:
    here = (pl.col("rank") == device[0]) & (pl.col("device") == device[1]) & (pl.col("start_ns") == start_ns)
    step = steps(trace).windows.filter(here)
    return int(step["step"][0]) if step.height else None
