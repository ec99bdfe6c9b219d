"""What changes take of the device's memory, beside what is free of it: as far as the capture shows either.

Free is the device's memory without the most that the allocator ever held: what the driver, libraries and other
processes hold beside it no capture of the allocator shows, so it is at most that.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.fixes.fix import Fix
from timesink.measures.habits.repeated_passes import recomputed
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.record import dataclass
from timesink.model.tables import DEVICE_OPS, DEVICES, MEMORY_EVENTS, MEMORY_SEGMENTS
from timesink.model.trace import Trace, remembered
from timesink.units import bytes_text


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of one device. `free` at most; `working` is what a step adds to what it starts with, at its peak; `again`
    what recomputation allocates anew; `sent` what a step copies to the device. None where it was not recorded."""

    free: int | None = None
    working: int | None = None
    again: int | None = None
    sent: int | None = None


@remembered
def device_memory(trace: Trace) -> dict[Device, DeviceMemory]:
    """By (rank, device) of the trace."""
    totals = {(int(r), int(d)): b for r, d, b in trace.get(DEVICES).select("rank", "device", "memory_bytes").rows()}
    held = trace.get(MEMORY_EVENTS).group_by("rank", "device").agg(pl.col("total_reserved_bytes").max())
    most = {(int(r), int(d)): b for r, d, b in held.rows()}
    segments = trace.get(MEMORY_SEGMENTS).group_by("rank", "device").agg(pl.col("total_bytes").sum())
    for rank, device, held_bytes in segments.rows():
        most[int(rank), int(device)] = max(most.get((int(rank), int(device))) or 0, held_bytes)
    found = {}
    for key, total in totals.items():
        taken = most.get(key)
        free = None if total is None or taken is None else max(int(total) - int(taken), 0)
        allocated, windows = _Allocated.of(trace, key), _windows(trace, key[0])
        again, sent = _again(trace, key, allocated, windows), _sent(trace, key, windows)
        found[key] = DeviceMemory(free, _working(allocated, windows), again, sent)
    return found


def said_of_memory(trace: Trace, device: Device, fix: Fix) -> str:
    """What a change takes and what is free: ``needs 11 GB more; at most 60 GB are free``. Empty where it takes none."""
    if not fix.memory:
        return ""
    memory = device_memory(trace).get(device, DeviceMemory())
    return needed_text(getattr(memory, fix.memory, None), memory.free)


def needed_text(needed: int | None, free: int | None) -> str:
    """The two figures in words, each as far as it is known."""
    takes = "how much more memory it needs is not known" if needed is None else f"needs {bytes_text(needed)} more"
    return f"{takes}; {free_text(free, needed or 0)}"


def free_text(free: int | None, needed: int = 0) -> str:
    """What is free, in words."""
    if free is None:
        return "what is free is not known from this capture"
    return f"{'only' if needed > free else 'at most'} {bytes_text(free)} are free"


@dataclass(frozen=True, slots=True)
class _Allocated:
    """What the allocator says of one device: the bytes after each of its events, and those of the event itself."""

    time_ns: Int64Array
    total: Int64Array
    change: Int64Array

    @classmethod
    def of(cls, trace: Trace, key: Device) -> _Allocated:
        own = (pl.col("rank") == key[0]) & (pl.col("device") == key[1]) & pl.col("total_allocated_bytes").is_not_null()
        events = trace.get(MEMORY_EVENTS).filter(own)
        return cls(*(events[name].to_numpy() for name in ("time_ns", "total_allocated_bytes", "bytes")))

    def added(self, start_ns: int, end_ns: int) -> Int64Array:
        """After each event of a stretch, what is allocated beyond what was when the stretch began."""
        first, last = np.searchsorted(self.time_ns, (start_ns, end_ns))
        inside = self.total[first:last]
        return inside - (inside[:1] - self.change[first:last][:1])


def _windows(trace: Trace, rank: int) -> list[tuple[int, int]]:
    """When the host was in each steady step of a rank."""
    own = steps(trace).kept.filter(pl.col("rank") == rank)
    return list(own.select("host_start_ns", "host_end_ns").iter_rows())


def _working(allocated: _Allocated, windows: list[tuple[int, int]]) -> int | None:
    """The most that any step allocates beyond what is allocated when it begins."""
    return max((int(added.max()) for window in windows if (added := allocated.added(*window)).size), default=None)


def _again(trace: Trace, key: Device, allocated: _Allocated, windows: list[tuple[int, int]]) -> int | None:
    """Per step, what the stretches of the host that compute a second time leave allocated when they end."""
    own = [work for work in recomputed(trace) or () if work.device == key]
    if not allocated.total.size or not windows or not own:
        return None
    steady = Intervals.union_of(*map(np.array, zip(*windows, strict=True)))
    inside = [stretches & steady for stretches in own[0].host.values()]
    ends = [end for part in inside for end in zip(part.start_ns, part.end_ns, strict=True)]
    left = sum(max(int(added[-1]), 0) for end in ends if (added := allocated.added(*end)).size)
    return left // len(windows)


def _sent(trace: Trace, key: Device, windows: list[tuple[int, int]]) -> int | None:
    """Bytes that a step copies from the host."""
    mine = (pl.col("rank") == key[0]) & (pl.col("device") == key[1]) & (pl.col("copy_kind") == "h2d")
    copies = trace.get(DEVICE_OPS).filter(mine)
    start = copies["start_ns"].to_numpy()
    inside = np.zeros(start.size, np.bool_)
    for begin, end in windows:
        inside |= (start >= begin) & (start < end)
    return int(copies["bytes"].filter(pl.Series(inside)).sum()) // len(windows) if windows else None
