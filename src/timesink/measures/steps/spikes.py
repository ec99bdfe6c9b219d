"""Steps that stand out: by how much, where in the step, and what made them slow.

`slow-steps.md` says which stand out, and what names one. For the split a slow step is aligned with the median step,
operation by operation. A step's operations on a device, in order of start, cut its window into segments: the idle time
before an operation, and the time in which it was the last to run. The two sequences of kernel names are aligned at both
ends, and between these by their longest common blocks; an operation that only one step has is paired with none.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import steps as assumed
from timesink.knowledge.calls import FREE
from timesink.knowledge.op_class import COMPUTE, OpClass, class_of_ops
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.causes import CAUSE_CODE
from timesink.measures.steps import steps
from timesink.measures.steps.slow_steps import usual_and_deviation
from timesink.measures.timeline import Device
from timesink.model.arrays import Int8Array, Int64Array, IntArray, median
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

# Finding the longest common blocks takes quadratic time: of more operations, position is compared with position.
_LONGEST: Final = 4_000


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
    OS_CALL = "os_call"
    UNRECORDED_PAUSE = "unrecorded_pause"
    UNEXPLAINED = "unexplained"


class SpikeStep(Record, eq=False):
    """One slow step of one device. `step` is numbered as in `steps().frame`, `label` its mark.

    `excess_ns` is its length beyond the median step's; `carried_ns` is how much of it the class accounts for.
    `operation` is the operation at which most of the excess is. `of_cause` is the time of the cause in the step: idle
    stretches and work of its kind; the whole window where the cause is that kernels take longer.
    """

    device: Device
    step: int
    label: str
    kind: Spike
    period_ns: int
    excess_ns: int
    carried_ns: int
    operation: str
    of_cause: Intervals


class Spikes(Record, eq=False):
    """Spikes in order of device and step. `examined` counts the steady steps looked at, per device."""

    found: tuple[SpikeStep, ...]
    examined: dict[Device, int]

    def period_steps(self, kind: Spike, device: Device) -> int | None:
        """After how many steps a cause comes back, where it came at least three times at one distance, give or take
        one step."""
        apart = np.diff([spike.step for spike in self.found if spike.kind is kind and spike.device == device])
        if apart.size < 2 or int(apart.max() - apart.min()) > 1:
            return None
        return round(median(apart))


@remembered
def spikes(trace: Trace) -> Spikes:
    """Find and name every spike."""
    parts = steps(trace).windows.partition_by("rank", "device", as_dict=True)
    windows = {(rank, device): part for (rank, device), part in sorted(parts.items())}
    found = tuple(spike for device, part in windows.items() for spike in _named_spikes(trace, device, part))
    return Spikes(found, {device: part.height for device, part in windows.items()})


def _standing_out(period_ns: Int64Array) -> Int64Array:
    """Places of the steps that are too long to be a matter of chance."""
    if period_ns.size < assumed.SPIKE_STEPS.whole:
        return np.empty(0, np.int64)
    middle, deviation = usual_and_deviation(period_ns)
    least = max(assumed.SPIKE_DEVIATIONS.value * deviation, assumed.SPIKE_EXCESS.value * middle)
    return np.flatnonzero(period_ns - middle > least)


def _named_spikes(trace: Trace, device: Device, windows: pl.DataFrame) -> list[SpikeStep]:
    """Each slow step compared with the median one; those whose cause wants a larger excess are left out."""
    period = windows["period_ns"].to_numpy()
    if not (slow := _standing_out(period)).size:
        return []
    contents = StepContents.of(trace, device, windows)
    usual = _Step(contents, int(np.argsort(period, kind="stable")[(period.size - 1) // 2]))
    named = [_named_spike(device, _Step(contents, int(place)), usual) for place in slow]
    middle = median(period)
    return [one for one in named if one.excess_ns > _LEAST_EXCESS.get(one.kind, assumed.SPIKE_PAUSE).value * middle]


# The share of the median that a spike must be longer by, where that is not `SPIKE_PAUSE`.
_UNNAMED: Final = (Spike.UNEXPLAINED, Spike.UNRECORDED_PAUSE, Spike.HOST_WAIT, Spike.OS_CALL, Spike.SLOW_KERNELS)
_LEAST_EXCESS: Final = {Spike.CLOCKS: assumed.SPIKE_EXCESS, **dict.fromkeys(_UNNAMED, assumed.SPIKE_UNNAMED)}
# Idle causes that are evidence for a class. A pause that nothing explains is reported as such, not as a collection of
# garbage; the last two are asked only where nothing else carries the excess.
_IDLE_KINDS: Final = (
    (Spike.GARBAGE_COLLECTION, ("garbage_collection",)),
    (Spike.RECOMPILATION, ("compile",)),
    (Spike.ALLOCATOR_GROWTH, ("allocator",)),
    (Spike.SLOW_DATA, ("loader",)),
    (Spike.CHECKPOINT, ("checkpoint",)),
    (Spike.COMMUNICATION, ("dependency_communication", "communication")),
)
_LAST_KINDS: Final = (
    (Spike.HOST_WAIT, ("sync", "copy_staging")),
    (Spike.OS_CALL, ("os_call",)),
    (Spike.UNRECORDED_PAUSE, ("unrecorded_code", "python")),
)
_SAVING: Final = (
    "checkpoint", "sync", "copy_staging", "os_call", "unrecorded_code", "python", "dispatch", "cuda_call", "copy",
)  # fmt: skip


def _named_spike(device: Device, slow: _Step, usual: _Step) -> SpikeStep:
    aligned = align(slow.ops, usual.ops)
    excess = slow.period_ns - usual.period_ns
    kind, carried, evidence = _kind(slow, usual, aligned, excess)
    shown = np.flatnonzero(np.isin(slow.idle.cause, [CAUSE_CODE[name] for name in evidence if name in CAUSE_CODE]))
    step, label, of_cause = slow.number, slow.label, Intervals.one(*slow.window_ns)
    if shown.size:
        start, end = slow.idle.start_ns[shown], slow.idle.start_ns[shown] + slow.idle.length_ns[shown]
        longest = np.lexsort((start, end - start))[-1]
        step, label = slow.contents.host_step(int(start[longest] + end[longest]) // 2)
        of_cause = Intervals.union_of(start, end) | slow.busy_of(evidence)
    if kind is Spike.ALLOCATOR_GROWTH and matches(slow.contents.calls_of_idle(slow.idle.row[shown]), FREE).any():
        kind = Spike.ALLOCATOR_RETRY
    operation = _operation(slow, aligned)
    return SpikeStep(device, step, label, kind, slow.period_ns, excess, min(carried, excess), operation, of_cause)


def _causes(slow: _Step, usual: _Step, aligned: Alignment) -> dict[str, int]:
    """Excess by cause, ns; together with what the usual step has more of, they sum to the excess."""
    causes = dict(zip(CAUSE_CODE, (slow.idle_of_cause - usual.idle_of_cause).tolist(), strict=True))
    classes, alone = slow.op_class, aligned.pair < 0
    for code, name in enumerate(OpClass.categories):
        of_class = classes == code
        causes[name] = int(aligned.busy_ns[of_class & ~alone].sum())
        causes[f"more {name}"] = int(aligned.busy_ns[of_class & alone].sum())
    causes["copy"] += causes.pop("more copy")
    causes["communication"] += causes.pop("more communication")
    return causes


def _kind(slow: _Step, usual: _Step, aligned: Alignment, excess: int) -> tuple[Spike, int, tuple[str, ...]]:
    """The class, what of the excess it carries, and the idle causes that are evidence for it."""
    causes = _causes(slow, usual, aligned)

    def carried(names: tuple[str, ...]) -> int:
        return sum(max(causes[name], 0) for name in names)

    candidates: list[tuple[int, Spike, tuple[str, ...]]] = [
        *((carried(names), kind, names) for kind, names in _IDLE_KINDS),
        (causes["more compute"], Spike.OTHER_WORK, ()),
        (causes["compute"], Spike.CLOCKS if _one_factor(slow, usual, aligned) else Spike.SLOW_KERNELS, ()),
    ]
    burst = slow.to_host_bytes >= max(assumed.BURST_BYTES.whole, assumed.BURST_TIMES.whole * usual.to_host_bytes)
    last = (((Spike.CHECKPOINT, _SAVING),) if burst else ()) + _LAST_KINDS
    tried = [
        max(candidates, key=lambda candidate: candidate[0]),
        *((carried(names), kind, names) for kind, names in last),
    ]
    least = assumed.CARRIED_SHARE.value * excess
    return next(((kind, most, names) for most, kind, names in tried if most >= least), (Spike.UNEXPLAINED, 0, ()))


def _one_factor(slow: _Step, usual: _Step, aligned: Alignment) -> bool:
    """Whether the kernels of both steps are longer by one factor, as at a lower clock."""
    paired = (aligned.pair >= 0) & (slow.op_class == COMPUTE)
    length = (slow.ops.finish_ns - slow.ops.start_ns)[paired]
    usual_length = (usual.ops.finish_ns - usual.ops.start_ns)[aligned.pair[paired]]
    if not length.size:
        return False
    factor, alike = np.maximum(length, 1) / np.maximum(usual_length, 1), assumed.CLOCKS_ALIKE.value
    middle = median(factor)
    is_alike = float(np.mean(np.abs(factor / middle - 1) <= alike)) >= assumed.CLOCKS_ALIKE_SHARE.value
    return middle > 1 + alike and is_alike


def _operation(slow: _Step, aligned: Alignment) -> str:
    """The operation at which most of the excess is, the wait before it included."""
    most = int(np.argmax(np.append(aligned.busy_ns, 0) + aligned.idle_ns))
    if most == aligned.busy_ns.size:
        return "the end of the step" if most else ""
    return str(slow.contents.name[slow.first + most])


class _Idle(Record, eq=False):
    """Stretches of a step's idle time: their rows among the device's, when they begin, how long they are, and why."""

    row: Int64Array
    start_ns: Int64Array
    length_ns: Int64Array
    cause: Int8Array


class StepContents(Record, eq=False):
    """What the windows of one device hold: stretches of idle time, operations, and the labels of its rank's steps.

    `copied` are the operations that copied to the host, and `to_host` is how many bytes those before each did.
    """

    windows: pl.DataFrame
    idle: tuple[Int64Array, Int64Array, IntArray]  # start, end and cause
    calls_of_idle: Callable[[Int64Array], pl.Series]
    name: pl.Series
    start_ns: Int64Array
    finish_ns: Int64Array
    op_class: Int8Array
    copied: Int64Array
    to_host: Int64Array
    begins_ns: Int64Array
    steps: list[tuple[int, str]]
    label_of: dict[int, str]

    @classmethod
    def of(cls, trace: Trace, device: Device, windows: pl.DataFrame) -> StepContents:
        """The windows of one device, as `steps` gives them."""
        low, high = slice_of(trace[DEVICE_OPS], ("rank", "device"), device)
        ops, idle = trace[DEVICE_OPS][low:high], idle_blame(trace).on(device)  # in order of start
        copied = np.flatnonzero((ops["copy_kind"] == "d2h").fill_null(False))
        labels = steps(trace).frame.filter(pl.col("rank") == device[0]).sort("host_start_ns")
        numbered = labels.select("step", "label").rows()
        return cls(
            windows,
            (idle["start_ns"].to_numpy(), idle["end_ns"].to_numpy(), idle["cause"].to_physical().to_numpy()),
            lambda rows: idle_blame(trace).told(idle[rows], "call")["call"],
            ops["name"],
            ops["start_ns"].to_numpy(),
            ops["end_ns"].to_numpy(),
            class_of_ops(trace)[low:high].to_physical().cast(pl.Int8).to_numpy(),
            copied,
            np.append(0, np.cumsum(ops["bytes"][copied].fill_null(0), dtype=np.int64)),
            labels["host_start_ns"].to_numpy(),
            numbered,
            dict(reversed(numbered)),
        )

    def host_step(self, time_ns: int) -> tuple[int, str]:
        """Number and label of the step the host was in; the first step before it."""
        return self.steps[max(int(np.searchsorted(self.begins_ns, time_ns, side="right")) - 1, 0)]


class _Step:
    """One step of a device: the window number `place`, and what begins or idles in it."""

    def __init__(self, contents: StepContents, place: int) -> None:
        read = ("start_ns", "end_ns", "period_ns", "step")
        start_ns, end_ns, self.period_ns, self.number = contents.windows.select(read).row(place)
        self.contents, self.window_ns = contents, (start_ns, end_ns)
        self.label = contents.label_of[self.number]
        self.first, last = map(int, np.searchsorted(contents.start_ns, self.window_ns))
        held = slice(self.first, last)
        self.op_class = contents.op_class[held]
        self.to_host_bytes = int(np.diff(contents.to_host[np.searchsorted(contents.copied, (self.first, last))])[0])
        token = contents.name.to_physical().to_numpy()[held].astype(np.int64)
        self.ops = StepOps(token, contents.start_ns[held], contents.finish_ns[held], self.window_ns)
        self.idle = self._idle()
        self.idle_of_cause = np.zeros(len(CAUSE_CODE), np.int64)
        np.add.at(self.idle_of_cause, self.idle.cause, self.idle.length_ns)

    def busy_of(self, names: tuple[str, ...]) -> Intervals:
        """When operations of these classes ran in the window."""
        wanted = np.isin(self.op_class, [code for code, name in enumerate(OpClass.categories) if name in names])
        end = np.minimum(self.ops.finish_ns, self.window_ns[1])
        return Intervals.union_of(self.ops.start_ns[wanted], end[wanted])

    def _idle(self) -> _Idle:
        """Idle stretches cut to the window; they do not overlap."""
        (start, end), (starts, ends, cause) = self.window_ns, self.contents.idle
        first = max(int(np.searchsorted(starts, start, side="right")) - 1, 0)
        held = slice(first, int(np.searchsorted(starts, end)))
        begin = np.maximum(starts[held], start)
        length = np.minimum(ends[held], end) - begin
        kept = length > 0
        return _Idle(first + np.flatnonzero(kept), begin[kept], length[kept], cause[held][kept].astype(np.int8))


class StepOps(Record, eq=False, dict=True):
    """One step on one device: what ran, in order of start. `token` numbers the names; `end_ns` of the window is the
    start of the next step's first operation."""

    token: Int64Array
    start_ns: Int64Array
    finish_ns: Int64Array
    window_ns: tuple[int, int]

    @cached_property
    def _reach_ns(self) -> Int64Array:
        """When the work before each operation was over, and, last, all of it: one longer than the operations."""
        return np.asarray(np.maximum.accumulate(np.concatenate(([self.window_ns[0]], self.finish_ns))), np.int64)

    @cached_property
    def idle_ns(self) -> Int64Array:
        """Idle time before each operation, and, last, at the end of the window: one longer than the operations."""
        begins = np.append(np.minimum(self.start_ns, self.window_ns[1]), self.window_ns[1])
        return np.asarray(np.maximum(begins - self._reach_ns, 0), np.int64)

    @cached_property
    def busy_ns(self) -> Int64Array:
        """Time that each operation added to the busy time of the window.

        In a window [0, 100), where idle and busy time of all sum to 100 with 10 more of idle time at the end::

            start  finish  reach before  idle  busy
            0      30      0             0     30
            20     50      30            0     20
            25     45      50            0     0
            60     90      50            10    30
        """
        reach = np.minimum(self._reach_ns, self.window_ns[1])
        begins = np.minimum(np.maximum(self.start_ns, reach[:-1]), self.window_ns[1])
        return np.asarray(np.maximum(reach[1:] - begins, 0), np.int64)


class Alignment(Record, eq=False):
    """Differences of one step from another, per operation of the first. `pair[i]` is the operation of the other that is
    aligned with it, -1 for none; `busy_ns` and `idle_ns` (one longer: the end of the window) are differences. Less what
    only the other step has, they sum to the difference of the windows."""

    pair: Int64Array
    busy_ns: Int64Array
    idle_ns: Int64Array


def align(step: StepOps, other: StepOps) -> Alignment:
    """The first step compared with the second."""
    pair = _pairs(step.token.tobytes(), other.token.tobytes())
    paired = np.flatnonzero(pair >= 0)
    busy, idle = step.busy_ns.copy(), step.idle_ns.copy()
    busy[paired] -= other.busy_ns[pair[paired]]
    idle[paired] -= other.idle_ns[pair[paired]]
    idle[-1] -= other.idle_ns[-1]
    return Alignment(pair, busy, idle)


@lru_cache  # steps that are slow are often slow alike
def _pairs(first_tokens: bytes, second_tokens: bytes) -> Int64Array:
    """For each token of the first step the place of its partner in the second, or -1.

    The first a b c d and the second a c d x have the block c d in common and, before it, a::

        token  partner
        a      0
        b      -1
        c      1
        d      2
    """
    first, second = np.frombuffer(first_tokens, np.int64), np.frombuffer(second_tokens, np.int64)
    shared = min(first.size, second.size)
    begin = int(np.argmax(np.append(first[:shared] != second[:shared], True)))
    differs = first[first.size - shared + begin :] != second[second.size - shared + begin :]
    alike = int(np.argmax(np.append(differs[::-1], True)))
    pair = np.full(first.size, -1, np.int64)
    pair[:begin] = np.arange(begin)
    pair[first.size - alike :] = np.arange(second.size - alike, second.size)
    first, second = first[begin : first.size - alike], second[begin : second.size - alike]
    if max(first.size, second.size) > _LONGEST:
        same = begin + np.flatnonzero(first[: second.size] == second[: first.size])
        pair[same] = same
    elif first.size and second.size:
        for block in SequenceMatcher(None, first.tolist(), second.tolist(), autojunk=False).get_matching_blocks():
            pair[begin + block.a : begin + block.a + block.size] = np.arange(block.size) + begin + block.b
    return pair
