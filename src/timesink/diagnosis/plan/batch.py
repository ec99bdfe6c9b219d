"""What changes take of the device's memory, and a larger batch, once the changes of a plan are made.

Free memory is the device's without the most that the allocator ever held: what the driver, libraries and other
processes hold beside it no capture of the allocator shows, so it is at most that.

A larger batch is no rung: its step is another. Assumed: the host takes what it takes today. Kernels that fill the
device take as many times longer as the batch is larger; others only once they do. What is short keeps its least time;
an optimizer's step and collectives are of the weights and stay. A grid fills the device with a block on every
multiprocessor, or with as many as its threads allow: no trace shows how busy one block keeps it. Usually half-way
between them; the latter at the least; at its most all grow.
"""

from collections.abc import Callable, Sequence
from typing import Final, Self

import numpy as np
import polars as pl

from timesink.diagnosis.gains import replay_error
from timesink.diagnosis.plan import WORTH, Joint
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Quantity
from timesink.fixes import Fix
from timesink.knowledge.assumptions import machines
from timesink.measures.habits.repeated_passes import recomputed
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.one_stream import fills
from timesink.measures.steps import steps
from timesink.measures.timeline import Device, of_device
from timesink.model.arrays import Int64Array
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, DEVICES, MEMORY_EVENTS, MEMORY_SEGMENTS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import bytes_text
from timesink.whatif import Case
from timesink.whatif.changes.kernels import GrowKernels
from timesink.whatif.critical_path import longest_kind
from timesink.whatif.edit import Together
from timesink.whatif.graph import Graph

FACTORS: Final = (2, 4, 8, 16, 32)  # doublings, as people try them
ASSUMED: Final = (
    "Time for today's items at a larger batch, after the changes above. Assumed: CPU time stays; kernels that fill the "
    "GPU grow with the batch, smaller ones once they fill it; the optimizer and collectives stay. A larger batch "
    "changes training"
)
BUSY: Final = Limit.ratio(
    0.05,
    "what a CPU does for which the GPU waits nearly all the time is not the launching that stays as it is",
    "programs whose larger batches were measured (benchmarks/ladders, H100) keep the GPU busy for 59 to 97 %",
)
_OF_WEIGHTS: Final = ("communication", "foreach")


class LargerBatch(Record):
    """A batch so many times as large: its step, the time of as many items as a step has today, what bounds it, and what
    it needs more of memory."""

    factor: int
    step: Quantity
    per_item: Quantity
    bound_by: str
    needed_bytes: int | None


def larger_batches(joint: Joint, chosen: Sequence[str], now_ms: float) -> tuple[tuple[LargerBatch, ...], str]:
    """After the chosen changes, which leave a step of `now_ms`: batches twice as large, and so on while each wins
    `WORTH` more of an item; or why there is none."""
    if why := _unknown(joint, chosen):
        return (), why
    found: list[LargerBatch] = []
    before_ms, today = now_ms, Today.of(joint, chosen, now_ms)
    for factor in FACTORS:
        made = today.larger_batch(factor)
        if before_ms - made.per_item.value < WORTH.default * before_ms:
            break
        found.append(made)
        before_ms = made.per_item.value
    why = f"a larger batch would win less than {100 * WORTH.default:g} % of an item's time"
    return tuple(found), "" if found else why


def _unknown(joint: Joint, chosen: Sequence[str]) -> str:
    """Why nothing can be foretold, if so."""
    asked = {card.name for one in joint.offered.values() for card, _ in one.findings if one.fix.name not in chosen}
    if "input-pipeline" in asked:
        return "larger_batch has no price: the GPU waits for batches, and loading them grows with them"
    if joint.pricer.busy_ns < BUSY.default * joint.pricer.step_ns:
        return f"larger_batch has no price: the GPU is busy for less than {100 * BUSY.default:g} % of the step"
    if np.bincount(joint.pricer.graph.program.ops.block, minlength=1).max(initial=0) > 1:
        return "larger_batch has no price: the replay cannot make kernels of a CUDA graph longer"
    return ""


class Today(Record, eq=False):
    """The step of today once changes are made: its graph, what that replays to, how long it is said to be, and what of
    each device grows with the batch."""

    joint: Joint
    graph: Graph
    replayed_ns: float
    step_ms: float
    growing: tuple[Callable[[int], GrowKernels], ...]

    @classmethod
    def of(cls, joint: Joint, chosen: Sequence[str], step_ms: float) -> Self:
        """After the chosen changes, which leave a step of `step_ms`."""
        graph, anchors = Together(tuple(joint.parts(chosen))).rewrite(joint.pricer.graph), joint.pricer.anchors
        own = [device for device in kernel_facts(joint.trace).devices if device[0] == joint.rank]
        growing = tuple(_growing(joint.trace, device) for device in own)
        return cls(joint, graph, anchors.windows.mean(anchors.periods(graph.replay())), step_ms, growing)

    def larger_batch(self, factor: int) -> LargerBatch:
        """A batch so many times as large."""
        joint, now_ms, anchors = self.joint, self.step_ms, self.joint.pricer.anchors
        ratio = joint.step_ms / max(joint.pricer.step_ns, 1.0)
        grow = Together(tuple(grown(factor) for grown in self.growing))
        graphs = [grow.rewrite(self.graph, case) for case in Case]
        replays = [then.replay() for then in graphs]
        more_ms = [ratio * (anchors.windows.mean(anchors.periods(then)) - self.replayed_ns) for then in replays]
        most, value, least = (max(more, 0.0) for more in more_ms)
        error_ms = replay_error(value, now_ms)
        low, high = max(min(least, value) - error_ms, 0.0), min(max(most, value) + error_ms, (factor - 1) * now_ms)
        value = min(value, (factor - 1) * now_ms)
        step = Quantity(now_ms + value, "ms", now_ms + min(low, value), now_ms + max(high, value))
        per_item = Quantity(step.value / factor, "ms", (step.low or 0.0) / factor, step.most / factor)
        expected = Case.EXPECTED.value
        bound_by = longest_kind(graphs[expected], replays[expected], anchors)
        working = device_memory(joint.trace).get((joint.rank, joint.device), DeviceMemory()).working
        return LargerBatch(factor, step, per_item, bound_by, None if working is None else (factor - 1) * working)


def _growing(trace: Trace, device: Device) -> Callable[[int], GrowKernels]:
    """How many times as long each kernel and copy of a device takes with a batch so many times as large, by what it
    fills of the multiprocessors."""
    ops, kernels = trace.get(DEVICE_OPS), kernel_facts(trace).on(device)
    rows = np.flatnonzero(((ops["rank"] == device[0]) & (ops["device"] == device[1])).to_numpy()).astype(np.int64)
    of_weights = pl.col("optimizer") | pl.col("family").cast(pl.String).is_in(_OF_WEIGHTS)
    stays = np.isin(rows, kernels.filter(of_weights)["row"].to_numpy())
    length = np.maximum((ops["end_ns"] - ops["start_ns"]).to_numpy()[rows], 1)
    short = np.minimum(machines.KERNEL_FLOOR_US.ns / length, 1.0)
    filled = [np.append(fill, np.ones(ops.height - fill.size))[rows] for fill in fills(trace)]

    def grown(factor: int) -> GrowKernels:
        times = (np.maximum(factor * np.minimum(fill, 1.0), 1.0) for fill in filled)
        all_of_it = np.where(stays, 1.0, float(factor))
        whole, packed = (np.where(stays, 1.0, short + (1.0 - short) * each) for each in times)
        return GrowKernels(factor, device, rows, (all_of_it, (whole + packed) / 2.0, packed))

    return grown


class DeviceMemory(Record):
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
    known = f"needs {bytes_text(needed)} more" if needed is not None else "extra memory unknown"
    return f"{known}; {free_text(free, needed or 0)}"


def free_text(free: int | None, needed: int = 0) -> str:
    """What is free, in words."""
    if free is None:
        return "free memory unknown in this capture"
    return f"{'only' if needed > free else 'at most'} {bytes_text(free)} are free"


class _Allocated(Record):
    """What the allocator says of one device: the bytes after each of its events, and those of the event itself."""

    time_ns: Int64Array
    total: Int64Array
    change: Int64Array

    @classmethod
    def of(cls, trace: Trace, key: Device) -> Self:
        own = of_device(key) & pl.col("total_allocated_bytes").is_not_null()
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
    mine = of_device(key) & (pl.col("copy_kind") == "h2d")
    copies = trace.get(DEVICE_OPS).filter(mine)
    start = copies["start_ns"].to_numpy()
    inside = np.zeros(start.size, np.bool_)
    for begin, end in windows:
        inside |= (start >= begin) & (start < end)
    return int(copies["bytes"].filter(pl.Series(inside)).sum()) // len(windows) if windows else None
