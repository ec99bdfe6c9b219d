"""Forward passes that run twice: layers again in the backward pass, as activation checkpointing does, or all of it
before the backward pass, as an evaluation in a step does.

**In the backward pass.** Where operators have sequence numbers, it is known by them: inside a backward pass gradients
are not recorded, except where a layer runs its forward pass again. An operator there that shows a sequence number of
its own, and is no backward of another, is recomputed; or a gradient is taken of a gradient: then most nodes of the pass
record, where only the first of a layer runs it again.

Without operators the order of kernels tells: a thread that launches the backward pass launches, kernel for kernel and
grid for grid, a stretch that another thread launched before.

The host pays for it in the forward pass, too: a region is entered (states of random numbers and of autocast are kept),
and hooks in Python stand in for each tensor that it saves.

**Before it.** Kernels are taken in the order of their launches. Between two backward passes the program's thread
launches the optimizer, and the forward pass of the next step. If the kernels up to the loss before a backward pass also
ran earlier since the backward pass before, another forward pass ended there; it began where both stop to be alike.
Where operators are recorded, those of the second pass must not record gradients (show no sequence number).
"""

from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import fixes
from timesink.knowledge.operators import REENTRANT_CHECKPOINT
from timesink.knowledge.ranges import OF_AUTOGRAD
from timesink.measures.habits.extra_work import (
    NOTHING,
    STRETCH,
    ExtraWork,
    HostTimes,
    Launched,
    begun_alike,
    extra_work,
    launched,
    occurring,
    telling,
    together,
)
from timesink.measures.kernels.facts import within
from timesink.measures.timeline.attribution import belonging_to, host_nesting
from timesink.measures.timeline.autograd import backward_operators, inside_backward, recording_operators
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import slice_of, thread_slices
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered


@remembered
def recomputed(trace: Trace) -> tuple[ExtraWork, ...] | None:
    """What is recomputed, per device; None where neither operators nor a thread of the backward pass was recorded."""
    numbered = bool(recording_operators(trace).any())
    if not numbered and not launched(trace).of_backward:
        return None
    flags, host = _by_number(trace) if numbered else _by_order(trace)
    return extra_work(trace, flags, together(host, _saving(trace, flags)) if flags.any() else host)


def _by_number(trace: Trace) -> tuple[BoolArray, HostTimes]:
    """Rows of `device_ops` under an operator that records gradients inside a backward pass, of kernels seen before.

    The host's time is that of the backward operators around them, less what these run of their own."""
    ops, nesting, inside = trace.get(HOST_OPS), host_nesting(trace), inside_backward(trace)
    again = inside & ~backward_operators(trace) & recording_operators(trace)
    again = within(again & ~_of_gradients(trace, again), nesting)
    flags = belonging_to(trace, again)
    kernels = launched(trace).frame
    mine = flags[kernels["row"].to_numpy()]
    seen = kernels.filter(pl.Series(~mine))["code"].unique()
    fresh = kernels.filter(pl.Series(mine), ~pl.col("code").is_in(seen.implode()))["row"].to_numpy()
    flags[fresh] = False
    if not flags.any():
        return flags, NOTHING
    top = nesting.outermost(np.arange(ops.height))
    around = nesting.inclusive(again.astype(np.int64)) > 0
    whole = np.isin(top, np.unique(top[again]))
    own = whole & inside & ~again & ~around
    outermost = whole & (nesting.parent < 0)
    return flags, {
        key: _times(ops, outermost, first, last) - _times(ops, own, first, last)
        for (_, *key_of), first, last in thread_slices(ops)
        if outermost[first:last].any()
        for key in [(int(key_of[0]), int(key_of[1]))]
    }


_OF_NODES: Final = 1 / 3  # of a pass: a layer of three operators and more runs again for one of them
_LEAST_NODES: Final = 4  # that record: a pass of few nodes tells nothing by their share


def _of_gradients(trace: Trace, recording: BoolArray) -> BoolArray:
    """Which operators are inside a backward pass most nodes of which record: it takes gradients of gradients. A pass is
    what one thread does of it before another thread begins an operator."""
    ops, nesting = trace.get(HOST_OPS), host_nesting(trace)
    if not recording.any():
        return recording
    nodes = backward_operators(trace) & ~matches(ops["name"], OF_AUTOGRAD).to_numpy()
    node = np.full(ops.height, -1)
    for rows in nesting.levels():
        node[rows] = np.where(nodes[rows], rows, np.where(nesting.parent[rows] >= 0, node[nesting.parent[rows]], -1))
    thread = ops.select(pl.struct("rank", "process", "thread").rle_id()).to_series().to_numpy()
    top = np.flatnonzero(nesting.parent < 0)
    top = top[np.argsort(ops["start_ns"].to_numpy()[top], kind="stable")]
    number = np.zeros(ops.height, np.int64)
    number[top] = np.cumsum(np.append(True, np.diff(thread[top]) != 0))
    passes = number[nesting.outermost(np.arange(ops.height))]
    records = np.zeros(ops.height, np.bool_)
    records[node[recording & (node >= 0)]] = True
    count, total = (np.bincount(passes[chosen], minlength=passes.max() + 1) for chosen in (records, nodes))
    return ((count >= _LEAST_NODES) & (count > _OF_NODES * total))[passes]


def _times(ops: pl.DataFrame, chosen: BoolArray, first: int, last: int) -> Intervals:
    """When the chosen rows of one thread's slice ran."""
    return Intervals.of(ops[first:last].filter(pl.Series(chosen[first:last])).select("start_ns", "end_ns"))


def _by_order(trace: Trace) -> tuple[BoolArray, HostTimes]:
    """Rows of `device_ops` whose stretch of kernels another thread of the process launched, too; and the host's time
    from a stretch's last launch to the thread's next one."""
    order: Launched = launched(trace)
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    host: dict[tuple[int, int], Intervals] = {}
    for rank, process, thread in sorted(order.of_backward):
        first, last = slice_of(order.frame, ("rank", "process"), (rank, process))
        here = order.frame[first:last]  # in order of thread
        first, last = slice_of(here, ("thread",), (thread,))
        own, codes = here[first:last], here["code"].to_numpy()
        others = np.concatenate((codes[:first], codes[last:]))
        found = occurring(codes[first:last], others, telling(own["family"]))
        flags[own["row"].to_numpy()[found]] = True
        at_ns, lasts = own["launched_ns"].to_numpy(), np.flatnonzero(found[:-1] & ~found[1:])
        host[process, thread] = Intervals.union_of(at_ns[lasts], at_ns[lasts + 1])
    return flags, host


def _saving(trace: Trace, flags: BoolArray) -> HostTimes:
    """The host's time in the forward pass that is there for a second one: what it takes to enter a region beyond what a
    launch takes there, and, before launches that come again, the hooks of the tensors that are saved, those by which
    the backward pass gets them back with them."""
    order = launched(trace)
    host: HostTimes = {}
    reentrant = matches(trace.get(HOST_OPS)["name"], REENTRANT_CHECKPOINT).any()
    for rank, process, thread in sorted(order.of_backward):
        here = order.frame.filter(pl.col("rank") == rank, pl.col("process") == process)
        own = here.filter(pl.col("thread") == thread)
        again = flags[own["row"].to_numpy()]
        one_ns = _launch_ns(np.diff(own["launched_ns"].to_numpy())[~again[1:]])
        hooks_ns = 0.0 if reentrant else fixes.SAVING_HOOKS.value * one_ns
        for (forward,), part in here.filter(pl.col("thread") != thread).group_by("thread"):
            codes, at_ns = part["code"].to_numpy(), part["launched_ns"].to_numpy()
            twins = occurring(codes, own["code"].to_numpy()[again], telling(part["family"]))
            at = np.flatnonzero(twins[1:]) + 1
            took_ns = at_ns[at] - at_ns[at - 1]
            entered = begun_alike(codes, own["code"].to_numpy(), again)[at]
            saving_ns = hooks_ns + entered * np.maximum(took_ns - _launch_ns(took_ns), 0.0)
            begin_ns = at_ns[at] - np.minimum(saving_ns, took_ns).astype(np.int64)
            host = together(host, {(process, int(str(forward))): Intervals.union_of(begin_ns, at_ns[at])})
    return host


def _launch_ns(took_ns: Int64Array) -> float:
    """What a launch takes on average; what takes longer is no launching."""
    soon = took_ns[took_ns <= fixes.CAPTURED_WITHIN_US.ns]
    return float(soon.mean()) if soon.size else 0.0


_SHARE: Final = 0.5  # of the forward pass: a shorter twin is another head, or a loss that is written twice


@remembered
def repeated_forward(trace: Trace) -> tuple[ExtraWork, ...] | None:
    """Per device what all passes but the last run; None where no backward pass can be told from a forward pass."""
    order = launched(trace)
    if not order.of_backward:
        return None
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    keys = {(rank, process) for rank, process, _ in order.of_backward}
    for rank, process in sorted(keys):
        first, last = slice_of(order.frame, ("rank", "process"), (rank, process))
        here = order.frame[first:last]
        by_launch = np.lexsort((here["row"].to_numpy(), here["launched_ns"].to_numpy()))
        threads = [thread for _, owner, thread in order.of_backward if owner == process]
        backward = here["thread"].is_in(threads).to_numpy()[by_launch]
        row, code = here["row"].to_numpy()[by_launch], here["code"].to_numpy()[by_launch]
        losses = (here["family"] == "loss").to_numpy()[by_launch]
        for first, last in _between(backward):
            ends = np.flatnonzero(losses[first:last]) + 1
            for begin, end in _twins(code[first : first + ends[-1]].tobytes()) if ends.size else ():
                flags[row[first + begin : first + end]] = True
    return extra_work(trace, flags & ~belonging_to(trace, recording_operators(trace)))


def _between(backward: BoolArray) -> list[tuple[int, int]]:
    """First and last (exclusive) of the stretches that another thread launches, each up to a backward pass."""
    ends = np.flatnonzero(backward & ~np.concatenate(([True], backward[:-1])))
    starts = np.flatnonzero(~backward & np.concatenate(([True], backward[:-1])))
    before = np.searchsorted(starts, ends)
    return list(zip(starts[before[before > 0] - 1].tolist(), ends[before > 0].tolist(), strict=True))


@lru_cache  # one step is like another
def _twins(codes: bytes) -> tuple[tuple[int, int], ...]:
    """Where the stretch that ends some codes has run before: first and last (exclusive) of each twin, the latest
    first."""
    code, found = np.frombuffer(codes, np.int64), list[tuple[int, int]]()
    size = code.size
    if size < 2 * STRETCH:
        return ()
    windows = np.lib.stride_tricks.sliding_window_view(code[: size - STRETCH], STRETCH)
    ends, begun, own = np.flatnonzero((windows == code[-STRETCH:]).all(axis=1)) + STRETCH, size, 0
    for end in ends[ends <= size - STRETCH][::-1].tolist():
        most = min(end, own or size - end)
        alike = code[end - most : end][::-1] == code[size - most :][::-1]
        length = int(np.argmin(alike)) if not alike.all() else most
        least = STRETCH if own else 2 * STRETCH  # one twin makes others likely
        if end <= begun and length >= max(_SHARE * (own or size - end), least):
            own, begun = own or size - end, end - length
            found.append((begun, end))
    return tuple(found)
