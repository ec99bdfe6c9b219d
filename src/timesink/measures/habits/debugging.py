"""What debugging aids of PyTorch that stayed on leave in a trace: checks for NaN after each backward operator (anomaly
mode), memory that is filled before it is used (deterministic algorithms); and launches that
return only when the kernel they launched has ended (``CUDA_LAUNCH_BLOCKING=1``).
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge import kernel_traits
from timesink.knowledge.calls import FILE_STATE, CallKind, call_kinds
from timesink.knowledge.operators import ALLOCATES, CHECKS_FOR_NAN, FILLS
from timesink.measures.habits.extra_work import WAITING_CAUSES, ExtraWork, HostTimes, extra_work, launch_order, together
from timesink.measures.timeline import Device
from timesink.measures.timeline.attribution import belonging_to, host_nesting, launch_links
from timesink.measures.timeline.autograd import backward_operators, recording_operators
from timesink.model.arrays import Int64Array, flag_at, median
from timesink.model.intervals import Intervals, intervals_by
from timesink.model.names import matches
from timesink.model.nesting import key_slices, slice_of, thread_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, OS_CALLS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_US

_FLAG_BYTES: Final = 1  # one truth value is read
_STACK_US: Final = 30  # an operator's own bookkeeping takes 2 to 10 us, a stack 50 us and more
_STACK_PAUSE_US: Final = 500  # writing a stack takes 100 to 300 us; 3 of 5,400 pauses between look-ups are longer
_CHECK: Final = 3  # compare, any, read: with a memset between them


class NanChecks(Record, eq=False):
    """`work` per device: comparisons, reductions and reads of the checks, with the waits for them; each is so many
    `operations` of the device. `proven`: they are anomaly mode's, since backward operators themselves made them, the
    capture's manifest says that it was on, or the host looks up files' states as often as it checks."""

    work: tuple[ExtraWork, ...]
    operations: float
    proven: bool


@remembered
def nan_checks(trace: Trace) -> NanChecks | None:
    """Checks that compare a tensor, ask whether any element differs, and read the answer at once; None without any."""
    ops, links = trace.get(DEVICE_OPS), launch_links(trace)
    order = launch_order(trace)
    patterns = (kernel_traits.COMPARES, kernel_traits.ANY)
    compares, anys = (matches(ops["name"], pattern).to_numpy()[order] for pattern in patterns)
    reads = ((ops["copy_kind"] == "d2h") & (ops["bytes"] == _FLAG_BYTES)).fill_null(False).to_numpy()[order]
    sets = (ops["kind"] == "set").to_numpy()[order]
    at = np.flatnonzero(anys)
    before = np.where(sets[np.maximum(at - 1, 0)], at - 2, at - 1)
    whole = (before >= 0) & (at + 1 < order.size)
    at, before = at[whole], before[whole]
    checked = compares[before] & reads[at + 1]
    at, before = at[checked], before[checked]
    if not at.size:
        return None
    flags = np.zeros(ops.height, np.bool_)
    for reach in range(_CHECK + 1):
        inside = before + reach <= at + 1
        flags[order[(before + reach)[inside]]] = True
    host = _waits_after(trace, links.call[order[before]], links.call[order[at + 1]])
    looked_up = int(matches(trace.get(OS_CALLS)["name"], FILE_STATE).sum())
    proven = trace.settings.get("anomaly_mode") == "on" or _by_engine(trace) or looked_up >= at.size
    if proven:
        host = _with_stacks(trace, host)
    return NanChecks(extra_work(trace, flags, host, WAITING_CAUSES), float(flags.sum()) / at.size, proven)


def _waits_after(trace: Trace, first: Int64Array, last: Int64Array) -> HostTimes:
    """By (process, thread): from each check's first launch to the end of the wait for its answer."""
    calls = trace.get(API_CALLS)
    end = calls["end_ns"].to_numpy()
    waits = np.isin(call_kinds(calls["name"]), [CallKind.STREAM_SYNC, CallKind.EVENT_SYNC])
    following = np.minimum(last + 1, calls.height - 1)
    until = np.where(waits[following], end[following], end[last])
    checks = calls.select("process", "thread", "start_ns")[first].with_columns(end_ns=pl.Series(until))
    return intervals_by(checks, "process", "thread")


def _with_stacks(trace: Trace, host: HostTimes) -> HostTimes:
    """The same, and the host's time in which anomaly mode stores a Python stack for each node of the graph: an
    operator that makes one then is `_STACK_US` or longer in nothing that it calls, be it of a layer that is run again
    in the backward pass. Without operators it is known by the files it looks up."""
    ops = trace.get(HOST_OPS)
    if not ops.height:
        return together(host, _looking_up(trace))
    nodes = recording_operators(trace) & ~backward_operators(trace)
    calls, stacks = trace.get(API_CALLS), {}
    for (rank, process, thread), first, last in thread_slices(ops):
        own = ops[first:last].select("start_ns", "end_ns")
        made = nodes[first:last]
        begun, ended = slice_of(calls, ("rank", "process", "thread"), (rank, process, thread))
        borders = np.unique(np.concatenate([*own, *calls[begun:ended].select("start_ns", "end_ns")]))
        inside = Intervals.of(own.filter(pl.Series(made)))
        pieces = Intervals(borders[:-1], borders[1:])
        long = (pieces.lengths_ns >= _STACK_US * NS_PER_US) & (inside.covered_ns(pieces.start_ns, pieces.end_ns) > 0)
        stacks[process, thread] = Intervals(pieces.start_ns[long], pieces.end_ns[long])
    return together(host, stacks)


def _looking_up(trace: Trace) -> HostTimes:
    """By (process, thread): from the first to the last of the look-ups of files that follow each other, with no call of
    CUDA between and a pause of `_STACK_PAUSE_US` at most: Python asks for the state of each file of a stack it stores,
    then writes the stack. The last of them is written in what such pauses take, or less: until the next call."""
    asked = trace.get(OS_CALLS)
    asked = asked.filter(matches(asked["name"], FILE_STATE)).sort("rank", "process", "thread", "start_ns")
    calls, found = trace.get(API_CALLS), {}
    for key, first, last in thread_slices(asked):
        start, end = (asked[column][first:last].to_numpy() for column in ("start_ns", "end_ns"))
        begun, ended = slice_of(calls, ("rank", "process", "thread"), key)
        called = np.append(np.sort(calls["start_ns"][begun:ended].to_numpy()), np.iinfo(np.int64).max)
        following, pause_ns = np.searchsorted(called, start), start[1:] - end[:-1]
        apart = (following[1:] > following[:-1]) | (pause_ns > _STACK_PAUSE_US * NS_PER_US)
        writing = pause_ns[~apart & (pause_ns >= _STACK_US * NS_PER_US)]
        begins, lasts = np.append(0, 1 + np.flatnonzero(apart)), np.append(np.flatnonzero(apart), start.size - 1)
        written = end[lasts] + (int(median(writing)) if writing.size else 0)
        found[key[1], key[2]] = Intervals.union_of(start[begins], np.minimum(written, called[following[lasts]]))
    return found


def _by_engine(trace: Trace) -> bool:
    """Whether a backward operator has a check for NaN as its own child."""
    ops, parent = trace.get(HOST_OPS), host_nesting(trace).parent
    checks = matches(ops["name"], CHECKS_FOR_NAN).to_numpy()
    return bool((checks & np.append(backward_operators(trace), False)[parent]).any())


@remembered
def filled_memory(trace: Trace) -> tuple[ExtraWork, ...]:
    """Per device: kernels that fill memory inside the operator that allocates it, as deterministic algorithms ask."""
    ops = trace.get(HOST_OPS)
    if not ops.height:
        return ()
    fills, allocates = (matches(ops["name"], pattern).to_numpy() for pattern in (FILLS, ALLOCATES))
    return extra_work(trace, belonging_to(trace, fills & flag_at(allocates, host_nesting(trace).parent)))


class BlockingLaunches(Record, eq=False):
    """On one device: `ratio` of the `count` kernels with a launch of their own whose launch outlasted them, and `rows`
    of these in `device_ops`. `host` is the time of (process, thread) in which those calls waited for them: a launch
    that does not wait returns as its kernel is about to start, so half-way there. `idle` is the idle time after each
    kernel that work launched meanwhile would have filled: as long as the wait, or as the gap."""

    device: Device
    count: int
    ratio: float
    rows: Int64Array
    host: dict[tuple[int, int], Intervals]
    idle: Intervals


@remembered
def blocking_launches(trace: Trace) -> tuple[BlockingLaunches, ...]:
    """Per device with kernels whose launches are recorded."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    alone = (links.call >= 0) & ~links.shared & (ops["kind"] == "kernel").to_numpy()
    start, end = ops["start_ns"].to_numpy(), ops["end_ns"].to_numpy()
    returned = np.zeros(ops.height, np.int64)
    returned[alone] = calls["end_ns"].to_numpy()[links.call[alone]]
    found = []
    for (rank, device), first, last in key_slices(ops, ("rank", "device")):
        rows = first + np.flatnonzero(alone[first:last])
        if rows.size:
            awaited = rows[returned[rows] >= end[rows]]
            asked = (calls["start_ns"].to_numpy()[links.call[awaited]] + start[awaited]) // 2
            waited = np.maximum(returned[awaited] - asked, 0)
            following = np.append(start[1:], end[-1:])[awaited]
            latest = np.minimum(following, end[awaited] + waited)
            idle = Intervals.union_of(end[awaited], np.maximum(latest, end[awaited]))
            ratio = awaited.size / rows.size
            waits = calls[links.call[awaited]].select("process", "thread", "end_ns", start_ns=pl.Series(asked))
            host = intervals_by(waits, "process", "thread")  # from when each call would have returned to when it did
            found.append(BlockingLaunches((rank, device), rows.size, ratio, awaited, host, idle))
    return tuple(found)


def launches_block(trace: Trace) -> bool:
    """Whether more launches wait for their kernels than do not, on any device."""
    return any(device.ratio > 0.5 for device in blocking_launches(trace))
