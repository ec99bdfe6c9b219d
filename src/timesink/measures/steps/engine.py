"""Steps of a serving engine: prompts in the way of others' tokens, and steps that would hardly take longer for more
requests, where annotations say what they read and make; and what keeps its host from launching the next step in time.

An engine makes one token for each request in a step, so that its step is the time per output token. Between the work of
two steps the host reads tokens, schedules requests, and prepares and launches what comes next. Where the device waits
for that, all of the wait has one root: what of the host's work, taken away, lets it be ahead. Each candidate names
host time of the whole step, also that beside which the device still works, for that makes the host late as well.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes
from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.calls import (
    ALLOCATION,
    FREE,
    OF_MEMORY,
    WAITS_FOR_DEVICE,
    WAITS_FOR_THREAD,
    call_kinds,
)
from timesink.knowledge.kernels import KernelFamily, decode
from timesink.knowledge.ranges import ENGINE_STEP, EXECUTE_MODEL
from timesink.measures.idle.blame import idle_blame, intervals_of
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.kernels.facts import multiprocessors
from timesink.measures.steps import steps
from timesink.measures.steps.marks import StepMarker, step_marks, step_of_ops
from timesink.measures.steps.per_step import per_step_ns, period_ns
from timesink.measures.timeline import Device
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.ranges import requests_of
from timesink.model.arrays import BoolArray, Int8Array, median
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, OS_CALLS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif import Change, Target
from timesink.whatif.changes.host import CaptureGraph, RemoveSyncs, ScaleHost
from timesink.whatif.changes.transfers import PinCopies
from timesink.whatif.edit import Together

_PRODUCTS: Final = (KernelFamily.GEMM, KernelFamily.GEMV)
_ENGINE_STEP: Final = {"prompt_tokens": pl.Int64, "decoding": pl.Int64}


@remembered
def engine_steps(trace: Trace) -> pl.DataFrame:
    """Steady steps whose label says what they do: rank, device, step, start_ns, period_ns, prompt_tokens, decoding."""
    labels = steps(trace).kept.select("rank", "step", "label")
    said = [requests_of(label) for label in labels["label"].to_list()]
    rows = [(one.prompt_tokens, one.decoding) if one else (None, None) for one in said]
    counted = labels.hstack(pl.DataFrame(rows, schema=_ENGINE_STEP, orient="row")).drop_nulls()
    windows = steps(trace).windows.select("rank", "device", "step", "start_ns", "period_ns")
    return windows.join(counted.drop("label"), on=["rank", "step"], how="inner").sort("rank", "device", "step")


class BlockedTokens(Record):
    """The longest step that reads a prompt beside `waiting` requests, and what it would be in chunks. Times in ns."""

    device: Device
    step_ns: float
    usual_ns: float
    prompt_tokens: int
    waiting: int
    chunk: int
    chunked_ns: float


@remembered
def blocked_tokens(trace: Trace) -> tuple[BlockedTokens, ...]:
    """By device with steps that decode alone and steps that read prompts while others wait for a token.

    A chunk is a power of two whose reading takes at most half of a usual step."""
    found = []
    for (rank, device), part in engine_steps(trace).partition_by("rank", "device", as_dict=True).items():
        alone = part.filter(pl.col("prompt_tokens") == 0)
        before = pl.col("decoding").shift(1).fill_null(0)  # a step that only reads a prompt keeps those waiting
        waiting = pl.when(pl.col("decoding") > 0).then("decoding").otherwise(before).alias("waiting")
        reading = part.with_columns(waiting).filter(pl.col("prompt_tokens") > 1, pl.col("waiting") > 0)
        if not alone.height or not reading.height:
            continue
        usual_ns = median(alone["period_ns"].to_numpy())
        worst = reading.sort("period_ns").row(-1, named=True)
        excess_ns, tokens = max(worst["period_ns"] - usual_ns, 1.0), worst["prompt_tokens"]
        chunk = 1 << max(int(np.log2(max(tokens * usual_ns / 2 / excess_ns, 1.0))), 0)
        chunked_ns = usual_ns + excess_ns * min(chunk / tokens * fixes.CHUNK_AGAIN.value, 1.0)
        key = (int(rank), int(device))
        found.append(
            BlockedTokens(key, float(worst["period_ns"]), usual_ns, tokens, worst["waiting"], chunk, chunked_ns)
        )
    return tuple(found)


class FullBatch(Record, eq=False):
    """Decoding at one number of requests in nearly every step, while others join: `requests`, the mean step, and of it
    the time that another so many requests would not lengthen: products by weights, short kernels, kernels of less than
    a wave of blocks, and gaps. `fixed` are these times on the device. Times in ns."""

    device: Device
    requests: int
    share: float
    joined: int
    step_ns: float
    fixed_ns: float

    @property
    def saved_ns(self) -> float:
        """Of a step, what its tokens take less at twice the requests."""
        return self.fixed_ns / 2


@remembered
def full_batches(trace: Trace) -> tuple[FullBatch, ...]:
    """By device whose decoding steps are at one largest number of requests most of the time."""
    found = []
    counts = multiprocessors(trace)
    for (rank, device), part in engine_steps(trace).partition_by("rank", "device", as_dict=True).items():
        key = (int(rank), int(device))
        requests = part["decoding"] + (part["prompt_tokens"] > 0).cast(pl.Int64)
        joined = int((part["prompt_tokens"] > 0).sum())
        most = int(requests.to_numpy().max(initial=0))
        if not joined or most < 2 or key not in counts:
            continue
        growing_ns = _growing(trace, key, part, counts[key])
        step_ns = float(part["period_ns"].to_numpy().mean())
        share = float((requests.to_numpy() == most).mean())
        found.append(FullBatch(key, most, share, joined, step_ns, max(step_ns - growing_ns, 0.0)))
    return tuple(found)


def _growing(trace: Trace, device: Device, part: pl.DataFrame, multiprocessor_count: int) -> float:
    """Time per step of kernels that take longer for more requests; of steps that read prompts, all beyond decoding."""
    columns = ("name", "kind", "grid_x", "grid_y", "grid_z", "start_ns", "end_ns")
    ops = trace.get(DEVICE_OPS).with_columns(pl.Series("step", step_of_ops(trace)))
    alone = part.filter(pl.col("prompt_tokens") == 0)
    ops = ops.filter(pl.col("rank") == device[0], pl.col("device") == device[1]).select(*columns, "step")
    ops = ops.join(alone.select("step").cast(ops.schema["step"]), on="step", how="semi")
    blocks = (pl.col("grid_x") * pl.col("grid_y") * pl.col("grid_z")).cast(pl.Int64).fill_null(multiprocessor_count + 1)
    long = pl.col("end_ns") - pl.col("start_ns") > fixes.SHORT_KERNEL_US.ns
    ops = ops.filter(long, blocks > multiprocessor_count)
    kept = [decode(name).family not in _PRODUCTS for name in ops["name"].cast(pl.String).to_list()]
    grown = Intervals.of(ops.filter(pl.Series(kept, dtype=pl.Boolean)).select("start_ns", "end_ns"))
    usual_ns = median(alone["period_ns"].to_numpy()) if alone.height else 0.0
    reading_ns = float((part["period_ns"] - usual_ns).clip(0).filter(part["prompt_tokens"] > 0).sum())
    return grown.total_ns / max(alone.height, 1) + reading_ns / max(part.height, 1)


_LATE: Final = (*HOST_CAUSES, "launch_latency")
_DRAINED: Final = 0.5  # of the late time: as much comes after waits where these are its root


class Root(StrEnum):
    """What of an engine's host work makes the device wait; the more specific comes first."""

    ALLOCATION = "allocation"
    COPY_OUT = "copy_out"
    COPY_IN = "copy_in"
    LOCK = "lock"
    WAITS = "waits"
    HOST = "host"
    LAUNCHES = "launches"


class EngineLate(Record, eq=False):
    """The host of one device's engine. Times are means per engine step.

    `late`: idle time of the device that the host is to blame for, `late_ns` of it in a step of `step_ns`. `busy_copies`
    are pageable copies from the device, in which it does nothing else. `host_ns` is time of the engine's thread between
    CUDA calls in which it launches nothing, of which `locked_ns` waits for another thread; `waits` counts blocking
    calls, which take `blocked_ns`, `launches` launching calls, `copied_bytes` what is copied to the host through
    pageable memory. `changes`: for each root that the trace has, what is tried without it.
    """

    device: Device
    late: Intervals
    busy_copies: Intervals
    late_ns: float
    step_ns: float
    host_ns: float
    locked_ns: float
    waits: float
    blocked_ns: float
    launches: float
    copied_bytes: float
    changes: Mapping[Root, Change]

    @property
    def share(self) -> float:
        """Of the step, the part in which the device waits for the host, 0 to 1."""
        return self.late_ns / self.step_ns if self.step_ns else 0.0


@remembered
def is_engine(trace: Trace) -> bool:
    """Whether the steps are those of a serving engine: annotated as one, or launches of a graph that decodes."""
    marks = step_marks(trace)
    if marks.marker is StepMarker.RANGE:
        labels = marks.frame["label"]
        return bool(matches(labels, ENGINE_STEP).any() or matches(labels, EXECUTE_MODEL).any())
    return marks.of_tokens


@remembered
def engine_late(trace: Trace) -> tuple[EngineLate, ...]:
    """By device of an engine with steady steps and recorded calls; nothing for other programs."""
    if not is_engine(trace) or not steps(trace).windows.height or not launch_links(trace).linked_count:
        return ()
    stretches = idle_blame(trace).stretches.filter(pl.col("cause").is_in(list(_LATE)))
    late, drained = intervals_of(stretches), intervals_of(stretches.drop_nulls("sync_row"))
    devices = sorted(set(steps(trace).windows.select("rank", "device").iter_rows()))
    none = Intervals.none()
    return tuple(_engine(trace, device, late.get(device, none), drained.get(device, none)) for device in devices)


def _engine(trace: Trace, device: Device, late: Intervals, drained: Intervals) -> EngineLate:
    marks = step_marks(trace).frame.filter(pl.col("rank") == device[0])
    key = (device[0], marks["process"][0], marks["thread"][0])
    host = (pl.col("rank") == key[0]) & (pl.col("process") == key[1]) & (pl.col("thread") == key[2])
    begin, end, count = marks["host_start_ns"].min(), marks["host_end_ns"].max(), max(marks.height, 1)
    calls = trace.get(API_CALLS).with_row_index("row").filter(host, pl.col("start_ns").is_between(begin, end))
    kinds = call_kinds(calls["name"])
    between = _between(calls)
    locked = _waits_for_threads(trace, host) & between
    row, op_call = calls["row"].to_numpy(), launch_links(trace).call
    pageable = {way: _pageable(trace, way) for way in ("d2h", "h2d")}
    out = pageable["d2h"] & (op_call >= 0)
    copies = trace.get(DEVICE_OPS).filter(pl.Series(out), pl.col("device") == device[1])
    thread, ways = (key[1], key[2]), {way: bool(rows.any()) for way, rows in pageable.items()}
    launches = float(np.isin(row, op_call).sum()) / count
    changes = _changes(thread, kinds, (between, locked), ways)
    if launches < fixes.EAGER_LAUNCHES.value:
        del changes[Root.LAUNCHES]
    if drained.total_ns < _DRAINED * late.total_ns:  # the host waits, and yet is ahead again
        del changes[Root.WAITS]
    waiting = np.isin(kinds, WAITS_FOR_DEVICE)
    lengths = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    return EngineLate(
        device=device,
        late=late,
        busy_copies=Intervals.of(copies.select("start_ns", "end_ns")),
        late_ns=per_step_ns(trace, device, late),
        step_ns=period_ns(trace, device),
        host_ns=between.total_ns / count,
        locked_ns=locked.total_ns / count,
        waits=float(waiting.sum()) / count,
        blocked_ns=float(lengths[waiting].sum()) / count,
        launches=launches,
        copied_bytes=float(copies["bytes"].sum() or 0) / count,
        changes=changes,
    )


def _between(calls: pl.DataFrame) -> Intervals:
    """Stretches between CUDA calls that are longer than operators take to reach the next one."""
    inside = Intervals.of(calls.select("start_ns", "end_ns"))
    if not len(inside):
        return inside
    apart = Intervals(inside.end_ns[:-1], inside.start_ns[1:])
    long = apart.lengths_ns >= assumed.DISPATCH_MOST_US.ns
    return Intervals(apart.start_ns[long], apart.end_ns[long])


def _waits_for_threads(trace: Trace, host: pl.Expr) -> Intervals:
    waits = trace.get(OS_CALLS).filter(host)
    return Intervals.of(waits.filter(matches(waits["name"], WAITS_FOR_THREAD)).select("start_ns", "end_ns"))


def _pageable(trace: Trace, direction: str) -> BoolArray:
    """Which operations copy more through pageable memory than a call stages."""
    side = "dst_memory" if direction == "d2h" else "src_memory"
    copied = (pl.col("copy_kind") == direction) & (pl.col(side) == "pageable")
    if direction == "d2h":
        copied &= pl.col("bytes") > fixes.STAGED_BYTES.whole
    return trace.get(DEVICE_OPS).select(copied.fill_null(False)).to_series().to_numpy()


def _changes(
    thread: tuple[int, int], kinds: Int8Array, host: tuple[Intervals, Intervals], pageable: Mapping[str, bool]
) -> dict[Root, Change]:
    """What is tried for each root of which the trace has anything; `host` is code between calls, and waits in it."""
    between, locked = host
    changes: dict[Root, Change] = {}
    if np.isin(kinds, OF_MEMORY).any():
        memory = Target("call", f"{ALLOCATION}|{FREE}")
        changes[Root.ALLOCATION] = Together((RemoveSyncs(memory), ScaleHost(memory, 0.0)))
    if pageable["d2h"]:
        changes[Root.COPY_OUT] = PinCopies(direction="d2h")
    if pageable["h2d"]:
        changes[Root.COPY_IN] = PinCopies()
    changes[Root.WAITS] = RemoveSyncs()
    if len(between):
        free = ScaleHost(Target("windows", windows={thread: between}), 0.0)
        changes[Root.HOST] = Together((PinCopies(direction="d2h"), free)) if pageable["d2h"] else free
    if locked.total_ns > between.total_ns / 2:
        changes[Root.LOCK] = changes[Root.HOST]
    changes[Root.LAUNCHES] = CaptureGraph()
    return changes
