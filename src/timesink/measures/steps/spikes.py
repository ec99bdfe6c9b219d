"""Steps that stand out: by how much, where in the step, and what made them slow.

A spike is a steady step longer than the median by more than both a robust deviation and a share of it. Its excess over
the median step is split by cause: idle time by what the device waited for, and time in which it ran more, or longer.
What carries at least half of the excess names the spike; where nothing does, it is unexplained. The step named is the
one the host was in when the cause struck, which is not always the one whose kernels came late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.steps.contents import Alignment, StepContents, StepOps, align
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.timeline import Device
from timesink.model.arrays import Int64Array
from timesink.model.trace import Trace, remembered

DEVIATIONS: Final = 6.0  # robust standard deviations
LEAST_EXCESS: Final = 0.2  # of the median: below, steps differ for many small reasons
LEAST_PAUSE: Final = 0.5  # of the median, for all but clocks: reading a loss every few steps drains as much
LEAST_UNNAMED: Final = 1.0  # where no cause is named: short steps that the host sets the pace of vary by half and more
NEEDS: Final = 4  # steady steps: with fewer there is no median to stand out from
CARRIES: Final = 0.5  # of the excess
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
    if period_ns.size < NEEDS:
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
    if best[0] >= CARRIES * excess:
        return best[1], best[0], best[2]
    burst = split.to_host_bytes(at)
    if burst >= max(_BURST_BYTES, _BURST_TIMES * usual.to_host_bytes) and carried(_SAVING) >= CARRIES * excess:
        return Spike.CHECKPOINT, carried(_SAVING), _SAVING
    for kind, names in _IDLE_KINDS[-2:]:
        if carried(names) >= CARRIES * excess:
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
