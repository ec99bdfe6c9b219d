"""PyTorch memory snapshots (`torch.cuda.memory._dump_snapshot`): pickles, read in a process that allows nothing.

`_snapshot_child` is that process, which is run under a budget; its columns become the canonical tables. PyTorch writes
the size that was asked for into its trace, so running totals are in requested bytes. They are anchored at the end,
where the blocks in use are listed: going back from there survives a ring buffer that dropped old events.
"""

import json
import stat
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl

from timesink.errors import UnreadableTrace
from timesink.model.arrays import Int64Array
from timesink.model.schema import ColumnValues
from timesink.model.tables import MEMORY_BLOCKS, MEMORY_EVENTS, MEMORY_MARKS, MEMORY_SEGMENTS, SOURCES, BlockState
from timesink.model.trace import ImportNote, NoteKind, Trace, noted
from timesink.readers.formats import Reader
from timesink.records import Record
from timesink.units import NS_PER_US
from timesink.untrusted.budget import VARIABLE, ReadLimits
from timesink.untrusted.unpack import unpacked_whole

MAGIC = b"TSNP"
CHILD = Path(__file__).with_name("_snapshot_child.py")
REMEDY = "write it again with torch.cuda.memory._dump_snapshot(path), and open no pickle from a source you do not trust"

_SHARE = 3  # of the command's CPU time that reading may take: the rest is for what is said of it


class SnapshotColumns(Record, eq=False):
    """The child's columns by name (`event.size`), and its texts."""

    numbers: Mapping[str, Int64Array]
    texts: tuple[str, ...]

    def __getitem__(self, name: str) -> Int64Array:
        return self.numbers.get(name, np.empty(0, np.int64))


def columns_of(path: Path, limits: ReadLimits) -> SnapshotColumns:
    """The snapshot's columns; `UnreadableTrace` where the child refuses it or exceeds its limits."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableTrace(path, "it is not a regular file")
    content, problem = unpacked_whole(path, limits, "record fewer events")
    if problem:
        raise UnreadableTrace(path, problem, remedy=REMEDY)
    memory_bytes = min(limits.most_memory(len(content)), 4 * limits.held_bytes)
    cpu_s = max(1, int(limits.most_cpu_s(len(content)) / _SHARE))
    command = [sys.executable, "-I", "-S", str(CHILD)]
    command += map(str, (memory_bytes, cpu_s, limits.most_events(len(content))))
    try:
        done = subprocess.run(command, input=content, capture_output=True, timeout=5.0 * cpu_s, check=False, env={})
    except subprocess.TimeoutExpired as late:
        raise UnreadableTrace(path, f"it takes longer than {5 * cpu_s} s", remedy=REMEDY) from late
    if done.returncode != 0 or not done.stdout.startswith(MAGIC):
        raise UnreadableTrace(path, _why(done, memory_bytes, cpu_s), remedy=REMEDY)
    return _decoded(done.stdout)


def _why(done: subprocess.CompletedProcess[bytes], memory_bytes: int, cpu_s: int) -> str:
    try:
        return str(json.loads(done.stdout)["refused"])
    except (ValueError, KeyError, TypeError):
        pass
    if done.returncode < 0:
        return f"it exceeds its budget of {cpu_s} s or {memory_bytes:,} bytes ({VARIABLE}=2 allows twice as much)"
    if b"MemoryError" in done.stderr:
        return f"it needs more than {memory_bytes:,} bytes of memory"
    if b"resource" in done.stderr:
        return "this system cannot limit what a pickle may use; read it on Linux or macOS"
    return f"the process that reads it ended with status {done.returncode}"


def _decoded(data: bytes) -> SnapshotColumns:
    (length,) = struct.unpack_from(">Q", data, len(MAGIC))
    at = len(MAGIC) + 8
    head = json.loads(data[at : at + length])
    at += length
    numbers = {}
    for name, count in head["columns"].items():
        numbers[name] = np.frombuffer(data, np.int64, count, at)
        at += 8 * count
    return SnapshotColumns(numbers, tuple(head["texts"]))


ACTIVE, FREE = 0, 2  # and 1, awaiting to be freed
MAPS, UNMAPS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")


def trace_of(path: Path, decoded: SnapshotColumns) -> Trace:
    """The checked tables; a table whose part of the snapshot is empty is there and has no rows."""
    if not decoded["segment.address"].size and not decoded["event.addr"].size:
        raise UnreadableTrace(path, "it holds no segment and no event", remedy="take it while the program holds memory")
    notes: list[ImportNote] = []
    recorded = decoded["event.time_us"][decoded["event.time_us"] > 0] * NS_PER_US
    source = {
        "rank": 0,
        "path": [str(path)],
        "format": TorchSnapshot.format,
        "size_bytes": path.stat().st_size,
        "start_ns": int(recorded.min()) if recorded.size else None,
        "end_ns": int(recorded.max()) if recorded.size else None,
    }
    tables = {
        SOURCES: SOURCES.build(source),
        MEMORY_EVENTS: MEMORY_EVENTS.build(_events(decoded, notes)),
        MEMORY_SEGMENTS: MEMORY_SEGMENTS.build(_segments(decoded)),
        MEMORY_BLOCKS: MEMORY_BLOCKS.build(_blocks(decoded)),
    }
    if decoded["mark.name"].size:
        tables[MEMORY_MARKS] = MEMORY_MARKS.build(_marks(decoded, notes))
    return Trace(str(path), tables, tuple(notes))


def _named(decoded: SnapshotColumns, codes: Int64Array) -> pl.Series:
    """The texts of those numbers as categories; the empty text is null."""
    used, inverse = np.unique(codes, return_inverse=True)
    texts = [decoded.texts[code] or None for code in used]
    return pl.Series(texts, dtype=pl.String).cast(pl.Categorical())[inverse.astype(np.uint32)]


def _events(decoded: SnapshotColumns, notes: list[ImportNote]) -> ColumnValues:
    device, size = decoded["event.device"], np.maximum(decoded["event.size"], 0)
    action = np.asarray(decoded.texts, dtype=object)[decoded["event.action"]] if device.size else np.empty(0, object)
    time_ns = _times(decoded, notes)
    release = "free_requested" if (action == "free_requested").any() else "free_completed"
    change = np.where(action == "alloc", size, np.where(action == release, -size, 0))
    mapped = np.where(np.isin(action, MAPS), size, np.where(np.isin(action, UNMAPS), -size, 0))
    held, reserved = _held(decoded)
    addresses = decoded["event.addr"]
    stream = decoded["event.stream"]
    return {
        "rank": 0,
        "process": 0,
        "device": device.astype(np.int32),
        "action": _named(decoded, decoded["event.action"]).fill_null("unknown"),
        "time_ns": time_ns,
        "address": pl.Series(addresses.view(np.uint64)).set(pl.Series(addresses == -1), None),
        "bytes": change,
        "total_allocated_bytes": _totals(device, change, held),
        "total_reserved_bytes": _totals(device, mapped, reserved),
        "stream": pl.Series(stream).set(pl.Series(stream == -1), None),
        "stack": _named(decoded, decoded["event.stack"]),
        "size_bytes": size,
    }


def _times(decoded: SnapshotColumns, notes: list[ImportNote]) -> Int64Array:
    """Times that never run backwards on a device, so that order by time is the order of the trace."""
    times, device = decoded["event.time_us"], decoded["event.device"]
    if not times.size:
        return times
    if (times < 0).any():
        message = "events carry no time (PyTorch before 2.2); their order stands in for it, 1 us apart"
        notes += noted(NoteKind.ASSUMED, message, int(times.size), MEMORY_EVENTS)
        return np.arange(times.size, dtype=np.int64) * NS_PER_US
    ordered = times.copy()
    for gpu in np.unique(device):
        of_device = device == gpu
        ordered[of_device] = np.maximum.accumulate(times[of_device])
    message = "events whose time lies before their predecessor's take its time"
    notes += noted(NoteKind.ASSUMED, message, int((ordered != times).sum()), MEMORY_EVENTS)
    return np.asarray(ordered * NS_PER_US)


def _held(decoded: SnapshotColumns) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Requested bytes in use, and reserved bytes, per device when the snapshot was taken."""
    owner, segment = decoded["segment.device"], decoded["block.segment"]
    in_use = np.where(decoded["block.state"] == ACTIVE, _requested(decoded), 0)
    return _sums(owner[segment] if owner.size else owner, in_use, owner), _sums(
        owner, decoded["segment.total_size"], owner
    )


def _sums(device: Int64Array, size: Int64Array, devices: Int64Array) -> dict[int, int]:
    return {int(number): int(size[device == number].sum()) for number in np.unique(devices)}


def _requested(decoded: SnapshotColumns) -> Int64Array:
    """What was asked for, block by block; its size where PyTorch (before 2.0) did not write it."""
    requested, size = decoded["block.requested_size"], decoded["block.size"]
    return np.where(requested < 0, size, requested)


def _totals(device: Int64Array, change: Int64Array, last: Mapping[int, int]) -> Int64Array:
    """Running totals per device that end at what the snapshot lists."""
    totals = np.zeros(device.size, np.int64)
    for gpu in np.unique(device):
        of_device = device == gpu
        running = np.cumsum(change[of_device])
        totals[of_device] = running + (last.get(int(gpu), 0) - running[-1])
    return totals


def _segments(decoded: SnapshotColumns) -> ColumnValues:
    count = decoded["segment.address"].size
    free = decoded["block.state"] == FREE
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, decoded["block.segment"][free], decoded["block.size"][free])
    requested = decoded["segment.requested_size"]
    return {
        "rank": 0,
        "device": decoded["segment.device"].astype(np.int32),
        "address": decoded["segment.address"].view(np.uint64),
        "total_bytes": decoded["segment.total_size"],
        "allocated_bytes": decoded["segment.allocated_size"],
        "active_bytes": decoded["segment.active_size"],
        "requested_bytes": pl.Series(requested).set(pl.Series(requested < 0), None),
        "largest_free_bytes": largest,
        "stream": decoded["segment.stream"],
        "is_large": decoded["segment.is_large"].astype(bool),
        "is_expandable": decoded["segment.is_expandable"].astype(bool),
        "is_private": decoded["segment.is_private"].astype(bool),
    }


def _blocks(decoded: SnapshotColumns) -> ColumnValues:
    segment, state = decoded["block.segment"], decoded["block.state"]
    return {
        "rank": 0,
        "device": decoded["segment.device"][segment].astype(np.int32),
        "segment": decoded["segment.address"][segment].view(np.uint64),
        "address": decoded["block.address"].view(np.uint64),
        "bytes": decoded["block.size"],
        "requested_bytes": np.where(state == FREE, 0, _requested(decoded)),
        "state": pl.Series(BlockState.categories, dtype=BlockState)[state.astype(np.uint32)],
        "stack": _named(decoded, decoded["block.stack"]),
    }


def _marks(decoded: SnapshotColumns, notes: list[ImportNote]) -> ColumnValues:
    """Stretches from START and END. Those of one name and device pair up innermost first; the rest is left out."""
    opened: dict[tuple[int, int], list[int]] = {}
    rows: list[tuple[int, int, int, int]] = []
    left = 0
    marks = zip(*(decoded[f"mark.{key}"].tolist() for key in ("name", "device", "is_start", "time_us")), strict=True)
    for name, device, is_start, time_us in marks:
        if is_start:
            opened.setdefault((name, device), []).append(time_us)
        elif opened.get((name, device)):
            start = opened[name, device].pop()
            rows.append((name, device, start, max(time_us, start)))
        else:
            left += 1
    left += sum(map(len, opened.values()))
    notes += noted(NoteKind.DATA_LOSS, "annotations without their other end were left out", left, MEMORY_MARKS)
    names, devices, starts, ends = np.array(rows, np.int64).reshape(-1, 4).T
    return {
        "rank": 0,
        "device": devices.astype(np.int32),
        "name": _named(decoded, names).fill_null("unnamed"),
        "start_ns": starts * NS_PER_US,
        "end_ns": ends * NS_PER_US,
    }


_PROTOCOLS = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))
_SUFFIXES = (".pickle", ".pkl", ".pickle.gz", ".pickle.xz", ".pkl.gz", ".pkl.xz")


class TorchSnapshot(Reader):
    """Reader of the snapshots of PyTorch 1.13 to today; plain, or packed with gzip or xz."""

    format = "torch_snapshot"
    kind = "companion"
    priority = 2

    def recognises(self, path: Path, head: bytes) -> bool:
        """A binary pickle by its first bytes; a packed one, or one of an old protocol, by its suffix."""
        if not head or head.startswith(b"version https://git-lfs"):
            return False
        return head.startswith(_PROTOCOLS) or path.name.lower().endswith(_SUFFIXES)

    def read(self, path: Path, limits: ReadLimits) -> Trace:
        """Events, segments and blocks. `UnreadableTrace` names what a hostile or damaged pickle asked for."""
        return trace_of(path, columns_of(path, limits))


READERS = (TorchSnapshot(),)
