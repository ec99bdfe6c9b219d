"""Small work again and again within a step: tensors that follow from their sizes alone and are built anew (masks,
positions) or made on the host and sent, and the same few operations on one tensor after another, as a Python loop over
parameters runs them.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import polars as pl

from timesink._native import places
from timesink.knowledge import kernel_traits
from timesink.knowledge.kernel_traits import FUSED_OPTIMIZER, WRAPPER
from timesink.measures.habits.extra_work import PLAIN, ExtraWork, extra_work, launched
from timesink.measures.idle.sends import sent_again
from timesink.measures.kernels.facts import all_rows, kernel_facts
from timesink.measures.kernels.fusion import unfused_attention
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import Intervals
from timesink.model.names import mapped, matches
from timesink.model.nesting import thread_slices
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered

_LEAST: Final = 3  # times a step: once for a mask and once for its twin in a loss is no habit


@remembered
def rebuilt_constants(trace: Trace) -> tuple[tuple[ExtraWork, ...], int]:
    """Per device all but the first building of each constant in a step, and how often the one that is built most often
    is built in a step: triangles cut from memory just filled, with their cast, and numbers counted up. What
    stands between the products of attention written out goes with it, and is not counted here."""
    frame = launched(trace).frame
    names = trace.get(DEVICE_OPS)["name"][frame["row"]]
    triangle, counted, filled = (
        matches(names, pattern).to_numpy()
        for pattern in (kernel_traits.TRIANGLE, kernel_traits.COUNTED, kernel_traits.FILLS)
    )
    masks = triangle & np.concatenate(([False], filled[:-1]))
    built = np.flatnonzero(masks | counted)
    if not built.size:
        return (), 0
    cast = kernel_facts(trace).at(frame["row"], "casts")["casts"].fill_null(False).to_numpy()
    repeated, most = _repeated(trace, frame, built)
    chosen = np.zeros(frame.height + 1, np.bool_)
    chosen[repeated] = True
    of_mask = repeated[masks[repeated]]
    chosen[of_mask - 1] = True
    chosen[of_mask + 1] |= np.append(cast, False)[of_mask + 1]
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    flags[frame["row"].to_numpy()[chosen[:-1]]] = True
    flags[all_rows(unfused_attention(trace))] = False
    return extra_work(trace, flags), most


@remembered
def sent_constants(trace: Trace) -> tuple[tuple[ExtraWork, ...], int]:
    """Per device all but the first sending of each tensor of one size in a step, with the host's time in which it is
    made, and how often the one that is sent most often is sent in a step."""
    sent = sent_again(trace).filter(~pl.col("is_first"))
    if not sent.height:
        return (), 0
    made = sent.select("process", "thread", "before_ns", "start_ns").partition_by("process", "thread", as_dict=True)
    host = {key: Intervals.union_of(*part.select("before_ns", "start_ns")) for key, part in made.items()}
    flags = np.isin(launch_links(trace).call, sent["call"].to_numpy())
    return extra_work(trace, flags, host), int(sent["times"].max() or 0)  # type: ignore[arg-type]


def _repeated(trace: Trace, frame: pl.DataFrame, built: Int64Array) -> tuple[Int64Array, int]:
    """Of these places of `frame`, those that were built before in their step, where that is often; and how often."""
    ops = trace.get(DEVICE_OPS)
    where = ops.select("rank", "device", "start_ns")[frame["row"].to_numpy()[built]]
    step = np.full(built.size, -1, np.int64)
    for device in device_timeline(trace).by_device:
        mine = ((where["rank"] == device[0]) & (where["device"] == device[1])).to_numpy()
        borders = np.unique(np.concatenate(step_windows(trace, device)))
        step[mine] = np.searchsorted(borders, where["start_ns"].to_numpy()[mine], side="right")
    turns = where.select("rank", "device", at=pl.Series(built), code=frame["code"][built], step=pl.Series(step))
    group = ["rank", "device", "step", "code"]
    counted = turns.with_columns(pl.len().over(group).alias("times"), pl.int_range(pl.len()).over(group).alias("turn"))
    again = counted.filter(pl.col("times") >= _LEAST, pl.col("turn") > 0)
    return again["at"].to_numpy(), int(again["times"].max() or 0)  # type: ignore[arg-type]


_OPERATIONS: Final = range(1, 7)  # kernels for one tensor: a norm takes three, an optimizer's step up to a dozen
_REPEATS: Final = 16  # tensors in a row: a loop over fewer costs little, and may be one over layers
_SIZES: Final = 2  # parameters of a model have several sizes, steps of a scan or of a chain have one
_SHOWN: Final = 60  # characters of a kernel's name that tell its operation


@remembered
def parameter_loops(trace: Trace) -> tuple[ExtraWork, ...]:
    """Stretches of plain passes that repeat with a period, over tensors of several sizes, without a wait in between,
    per device; the optimizer's own kernels are left out."""
    order = launched(trace)
    frame = order.frame.hstack(kernel_facts(trace).at(order.frame["row"], "optimizer", "fused", "casts"))
    names = trace.get(DEVICE_OPS)["name"][frame["row"]]
    short = mapped(names, lambda some: some.str.replace_all(WRAPPER, "").str.slice(0, _SHOWN).rank("dense"), pl.Int64)
    eager = pl.col("family").is_in(list(PLAIN)) & (pl.col("family") != "foreach") & pl.col("fused").is_null()
    plain = frame.select(eager & ~pl.col("optimizer")).to_series().to_numpy()
    plain = plain & ~matches(names, FUSED_OPTIMIZER).to_numpy()
    for rank, process, thread in order.of_backward:
        of_thread = (pl.col("rank") == rank) & (pl.col("process") == process) & (pl.col("thread") == thread)
        plain = plain & ~frame.select(of_thread).to_series().to_numpy()
    flags = np.zeros(trace.get(DEVICE_OPS).height, np.bool_)
    row, kind, code = frame["row"].to_numpy(), short.to_numpy(), frame["code"].to_numpy()
    casts, fills = frame["casts"].fill_null(False).to_numpy(), (frame["family"] == "fill").to_numpy()
    for first, last in _stretches(plain, _breaks(trace, frame)):
        for begin, end in _loops(kind[first:last], code[first:last], fills[first:last]):
            if casts[first + begin : first + end].all():
                continue  # weights cast one after another: `dtype-conversion` speaks of them
            flags[row[first + begin : first + end]] = True
    return extra_work(trace, flags)


def _breaks(trace: Trace, frame: pl.DataFrame) -> BoolArray:
    """Before which launches the thread changes, or has waited for the device."""
    waits = synchronisations(trace).calls.select("rank", "process", "thread", "start_ns").sort(pl.all())
    waited = {key: waits["start_ns"][first:last].to_numpy() for key, first, last in thread_slices(waits)}
    launched_ns, breaks = frame["launched_ns"].to_numpy(), np.zeros(frame.height, np.bool_)
    for key, first, last in thread_slices(frame):
        breaks[first] = True
        if key in waited:
            breaks[first + 1 : last] = np.diff(places(waited[key], launched_ns[first:last], True)) != 0
    return breaks


def _stretches(plain: BoolArray, breaks: BoolArray) -> Iterator[tuple[int, int]]:
    """First and last (exclusive) of each stretch of plain kernels that nothing breaks and that could hold a loop."""
    inside = np.concatenate((plain, [False]))
    starts = np.flatnonzero(plain & (breaks | ~np.concatenate(([False], plain[:-1]))))
    ends = np.flatnonzero(plain & (np.concatenate((breaks[1:], [True])) | ~inside[1:])) + 1
    yield from ((int(a), int(b)) for a, b in zip(starts, ends, strict=True) if b - a >= _REPEATS)


def _loops(kind: Int64Array, code: Int64Array, fills: BoolArray) -> list[tuple[int, int]]:
    """Where `kind` repeats with a period: from the first kernel to the last (exclusive) of each such loop. Fills may be
    of one size, as when gradients are zeroed: they read nothing, so they are no steps of a scan."""
    found: list[tuple[int, int]] = []
    for period in _OPERATIONS:
        same = np.concatenate(([False], kind[period:] == kind[:-period], [False])).astype(np.int8)
        turns = np.diff(same)
        for begin, end in zip(np.flatnonzero(turns == 1), np.flatnonzero(turns == -1), strict=True):
            stop = int(end) + period
            if stop - begin < _REPEATS * period:
                continue
            sizes = np.unique(code[begin:stop]).size / np.unique(kind[begin:stop]).size
            free = all(stop <= a or begin >= b for a, b in found)
            if free and (sizes >= _SIZES or fills[begin:stop].all()):
                found.append((int(begin), stop))
    return sorted(found)
