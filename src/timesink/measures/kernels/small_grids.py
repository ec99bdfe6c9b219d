"""Kernels that leave multiprocessors idle: grids that are too small, and streams that take turns.

A block runs on one multiprocessor (SM). A kernel with fewer blocks than SMs that spread over all of them would take
blocks / SMs of its time at best. Kernels that run at the same time as others are left out.

Kernels that follow each other on different streams could have run at once. What that gains depends on the room: kernels
a and b, which fill shares f_a and f_b of the SMs, take at least max(t_a, t_b, f_a t_a + f_b t_b) together (no kernel
takes less than its own time, and no SM does more than its own). A kernel whose grid fills the device gains nothing.
Such kernels are no small grids here: their remedy is another. Kernels that are over almost before they have begun are
counted too: how many a step has, and how busy they keep the device.
"""

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import kernels as assumed
from timesink.knowledge.assumptions import machines
from timesink.knowledge.calls import STREAM_WAIT
from timesink.knowledge.gpus import ISSUES_OF_CYCLE, RESIDENT_THREADS, THREADS_HELD, lanes_of
from timesink.knowledge.kernel_traits import LIBRARY_LAUNCH, MIGRATION
from timesink.measures.kernels.facts import NO_FAULT, kernel_facts, multiprocessors, of_each_device, rows_of, rows_on
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import period_ns, share_of_step, step_windows
from timesink.measures.timeline import Device, device_names, device_timeline, of_device
from timesink.measures.timeline.copies import awaited_pages
from timesink.model.arrays import Float64Array, Int64Array
from timesink.model.intervals import Intervals, begun_in
from timesink.model.names import matches
from timesink.model.schema import picked
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, EVENT_WAITS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif import Selection


class SerializedStreams(Record, eq=False):
    """One device whose streams take turns.

    `kernels` are those that follow one of another stream, with what they would keep if both ran at once; `turns`
    is how often per step the next kernel is on another stream, `waits` how often per step a stream is made to wait for
    an event; `streams` are the numbers of those streams.
    """

    device: Device
    kernels: Selection
    turns: float
    waits: float
    streams: tuple[int, ...]


@of_each_device(kernel_facts)
def serialized_streams(trace: Trace, device: Device, kernels: pl.DataFrame) -> SerializedStreams | None:
    """Devices on which kernels (communication aside) of more than one stream ran, one after the other."""
    kernels = picked(kernels, ~kernels["family"].is_in(NO_FAULT))
    kernels = kernels.with_columns(_threads(trace, kernels).fill_null(RESIDENT_THREADS).alias("threads"))
    first, second = _turns(kernels)
    if not first.size:
        return None
    count = max(steps(trace).frame.filter(pl.col("rank") == device[0]).height, 1)
    streams = np.unique(kernels["stream"].to_numpy()[np.concatenate((first, second))])
    serial = _serial(device, kernels, first, second, multiprocessors(trace).get(device))
    turns = int(np.count_nonzero(np.diff(kernels["stream"].to_numpy())))
    return SerializedStreams(device, serial, turns / count, _waits(trace, device) / count, tuple(streams.tolist()))


@remembered
def block_threads(trace: Trace) -> pl.Series:
    """The threads of a block of every row of `device_ops`; null where not recorded."""
    size = pl.col("block_x").cast(pl.Int64) * pl.col("block_y") * pl.col("block_z")
    return trace.get(DEVICE_OPS).select(size).to_series()


def _threads(trace: Trace, kernels: pl.DataFrame) -> pl.Series:
    """The same of some kernels."""
    return block_threads(trace)[kernels["row"].to_numpy()]


def _turns(kernels: pl.DataFrame) -> tuple[Int64Array, Int64Array]:
    """Disjoint pairs of kernels (positions in the frame) that follow each other on different streams without overlap.

    Of a run of turns 0-1, 1-2, 2-3 every second one is a pair, so that no kernel is in two:

        position  0  1  2  3  4  5
        stream    7  8  7  8  8  7
        turn      0  1  2     4         turns begin at these positions; 0 to 2 are one run, 4 another
        pairs     0-1   2-3   4-5
    """
    stream, start, length = (kernels[name].to_numpy() for name in ("stream", "start_ns", "length"))
    change = (stream[1:] != stream[:-1]) & (np.diff(start) >= length[:-1])
    begins = np.flatnonzero(change)
    if not begins.size:
        return begins, begins
    run = np.concatenate(([0], np.cumsum(np.diff(begins) > 1)))
    within_run = np.arange(begins.size) - np.searchsorted(run, run, side="left")
    first = begins[within_run % 2 == 0]
    return first, first + 1


def _serial(device: Device, kernels: pl.DataFrame, first: Int64Array, second: Int64Array, sms: int | None) -> Selection:
    """What the second kernel of each pair would keep if it ran at the same time as the first on that many SMs.

    Usually a block occupies a whole SM. At best as many blocks as threads allow share an SM.
    """
    length = kernels["length"].to_numpy().astype(np.float64)
    blocks = kernels["blocks"].fill_null(np.iinfo(np.int32).max).to_numpy()
    sm_count = float(sms or 1)
    fill = np.minimum(blocks / sm_count, 1.0)
    packed = np.minimum(blocks / (sm_count * np.maximum(RESIDENT_THREADS // np.maximum(kernels["threads"], 1), 1)), 1.0)
    order = np.argsort(kernels["row"].to_numpy()[second])
    first, second = first[order], second[order]
    expected = _gain(length, fill, first, second) if sms else np.zeros(first.size)
    hopeful = np.maximum(_gain(length, packed, first, second) if sms else expected, expected)
    size = np.maximum(length[second], 1.0)
    usual, best = (1.0 - np.minimum(gain / size, 1.0) for gain in (expected, hopeful))
    return Selection(device, {"second": kernels["row"].to_numpy()[second]}, usual, best)


def _gain(length: Float64Array, fill: Float64Array, first: Int64Array, second: Int64Array) -> Float64Array:
    """What pairs gain by running at once, in ns: t_a + t_b - max(t_a, t_b, f_a t_a + f_b t_b).

    t_a  f_a   t_b  f_b    together                 gain
    100  0.2    60  0.5    max(100, 60, 50) = 100     60
    100  0.8    60  0.5    max(100, 60, 110) = 110    50
    100  1.0    60  1.0    max(100, 60, 160) = 160     0
    """
    a, b = length[first], length[second]
    together = np.maximum(np.maximum(a, b), fill[first] * a + fill[second] * b)
    return np.asarray(a + b - together, np.float64)


def _waits(trace: Trace, device: Device) -> int:
    """How often the rank's streams were made to wait for events, by the better of two records."""
    edges = trace.get(EVENT_WAITS).filter(pl.col("rank") == device[0]).height
    calls = trace.get(API_CALLS).filter(pl.col("rank") == device[0])
    return max(edges, int(matches(calls["name"], STREAM_WAIT).sum()))


@of_each_device(kernel_facts)
def unused_lanes(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection:
    """Per device: kernels whose blocks are no whole warps, those of `less` than one warp and those of `more`; without
    those of libraries, whose blocks no program chooses.

    A warp executes all of its lanes. `usual` is the share of them that is used; so is `best` of blocks of several
    warps, and of less than one warp the share of a usual block, which leaves no scheduler without work. Where so few
    blocks run that their multiprocessors have less than a warp for each scheduler, `usual` is less by that: 16 threads
    in each of 10 blocks on 28 multiprocessors use 1/2 of the lanes of 1/4 of the schedulers.
    """
    kernels = kernels.filter((pl.col("length") > assumed.TINY_US.ns) & ~pl.col("family").is_in(NO_FAULT))
    threads, warp = _threads(trace, kernels).fill_null(0), lanes_of(device_names(trace).get(device, ""))
    own = ~matches(trace.get(DEVICE_OPS)["name"][kernels["row"].to_numpy()], LIBRARY_LAUNCH)
    part = ((threads % warp != 0) & own).to_numpy()
    used, row = threads.to_numpy()[part], rows_of(kernels)[part]
    share = used / (-(-used // warp) * warp)
    less = used < warp
    best = np.where(less, used / assumed.USUAL_BLOCK.value, share)
    blocks = kernels["blocks"].fill_null(RESIDENT_THREADS).to_numpy()[part] / multiprocessors(trace).get(device, 1)
    fed = np.where(less, np.minimum(np.ceil(blocks) / ISSUES_OF_CYCLE, 1.0), 1.0)
    return Selection(device, {"less": row[less], "more": row[~less]}, share * fed, best)


@of_each_device(kernel_facts)
def small_grids(trace: Trace, device: Device, kernels: pl.DataFrame) -> Selection | None:
    """Per device whose multiprocessors and grids are known: kernels with less than one block for every second SM.

    The `paged` among them wait for pages of unified memory, which more blocks do not bring sooner: until the first
    comes and while pages move to them nothing is won, and how long they wait beside that nobody recorded.
    """
    kernels, sms = kernels.select("row", "start_ns", "length", "family", "blocks"), multiprocessors(trace).get(device)
    if sms is None or not kernels["blocks"].count():
        return None
    serial = rows_on(device, (streams.kernels for streams in serialized_streams(trace)))
    whole = _threads(trace, kernels).fill_null(RESIDENT_THREADS) >= lanes_of(device_names(trace).get(device, ""))
    small = kernels.with_columns(_overlapped().alias("overlapped")).filter(
        (2 * pl.col("blocks") < sms)
        & (pl.col("length") > assumed.TINY_US.ns)
        & ~pl.col("family").is_in(NO_FAULT)
        & ~pl.col("row").is_in(pl.Series(serial).implode())
        & whole
        & ~pl.col("overlapped")
    )
    rows, length_ns = small["row"].to_numpy(), small["length"].to_numpy()
    moving_ns = _migrating(trace, device).covered_ns(small["start_ns"], small["start_ns"] + small["length"])
    best = np.maximum(small["blocks"].to_numpy() / sms, moving_ns / length_ns)
    return Selection(device, {"small": rows[moving_ns == 0], "paged": rows[moving_ns > 0]}, best=best)


def _migrating(trace: Trace, device: Device) -> Intervals:
    """When pages of unified memory move to or from a device, or its kernels wait for their first."""
    ops = trace[DEVICE_OPS]
    moves = ops.filter(matches(ops["name"], MIGRATION))  # few of many
    return Intervals.of(moves.filter(of_device(device))) | awaited_pages(trace, device, only_first=True)


class Fill(Record):
    """How one launch fills its GPU: `blocks` of so many `threads` each, on `sms` multiprocessors that together hold
    `places` threads."""

    blocks: int
    threads: int
    sms: int
    places: int

    @property
    def ratio(self) -> float:
        """Threads over places; more than 1 where blocks come in several waves."""
        return self.blocks * self.threads / self.places

    @property
    def is_uneven(self) -> bool:
        """Whether some multiprocessors have a block more than others."""
        return self.blocks % self.sms != 0


def fill_of(trace: Trace, name: str) -> Fill | None:
    """How the longest launch of the kernel of that name fills its GPU; None where that was not recorded."""
    frame = kernel_facts(trace).frame
    is_named = trace.get(DEVICE_OPS)["name"][frame["row"]].cast(pl.String) == name
    own = frame.filter(is_named & frame["blocks"].is_not_null())
    if not own.height:
        return None
    row, rank, device, blocks = own.sort("length").select("row", "rank", "device", "blocks").row(-1)
    devices = trace.get(DEVICES).filter(of_device((rank, device)))
    held = THREADS_HELD.get(devices.select("compute_major", "compute_minor").row(0)) if devices.height else None
    sms, threads = multiprocessors(trace).get((rank, device)), block_threads(trace)[row]
    return Fill(blocks, threads, sms, sms * held) if held and sms and threads else None


@remembered
def grids_known(trace: Trace) -> bool:
    """Whether any kernel's grid and its device's multiprocessors were recorded."""
    facts, counts = kernel_facts(trace), multiprocessors(trace)
    return any(device in counts and facts.on(device)["blocks"].count() for device in facts.devices)


@remembered
def blocks_known(trace: Trace) -> bool:
    """Whether any kernel's block was recorded, where there are kernels."""
    ops = trace.get(DEVICE_OPS)
    return ops["block_x"].count() > 0 or not (ops["kind"] == "kernel").any()


def _overlapped() -> pl.Expr:
    """Kernels that run at the same time as another for more than half of theirs; rows are in order of start."""
    end = pl.col("start_ns") + pl.col("length")
    before, after = end.cum_max().shift(1) - pl.col("start_ns"), end - pl.col("start_ns").shift(-1)
    return (2 * pl.max_horizontal(before, after) > pl.col("length")).fill_null(False)


class TinyKernels(Record, eq=False):
    """Kernels of one device that are shorter than `kernels.TINY_US`, collectives aside.

    `best` of the selection is the share of its time that a kernel has beyond the least time of any. `per_step` of the
    `of_per_step` kernels of a step are tiny; `busy_ratio` is the share of the step in which the device works.
    """

    kernels: Selection
    per_step: float
    of_per_step: float
    busy_ratio: float


@of_each_device(kernel_facts)
def tiny_kernels(trace: Trace, device: Device, kernels: pl.DataFrame) -> TinyKernels | None:
    """Per device with any."""
    kernels = kernels.select("row", "start_ns", "length", "family")
    kernels = picked(kernels, kernels["family"] != "communication")
    tiny = kernels.filter(pl.col("length") < assumed.TINY_US.ns)
    if not tiny.height or not period_ns(trace, device):
        return None
    windows = step_windows(trace, device)
    beyond = 1.0 - np.minimum(machines.KERNEL_FLOOR_US.ns / np.maximum(tiny["length"].to_numpy(), 1), 1.0)
    return TinyKernels(
        kernels=Selection(device, {"tiny": tiny["row"].to_numpy()}, best=beyond),
        per_step=float(np.mean(begun_in(tiny["start_ns"].to_numpy(), *windows))),
        of_per_step=float(np.mean(begun_in(kernels["start_ns"].to_numpy(), *windows))),
        busy_ratio=share_of_step(trace, device, device_timeline(trace)[device].busy),
    )
