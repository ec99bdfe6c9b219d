"""What each steady step of one device holds: operations, idle stretches, bytes copied to the host.

One step laid beside another: where the first is longer, operation by operation, summing to the difference.

A step's operations on a device, in order of start, cut its window into segments: the idle time before an operation and
the time in which it was the last to run. The two sequences of kernel names are aligned by their longest common blocks;
operations of one step only stand against nothing.

Steps that stand out: by how much, where in the step, and what made them slow.

A spike is a steady step longer than the median by more than both a robust deviation and a share of it. Its excess over
the median step is split by cause: idle time by what the device waited for, and time in which it ran more, or longer.
What carries at least half of the excess names the spike; where nothing does, it is unexplained. The step named is the
one the host was in when the cause struck, which is not always the one whose kernels came late.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.kernels import op_class
from timesink.measures.idle.blame import idle_blame
from timesink.measures.steps.marks import step_of_ops
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.nesting import slice_of
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

_LONGEST: Final = 4_000  # operations; a longer step is aligned position by position, as far as names agree


@dataclass(frozen=True, slots=True, eq=False)
class StepOps:
    """One step on one device: what ran, in order of start. `row` are rows of `device_ops`; `end_ns` of the window is
    the start of the next step's first operation."""

    row: Int64Array
    token: Int64Array
    start_ns: Int64Array
    finish_ns: Int64Array
    window_ns: tuple[int, int]

    @property
    def idle_ns(self) -> Int64Array:
        """Idle time before each operation, and, last, at the end of the window: one longer than the operations."""
        reach = np.maximum.accumulate(np.concatenate(([self.window_ns[0]], self.finish_ns)))
        begins = np.append(np.minimum(self.start_ns, self.window_ns[1]), self.window_ns[1])
        return np.asarray(np.maximum(begins - reach, 0), np.int64)

    @property
    def busy_ns(self) -> Int64Array:
        """Time that each operation added to the busy time of the window."""
        reach = np.maximum.accumulate(np.concatenate(([self.window_ns[0]], self.finish_ns)))
        ends = np.minimum(reach, self.window_ns[1])
        begins = np.minimum(np.maximum(self.start_ns, ends[:-1]), self.window_ns[1])
        return np.asarray(np.maximum(ends[1:] - np.maximum(begins, ends[:-1]), 0), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """Differences of one step from another, per operation of the longer one. `pair[i]` is the operation of the other
    that stands against it, -1 for none; `busy_ns` and `idle_ns` (one longer: the end of the window) are differences.
    They and `missing_ns`, what only the other step has (zero or less), sum to the difference of the windows."""

    pair: Int64Array
    busy_ns: Int64Array
    idle_ns: Int64Array
    missing_ns: int

    @property
    def total_ns(self) -> int:
        """The difference of the two windows."""
        return int(self.busy_ns.sum() + self.idle_ns.sum() + self.missing_ns)


def align(step: StepOps, other: StepOps) -> Alignment:
    """The first step against the second."""
    pair = _pairs(step.token, other.token)
    held = pair >= 0
    busy, idle = step.busy_ns.astype(np.int64), step.idle_ns.astype(np.int64)
    other_busy, other_idle = other.busy_ns, other.idle_ns
    busy[held] -= other_busy[pair[held]]
    idle[:-1][held] -= other_idle[:-1][pair[held]]
    idle[-1] -= other_idle[-1]
    alone = np.ones(other.token.size, bool)
    alone[pair[held]] = False
    missing = int(other_busy[alone].sum() + other_idle[:-1][alone].sum())
    return Alignment(pair, busy, idle, -missing)


def _pairs(first: Int64Array, second: Int64Array) -> Int64Array:
    if first.size == second.size and np.array_equal(first, second):
        return np.arange(first.size, dtype=np.int64)
    pair = np.full(first.size, -1, np.int64)
    if max(first.size, second.size) > _LONGEST:
        shorter = min(first.size, second.size)
        same = np.flatnonzero(first[:shorter] == second[:shorter])
        pair[same] = same
        return pair
    blocks = SequenceMatcher(None, first.tolist(), second.tolist(), autojunk=False).get_matching_blocks()
    for block in blocks:
        pair[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return pair


@dataclass(frozen=True, slots=True, eq=False)
class StepContents:
    """What the windows of one device hold: stretches of idle time, operations, bytes copied to the host."""

    windows: pl.DataFrame
    idle: pl.DataFrame
    operations: pl.DataFrame
    labels: pl.DataFrame

    @classmethod
    def of(cls, trace: Trace, key: Device, windows: pl.DataFrame) -> StepContents:
        """The windows of one device, as `steps` gives them."""
        low, high = slice_of(trace[DEVICE_OPS], ("rank", "device"), key)
        columns = ("row", "name", "start_ns", "end_ns", "bytes", "copy_kind", "op_class", "step")
        ops = trace[DEVICE_OPS][low:high].with_row_index("row", low)  # in order of start
        ops = ops.with_columns(op_class(ops), pl.Series("step", step_of_ops(trace)[low:high]))
        ops = ops.select(columns)
        labels = steps(trace).frame.filter(pl.col("rank") == key[0]).sort("host_start_ns")
        return cls(windows, idle_blame(trace).on(key), ops, labels)

    def window(self, at: int) -> tuple[int, int]:
        """First instant of the window and first after it."""
        return int(self.windows["start_ns"][at]), int(self.windows["end_ns"][at])

    def inside(self, at: int) -> pl.DataFrame:
        """Operations that begin in the window."""
        first, last = np.searchsorted(self.operations["start_ns"].to_numpy(), self.window(at))
        return self.operations.slice(int(first), int(last - first))

    def ops(self, at: int) -> StepOps:
        """The same, to be laid beside another step."""
        rows = self.inside(at)
        token = rows["name"].to_physical().cast(pl.Int64).to_numpy()
        columns = [rows[name].cast(pl.Int64).to_numpy() for name in ("start_ns", "end_ns")]
        return StepOps(rows["row"].cast(pl.Int64).to_numpy(), token, columns[0], columns[1], self.window(at))

    def stretches(self, at: int) -> pl.DataFrame:
        """Idle stretches cut to the window."""
        start, end = self.window(at)
        first = np.searchsorted(self.idle["end_ns"].to_numpy(), start, side="right")  # stretches do not overlap
        last = np.searchsorted(self.idle["start_ns"].to_numpy(), end)
        cut = self.idle.slice(int(first), max(int(last - first), 0)).with_columns(
            pl.col("start_ns").clip(start, end), pl.col("end_ns").clip(start, end)
        )
        cut = cut.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("length"), pl.col("cause").cast(pl.String))
        return cut.filter(pl.col("length") > 0)

    def idle_by_cause(self, at: int) -> dict[str, int]:
        """Idle time by cause, ns."""
        return dict(self.stretches(at).group_by("cause").agg(pl.col("length").sum()).sort("cause").iter_rows())

    def to_host_bytes(self, at: int) -> int:
        """Bytes copied to the host."""
        rows = self.inside(at).filter(pl.col("copy_kind") == "d2h")
        return int(rows["bytes"].fill_null(0).sum())

    def host_step(self, time_ns: int) -> tuple[int, str]:
        """Number and label of the step the host was in; the first step before it."""
        begins = self.labels["host_start_ns"].to_numpy()
        at = max(int(np.searchsorted(begins, time_ns, side="right")) - 1, 0)
        return int(self.labels["step"][at]), str(self.labels["label"][at])


DEVIATIONS: Final = 6.0  # robust standard deviations
LEAST_EXCESS: Final = 0.2  # of the median: below, steps differ for many small reasons
LEAST_PAUSE: Final = 0.5  # of the median, for all but clocks: reading a loss every few steps drains as much
LEAST_UNNAMED: Final = 1.0  # where no cause is named: short steps that the host sets the pace of vary by half and more
LEAST_STEPS: Final = 4  # steady steps: with fewer there is no median to stand out from
CARRIED_SHARE: Final = 0.5  # of the excess
_ROBUST: Final = 1.4826  # median absolute deviation of a normal distribution to its standard deviation
_BURST_BYTES: Final = 1 << 20
_BURST_TIMES: Final = 8
_ALIKE: Final = 0.1  # kernels slowed by one factor agree within this share of it
_ALIKE_SHARE: Final = 0.8


class Spike(StrEnum):
    """What made a step slow."""

    GARBAGE_COLLECTION = "garbage_collection"
    RECOMPILATION = "recompilation"
    ALLOCATOR_GROWTH = "allocator_growth"
    ALLOCATOR_RETRY = "allocator_retry"
    SLOW_DATA = "slow_data"
    CHECKPOINT = "checkpoint"
    COMMUNICATION = "communication"
    CLOCKS = "clocks"
    OTHER_WORK = "other_work"
    SLOW_KERNELS = "slow_kernels"
    HOST_WAIT = "host_wait"
    UNTRACED_PAUSE = "untraced_pause"
    UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True, eq=False)
class SpikeStep:
    """One slow step of one device. `step` is numbered as in `steps().frame`, `label` its mark.

    `excess_ns` is its length beyond the median step's; `carried_ns` is how much of it the class accounts for.
    `operation` is the operation at which most of the excess lies, `at_ns` of it. `stretch_ns` is the longest stretch
    of the cause in time; the whole window where the cause runs on the device. `causes`: excess by cause, ns.
    """

    device: Device
    step: int
    label: str
    kind: Spike
    period_ns: int
    excess_ns: int
    carried_ns: int
    operation: str
    at_ns: int
    stretch_ns: tuple[int, int]
    causes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """Spikes in order of device and step. `examined` counts the steady steps looked at, per device."""

    found: tuple[SpikeStep, ...]
    examined: dict[Device, int]

    def period_steps(self, kind: Spike, device: Device) -> int | None:
        """After how many steps a cause comes back, where it came at least three times at one distance, give or take
        one step."""
        at = [spike.step for spike in self.found if spike.kind is kind and spike.device == device]
        apart = np.diff(at)
        if apart.size < 2 or int(apart.max() - apart.min()) > 1:
            return None
        return round(float(np.median(apart)))


@remembered
def spikes(trace: Trace) -> Spikes:
    """Find and name every spike."""
    found, examined = [], {}
    windows = steps(trace).windows
    for (rank, device), mine in sorted(windows.partition_by("rank", "device", as_dict=True).items()):
        key = (int(rank), int(device))
        examined[key] = mine.height
        slow = _standing_out(mine["period_ns"].to_numpy())
        if slow.size:
            found += _named(trace, key, mine, slow)
    return Spikes(tuple(found), examined)


def _standing_out(period_ns: Int64Array) -> Int64Array:
    if period_ns.size < LEAST_STEPS:
        return np.empty(0, np.int64)
    middle = float(np.median(period_ns))
    spread = _ROBUST * float(np.median(np.abs(period_ns - middle)))
    return np.flatnonzero(period_ns - middle > max(DEVIATIONS * spread, LEAST_EXCESS * middle))


@dataclass(frozen=True, slots=True, eq=False)
class _Usual:
    """The median step, which every slow one is held against."""

    period_ns: int
    ops: StepOps
    idle_by_cause: dict[str, int]
    to_host_bytes: int

    @classmethod
    def of(cls, split: StepContents, at: int) -> _Usual:
        period_ns = int(split.windows["period_ns"][at])
        return cls(period_ns, split.ops(at), split.idle_by_cause(at), split.to_host_bytes(at))


def _named(trace: Trace, key: Device, windows: pl.DataFrame, slow: Int64Array) -> list[SpikeStep]:
    period = windows["period_ns"].to_numpy()
    usual = int(np.argsort(period, kind="stable")[(period.size - 1) // 2])
    split = StepContents.of(trace, key, windows)
    reference = _Usual.of(split, usual)
    found = [_name(trace, key, split, int(at), reference, align(split.ops(int(at)), reference.ops)) for at in slow]
    middle = float(np.median(period))
    return [spike for spike in found if spike.excess_ns > _least(spike.kind) * middle]


def _least(kind: Spike) -> float:
    match kind:
        case Spike.CLOCKS:
            return LEAST_EXCESS
        case Spike.UNEXPLAINED | Spike.UNTRACED_PAUSE | Spike.HOST_WAIT | Spike.SLOW_KERNELS:
            return LEAST_UNNAMED
        case _:
            return LEAST_PAUSE


# Idle causes that speak for a class. A pause that nothing explains is told as such, not as a collection of garbage.
_IDLE_KINDS: Final = (
    (Spike.GARBAGE_COLLECTION, ("garbage_collection",)),
    (Spike.RECOMPILATION, ("compile",)),
    (Spike.ALLOCATOR_GROWTH, ("allocator",)),
    (Spike.SLOW_DATA, ("loader",)),
    (Spike.CHECKPOINT, ("checkpoint",)),
    (Spike.COMMUNICATION, ("dependency_communication", "communication")),
    (Spike.HOST_WAIT, ("sync", "copy_staging")),
    (Spike.UNTRACED_PAUSE, ("untraced", "python")),
)
_SAVING: Final = ("checkpoint", "sync", "copy_staging", "untraced", "python", "dispatch", "cuda_call", "copy")


def _name(trace: Trace, key: Device, split: StepContents, at: int, usual: _Usual, aligned: Alignment) -> SpikeStep:
    causes = _causes(split, at, usual, aligned)
    period = int(split.windows["period_ns"][at])
    excess = period - usual.period_ns
    kind, carried, speaking = _kind(split, at, usual, aligned, causes, excess)
    stretches = split.stretches(at).filter(pl.col("cause").is_in(list(speaking))).sort("length", "start_ns")
    window = split.window(at)
    stretch = (int(stretches["start_ns"][-1]), int(stretches["end_ns"][-1])) if stretches.height else window
    step = int(split.windows["step"][at])
    label = str(split.labels.filter(pl.col("step") == step)["label"][0])
    if stretches.height:
        step, label = split.host_step((stretch[0] + stretch[1]) // 2)
    if kind is Spike.ALLOCATOR_GROWTH and _frees(trace, stretches):
        kind = Spike.ALLOCATOR_RETRY
    place, at_ns = _place(split, at, aligned)
    ordered = sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    return SpikeStep(
        key, step, label, kind, period, excess, min(carried, excess), place, at_ns, stretch,
        tuple(item for item in ordered if item[1] > 0),
    )  # fmt: skip


def _causes(split: StepContents, at: int, usual: _Usual, aligned: Alignment) -> dict[str, int]:
    """Excess by cause; together with what the usual step has more of, they sum to the excess."""
    mine, theirs = split.idle_by_cause(at), usual.idle_by_cause
    causes = {name: mine.get(name, 0) - theirs.get(name, 0) for name in sorted({*mine, *theirs})}
    rows = split.inside(at)
    classes, alone = rows["op_class"].cast(pl.String).to_numpy(), aligned.pair < 0
    for name in ("compute", "communication", "copy"):
        of_class = classes == name
        causes[name] = int(aligned.busy_ns[of_class & ~alone].sum())
        causes[f"more {name}"] = int(aligned.busy_ns[of_class & alone].sum())
    causes["copy"] += causes.pop("more copy")
    causes["communication"] += causes.pop("more communication")
    return causes


def _kind(
    split: StepContents, at: int, usual: _Usual, aligned: Alignment, causes: dict[str, int], excess: int
) -> tuple[Spike, int, tuple[str, ...]]:
    """The class, what it carries, and the idle causes that speak for it."""

    def carried(names: tuple[str, ...]) -> int:
        return sum(max(causes.get(name, 0), 0) for name in names)

    same = Spike.CLOCKS if _one_factor(split, at, usual, aligned) else Spike.SLOW_KERNELS
    said: list[tuple[int, Spike, tuple[str, ...]]] = [
        *((carried(names), kind, names) for kind, names in _IDLE_KINDS[:-2]),
        (causes["more compute"], Spike.OTHER_WORK, ()),
        (causes["compute"], same, ()),
    ]
    best = max(said, key=lambda item: item[0])
    if best[0] >= CARRIED_SHARE * excess:
        return best[1], best[0], best[2]
    burst = split.to_host_bytes(at)
    if burst >= max(_BURST_BYTES, _BURST_TIMES * usual.to_host_bytes) and carried(_SAVING) >= CARRIED_SHARE * excess:
        return Spike.CHECKPOINT, carried(_SAVING), _SAVING
    for kind, names in _IDLE_KINDS[-2:]:
        if carried(names) >= CARRIED_SHARE * excess:
            return kind, carried(names), names
    return Spike.UNEXPLAINED, 0, ()


def _one_factor(split: StepContents, at: int, usual: _Usual, aligned: Alignment) -> bool:
    """Whether the kernels of both steps are longer by one factor, as at a lower clock."""
    mine, theirs = split.ops(at), usual.ops
    held = aligned.pair >= 0
    compute = split.inside(at)["op_class"].cast(pl.String).to_numpy() == "compute"
    held &= compute
    length = (mine.finish_ns - mine.start_ns)[held]
    usually = (theirs.finish_ns - theirs.start_ns)[aligned.pair[held]]
    if not length.size:
        return False
    factor = length / np.maximum(usually, 1)
    middle = float(np.median(factor))
    return middle > 1 + _ALIKE and float(np.mean(np.abs(factor / middle - 1) <= _ALIKE)) >= _ALIKE_SHARE


def _frees(trace: Trace, stretches: pl.DataFrame) -> bool:
    """Whether memory was given back to the driver in these stretches."""
    return bool(stretches["call"].cast(pl.String).str.contains("(?i)free|unmap|release").any())


def _place(split: StepContents, at: int, aligned: Alignment) -> tuple[str, int]:
    """The operation at which most of the excess lies, the wait before it included."""
    rows = split.inside(at)
    if not rows.height:
        return "", 0
    here = aligned.busy_ns + aligned.idle_ns[:-1]
    if aligned.idle_ns[-1] > here.max():
        return "the end of the step", int(aligned.idle_ns[-1])
    most = int(np.argmax(here))
    return str(rows["name"].cast(pl.String)[most]), int(here[most])
