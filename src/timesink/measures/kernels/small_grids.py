"""Kernels with fewer blocks than the device has multiprocessors: the others have nothing to do meanwhile.

A block runs on one multiprocessor. Kernels that run beside others are left out, and so are those of streams in
lockstep, whose remedy is another. A kernel that spread over all multiprocessors would take blocks / SMs
of its time at best; half of that gain is what is expected, since the same work is cut in more pieces.

Streams that take turns: kernels of one wait for those of the other, though both would find room on the device.

Two kernels that follow each other on different streams could have run at once. How much that wins depends on the room:
kernels a and b, which fill shares f_a and f_b of the multiprocessors, take at least
max(t_a, t_b, f_a t_a + f_b t_b) together. A kernel whose grid fills the device leaves nothing to win.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.kernels.facts import Shortened, all_rows, kernel_facts, multiprocessors
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, EVENT_WAITS
from timesink.model.trace import Trace, remembered

_WAIT_CALL: Final = r"^(cuda|cu|hip)StreamWaitEvent"
_RESIDENT_THREADS: Final = 2048  # per multiprocessor, on compute capability 8.0 and 9.0
_CAUTIOUS_GAIN: Final = 0.4  # of the gain, where both kernels then share the memory's bandwidth


@dataclass(frozen=True, slots=True, eq=False)
class SerializedStreams:
    """One device with kernels on several streams. `serial` are the kernels that follow one of another stream, with what
    they would keep beside it; `turns` is how often per step the next kernel is on another stream, `waits` how often per
    step a stream is made to wait for an event; `streams` are those that take turns."""

    device: Device
    serial: Shortened
    turns: float
    waits: float
    streams: tuple[int, ...]


@remembered
def serialized_streams(trace: Trace) -> tuple[SerializedStreams, ...]:
    """Devices on which kernels (communication aside) of more than one stream ran, one after the other."""
    facts, counts = kernel_facts(trace), multiprocessors(trace)
    ops = trace.get(DEVICE_OPS)
    found = []
    for device in facts.devices:
        mine = facts.on(device).filter(pl.col("family") != "communication")
        sizes = ops.select("block_x", "block_y", "block_z")[mine["row"].to_numpy()]
        threads = sizes.select(pl.col("block_x") * pl.col("block_y") * pl.col("block_z"))
        mine = mine.with_columns(threads.to_series().fill_null(_RESIDENT_THREADS).alias("threads"))
        first, second = _turns(mine)
        if not first.size:
            continue
        count = max(steps(trace).frame.filter(pl.col("rank") == device[0]).height, 1)
        streams = np.unique(mine["stream"].to_numpy()[np.concatenate((first, second))])
        serial = _serial(device, mine, first, second, counts.get(device))
        turns = int(np.count_nonzero(np.diff(mine["stream"].to_numpy())))
        found.append(
            SerializedStreams(
                device, serial, turns / count, _waits(trace, device) / count, tuple(int(s) for s in streams)
            )
        )
    return tuple(found)


def _turns(mine: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """Disjoint pairs of kernels (places in the frame) that follow each other on different streams without overlap."""
    stream, start, end = (mine[name].to_numpy() for name in ("stream", "start_ns", "end_ns"))
    change = (stream[1:] != stream[:-1]) & (start[1:] >= end[:-1])
    begins = np.flatnonzero(change)
    if not begins.size:
        return begins, begins
    # In a run of turns 0-1, 1-2, 2-3 every second one is a pair.
    run = np.concatenate(([0], np.cumsum(np.diff(begins) > 1)))
    place = np.arange(begins.size) - np.searchsorted(run, run, side="left")
    pairs = begins[place % 2 == 0]
    return pairs, pairs + 1


def _serial(device: Device, mine: pl.DataFrame, first: Int64Array, second: Int64Array, count: int | None) -> Shortened:
    """What the second kernel of each pair would keep beside the first."""
    length = mine["length"].to_numpy().astype(np.float64)
    blocks = mine["blocks"].fill_null(np.iinfo(np.int32).max).to_numpy()
    sms = float(count or 1)
    fill = np.minimum(blocks / sms, 1.0)
    packed = np.minimum(blocks / (sms * np.maximum(_RESIDENT_THREADS // np.maximum(mine["threads"], 1), 1)), 1.0)
    order = np.argsort(mine["row"].to_numpy()[second])
    first, second = first[order], second[order]
    expected = _gain(length, fill, first, second) if count else np.zeros(first.size)
    hopeful = np.maximum(_gain(length, packed, first, second) if count else expected, expected)
    size = np.maximum(length[second], 1.0)
    keep = tuple(1.0 - np.minimum(gain / size, 1.0) for gain in (_CAUTIOUS_GAIN * expected, expected, hopeful))
    return Shortened(device, mine["row"].to_numpy()[second], (keep[0], keep[1], keep[2]))


def _gain(length: Float64Array, fill: Float64Array, first: Int64Array, second: Int64Array) -> Float64Array:
    """What pairs win by running at once."""
    a, b = length[first], length[second]
    together = np.maximum(np.maximum(a, b), fill[first] * a + fill[second] * b)
    return np.asarray(a + b - together, np.float64)


def _waits(trace: Trace, device: Device) -> int:
    """How often the rank's streams were made to wait for events, by the better of two records."""
    edges = trace.get(EVENT_WAITS).filter(pl.col("rank") == device[0]).height
    calls = trace.get(API_CALLS).filter(pl.col("rank") == device[0])
    return max(edges, int(matches(calls["name"], _WAIT_CALL).sum()))


# Shorter kernels are bound by latency, whatever their grid.
SHORT_NS: Final = 15_000
_NO_GRID_OF_ITS_OWN: Final = ("communication",)


@remembered
def small_grids(trace: Trace) -> tuple[Shortened, ...]:
    """Per device whose multiprocessors and grids are known: kernels with less than one block for every second SM."""
    facts, counts = kernel_facts(trace), multiprocessors(trace)
    serial = all_rows(part.serial for part in serialized_streams(trace))
    found = []
    for device in facts.devices:
        mine = facts.on(device).with_columns(_overlapped().alias("overlapped")).filter(pl.col("blocks").is_not_null())
        if device not in counts or not mine.height:
            continue
        small = mine.filter(
            (2 * pl.col("blocks") < counts[device])
            & (pl.col("length") > SHORT_NS)
            & ~pl.col("family").is_in(_NO_GRID_OF_ITS_OWN)
            & ~pl.col("row").is_in(pl.Series(serial).implode())
            & ~pl.col("overlapped")
        )
        best = small["blocks"].to_numpy() / counts[device]
        expected = np.minimum(2.0 * best, 1.0)
        found.append(Shortened(device, small["row"].to_numpy(), ((1.0 + expected) / 2.0, expected, best)))
    return tuple(found)


@remembered
def grids_known(trace: Trace) -> bool:
    """Whether any kernel's grid and its device's multiprocessors were recorded."""
    facts, counts = kernel_facts(trace), multiprocessors(trace)
    return any(device in counts and facts.on(device)["blocks"].count() for device in facts.devices)


def _overlapped() -> pl.Expr:
    """Kernels that run beside another for more than half of their time; rows are in order of start."""
    before = pl.col("end_ns").cum_max().shift(1) - pl.col("start_ns")
    after = pl.col("end_ns") - pl.col("start_ns").shift(-1)
    return (2 * pl.max_horizontal(before, after) > pl.col("length")).fill_null(False)
