"""Runs of small kernels that one stream runs one after another, and what they would take on several streams.

A stream runs its kernels in order, whether one needs the other or not. A trace shows no data: it cannot say which of
them depend on each other. A model says what would be won if they did not: kernels of times t_i that fill shares f_i of
the multiprocessors take, on n streams, max(sum(t) / n, sum(f (t - e)), max(t)), where e is the time that a kernel takes
to start and end, while others use its share. At best the pauses between them are spread over the streams as well, and
blocks share a multiprocessor. It is a model: of 600 kernels of 3 us, four streams won 64 %.
"""

from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.assumptions import machines
from timesink.knowledge.gpus import RESIDENT_THREADS
from timesink.measures.kernels.facts import NO_FAULT, kernel_facts, multiprocessors
from timesink.measures.timeline import Device
from timesink.model.arrays import BoolArray, Float64Array, Int64Array
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif import Selection

_LEAST_RUN: Final = 2  # one kernel has nothing to run beside


class OneStreamRuns(Record, eq=False):
    """Small kernels of one device in runs. `rows` of `device_ops` are ascending; `run` numbers the run of each.

    `length_ns`, and `turn_ns` with the pause until the next of its run; `fill` and `packed`: the share of the
    multiprocessors that the grid fills, with a multiprocessor to each block, and with as many blocks on one as threads
    allow.
    """

    device: Device
    rows: Int64Array
    run: Int64Array
    length_ns: Float64Array
    turn_ns: Float64Array
    fill: Float64Array
    packed: Float64Array

    def on_streams(self, count: int) -> Selection:
        """The kernels with the share of their time that would be left if each run were spread over so many streams."""
        usual = self._left(self.length_ns, self.fill, count)
        return Selection(
            self.device, {"small": self.rows}, usual, np.minimum(self._left(self.turn_ns, self.packed, count), usual)
        )

    def _left(self, taken_ns: Float64Array, fill: Float64Array, count: int) -> Float64Array:
        """What is left of each kernel's time where a run takes as long as all that is `taken_ns` of it by turns."""
        if not self.run.size:
            return fill
        runs = int(self.run.max()) + 1
        total, taken = np.bincount(self.run, self.length_ns, runs), np.bincount(self.run, taken_ns, runs)
        busy_ns = np.maximum(self.length_ns - machines.KERNEL_FLOOR_US.ns, 0.0)
        work = np.bincount(self.run, fill * busy_ns, runs)
        longest = np.zeros(runs)
        np.maximum.at(longest, self.run, self.length_ns)
        together = np.maximum.reduce((taken / count, work, longest))
        left = np.maximum(total - (taken - together), 0.0) / np.maximum(total, 1.0)
        return np.asarray(left[self.run], np.float64)


def one_stream_runs(trace: Trace, chosen: BoolArray | None = None) -> tuple[OneStreamRuns, ...]:
    """Per device whose multiprocessors and grids are known, the small kernels in runs; of those `chosen` (one flag per
    row of `device_ops`), where that is given."""
    facts, counts, ops = kernel_facts(trace), multiprocessors(trace), trace.get(DEVICE_OPS)
    devices = []
    for device in facts.devices:
        if device not in counts:
            continue
        kernels = facts.on(device)
        is_small = kernels.select(_small(counts[device])).to_series().to_numpy()
        if chosen is not None:
            is_small = is_small & chosen[kernels["row"].to_numpy()]
        run = _runs(kernels, is_small)
        at = np.flatnonzero(run >= 0)
        kernels = with_fill(kernels.select("row", "start_ns", "length", "blocks", "family")[at], ops, counts[device])
        columns = (kernels[name].to_numpy() for name in ("length", "fill", "packed"))
        length, fill, packed = (np.asarray(column, np.float64) for column in columns)
        turn, within = length.copy(), run[at][1:] == run[at][:-1]
        turn[:-1][within] = np.diff(kernels["start_ns"].to_numpy())[within]
        devices.append(OneStreamRuns(device, kernels["row"].to_numpy(), run[at], length, turn, fill, packed))
    return tuple(devices)


def why_no_runs(trace: Trace, chosen: BoolArray | None = None) -> str:
    """Why `one_stream_runs` is empty, of the kernels `chosen` too."""
    facts, counts, ops = kernel_facts(trace), multiprocessors(trace), trace.get(DEVICE_OPS)
    kernels = facts.frame if chosen is None else facts.frame.filter(pl.Series(chosen[facts.frame["row"].to_numpy()]))
    if (ops["kind"] == "graph").any() and not kernels.height:
        return "graphs were recorded whole: nsys profile --cuda-graph-trace=node records their kernels"
    if not kernels.height:
        return "nothing in these steps matches"
    if not counts or kernels["blocks"].null_count() == kernels.height:
        return "no grid, or no count of SMs, is recorded"
    small = kernels.filter(_small(min(counts.values()))).height
    fill = f"the grid of each of {kernels.height:,} kernels fills half of the GPU or more"
    return "no two small kernels follow each other on one stream" if small else fill


def with_fill(kernels: pl.DataFrame, ops: pl.DataFrame, sms: int) -> pl.DataFrame:
    """With fill, packed, and small: neither a collective nor a delay, with a known grid of less than half as many
    blocks as there are multiprocessors."""
    sizes = ops.select("block_x", "block_y", "block_z")[kernels["row"].to_numpy()]
    threads = sizes.select(pl.col("block_x") * pl.col("block_y") * pl.col("block_z")).to_series()
    a_multiprocessor = (RESIDENT_THREADS // threads.fill_null(RESIDENT_THREADS).clip(1, RESIDENT_THREADS)).alias("held")
    blocks = pl.col("blocks").fill_null(sms)
    return kernels.with_columns(a_multiprocessor).with_columns(
        (blocks / sms).clip(0.0, 1.0).alias("fill"),
        (blocks / (sms * pl.col("held"))).clip(0.0, 1.0).alias("packed"),
        small=_small(sms),
    )


def _small(sms: int) -> pl.Expr:
    return (2 * pl.col("blocks").fill_null(sms) < sms) & ~pl.col("family").is_in(NO_FAULT)


@remembered
def fills(trace: Trace) -> tuple[Float64Array, Float64Array]:
    """For each row of `device_ops` the share of the multiprocessors that its grid fills, with one block on each and
    with as many as threads allow; 1 where that is not known, or where it is to leave others idle."""
    facts, counts = kernel_facts(trace), multiprocessors(trace)
    size = int(facts.frame["row"].max() or 0) + 1 if facts.frame.height else 0  # type: ignore[arg-type]
    one_each, packed = np.ones(size), np.ones(size)
    for device in facts.devices:
        if device in counts:
            known = facts.on(device).filter(pl.col("blocks").is_not_null() & ~pl.col("family").is_in(NO_FAULT))
            filled, row = with_fill(known, trace.get(DEVICE_OPS), counts[device]), known["row"].to_numpy()
            one_each[row], packed[row] = filled["fill"].to_numpy(), filled["packed"].to_numpy()
    return one_each, packed


def _runs(kernels: pl.DataFrame, is_small: BoolArray) -> Int64Array:
    """The number of each kernel's run, -1 for those in none. Rows are in order of start.

    A run goes on while the next kernel of the device is small, on the same stream, and begins soon after the end:

        kernel   0      1      2      3      4
        small    yes    yes    no     yes    yes
        stream   7      7      7      7      8
        run      0      0      -1     -1     -1
    """
    stream, start, length = (kernels[name].to_numpy() for name in ("stream", "start_ns", "length"))
    if not stream.size:
        return np.empty(0, np.int64)
    gap = np.diff(start) - length[:-1]
    follows = is_small[1:] & is_small[:-1] & (stream[1:] == stream[:-1]) & (gap >= 0) & (gap <= assumed.GAP_MOST_US.ns)
    number = np.append(np.int32(0), np.cumsum(~follows, dtype=np.int32))
    size = np.bincount(number)
    kept = is_small & (size[number] >= _LEAST_RUN)
    run = np.full(stream.size, -1, np.int64)
    run[kept] = np.cumsum(np.diff(number[kept], prepend=-1) != 0) - 1
    return run
