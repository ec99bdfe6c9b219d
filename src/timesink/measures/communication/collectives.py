"""Patterns of collectives: many small ones, exchanges repeated within a step, units, objects, ones the host waits for.

Small collectives cost latency rather than bandwidth. Repeated exchanges are gradients that a step exchanges once per
forward pass instead of once. An awaited collective leaves the GPU idle: a blocking call waits until it has ended.

Units are collectives that the host launches between the products of a model. FSDP gathers the parameters of a unit
before its first product and scatters their gradients after its last one. Each unit costs the host a tenth of a
millisecond or more, however small it is: hooks, streams, copies into and out of one buffer, the collective's own
launch. Where units are single products, the device waits for them.

A stretch is the host's time from one launch of a product (or attention, or convolution) to the next; what a
stretch with a collective in it takes beyond the usual stretch without one is what its unit costs.

    launches of a thread     product  product  gather  product  product  scatter  product
    stretch                       10              90        12               80             us
    beyond the usual 11            -              79         -               69

Objects are exchanged pickled by `all_gather_object`, `gather_object` and `broadcast_object_list` of PyTorch. Each sends
the length of the pickle, one whole number of 8 bytes, and then its bytes; either is read by the host, which waits for
the device both times.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.kernels import PRODUCTS
from timesink.knowledge.ranges import DDP_FORWARD
from timesink.measures.communication import may_communicate, without_contention
from timesink.measures.communication.waits import collective_waits
from timesink.measures.idle.before_launches import launching_time
from timesink.measures.idle.blamed_time import python_time
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.ranks.job import OP_KEY, job, launches_of
from timesink.measures.steps import steps
from timesink.measures.steps.per_step import begun_per_step, step_windows
from timesink.measures.timeline import Device, device_timeline, of_device
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.arrays import Int64Array, median
from timesink.model.intervals import Intervals, begun_in, intervals_by
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_US
from timesink.whatif import Selection


class SmallPart(Record, eq=False):
    """One GPU's collectives below a size.

    A step has `per_step` of them, of median transfer `p50_ns`; `exposed` is where no computation hides them.
    `launch_step_ns` is the host time of the calls that launch them, per step.
    """

    per_step: float
    p50_ns: float
    exposed: Intervals
    launch_step_ns: float


def small_part(trace: Trace, calls: pl.DataFrame, device: Device, below_bytes: int) -> SmallPart:
    """The `calls` of `transfers` of one GPU with fewer than `below_bytes` bytes."""
    small = calls.filter(rank=device[0], device=device[1]).filter(pl.col("bytes") < below_bytes)
    start, end = small["start_ns"].to_numpy(), small["end_ns"].to_numpy()
    exposed = device_timeline(trace)[device].exposed_communication & Intervals.union_of(start, end)
    inside = begun_in(start, *step_windows(trace, device))
    launch_ns = small["launch_length_ns"].drop_nulls().to_numpy()
    per_step = float(inside.mean()) if inside.size else 0.0
    return SmallPart(
        per_step=per_step,
        p50_ns=median(end - start) if small.height else 0.0,
        exposed=exposed,
        launch_step_ns=(float(launch_ns.mean()) if launch_ns.size else 0.0) * per_step,
    )


def transfers(trace: Trace) -> pl.DataFrame:
    """The collectives and messages of a trace: rank, device, bytes, start_ns (of the transfer: after the last arrival,
    where that is known), end_ns, launch_length_ns (of the call that launched it)."""
    waits = collective_waits(trace)
    known = pl.concat([some.select(*OP_KEY, "wait_ns") for some in (waits.calls, waits.pairs)])
    waited = known.unique(OP_KEY, keep="first", maintain_order=True)
    calls = waits.job.calls.join(waited, on=OP_KEY, how="left", maintain_order="left", nulls_equal=True)
    transfer_start = pl.col("start_ns") + pl.col("wait_ns").fill_null(0)
    calls = calls.join(launches_of(trace, calls), on=OP_KEY, how="left", maintain_order="left", nulls_equal=True)
    return calls.select("rank", "device", "bytes", transfer_start.alias("start_ns"), "end_ns", "launch_length_ns")


class RepeatedExchange(Record, eq=False):
    """One GPU whose steady steps all exchange `times` times the same list of sizes, `step_bytes` in all.

    `early`: the exchanges before the last of their step. `exposed`: where those run with no computation beside them.
    `slowed`: the kernels beside them, with the share of its time that each `usually` takes alone.
    """

    device: Device
    times: int
    step_bytes: float
    early: Selection
    exposed: Intervals
    slowed: Selection


def repeated_exchanges(trace: Trace) -> tuple[RepeatedExchange, ...]:
    """GPUs with that pattern in every steady step, by rank and device."""
    forwards = _find_forwards(trace)
    if not forwards.height or not may_communicate(trace):
        return ()
    launched = _find_launched_reductions(trace)
    devices = []
    by_device = launched.partition_by("rank", "device", as_dict=True, maintain_order=True)
    for (rank, device), reductions in by_device.items():
        starts = np.sort(forwards.filter(pl.col("rank") == rank)["start_ns"].to_numpy())
        kept = steps(trace).kept.filter(pl.col("rank") == rank).select("host_start_ns", "host_end_ns")
        parts = [_split_by_forwards(reductions, starts, *step) for step in kept.rows()]
        blocks = [part for part in parts if part is not None]
        if not blocks or len(blocks) < len(parts) or len({times for times, _ in blocks}) > 1:
            continue
        times, early = blocks[0][0], pl.concat([calls for _, calls in blocks])
        exposed = job(trace).exposed.filter(of_device((rank, device)))
        step_bytes = float(early["bytes"].sum()) * times / (times - 1) / len(blocks)
        key, running = (int(rank), int(device)), Intervals.of(early)
        devices.append(
            RepeatedExchange(
                device=key,
                times=times,
                step_bytes=step_bytes,
                early=Selection(key, {"exchange": _rows_of(trace, early)}),
                exposed=Intervals.of(exposed) & running,
                slowed=without_contention(trace, key, running),
            )
        )
    return tuple(sorted(devices, key=lambda part: part.device))


def _rows_of(trace: Trace, calls: pl.DataFrame) -> Int64Array:
    """The rows of `device_ops` of collectives, ascending."""
    ops = trace.get(DEVICE_OPS).select(OP_KEY).with_row_index("row")
    found = ops.join(calls.select(OP_KEY).unique(), on=OP_KEY, how="semi", nulls_equal=True)
    return found["row"].cast(pl.Int64).to_numpy()


def _find_forwards(trace: Trace) -> pl.DataFrame:
    tables = (trace.get(HOST_OPS), trace.get(RANGES))
    named = [rows.filter(matches(rows["name"], DDP_FORWARD)).select("rank", "start_ns", "end_ns") for rows in tables]
    return pl.concat(named).unique()


def _find_launched_reductions(trace: Trace) -> pl.DataFrame:
    """All-reduces of known size with the start of the call that launched them: rank, device, start_ns, end_ns, bytes,
    launch_ns, in order of launch."""
    reductions = job(trace).calls.filter((pl.col("kind") == "allreduce") & pl.col("bytes").is_not_null())
    joined = reductions.join(launches_of(trace, reductions), on=OP_KEY, how="inner")
    return joined.sort("rank", "device", "launch_ns", "start_ns")


def _split_by_forwards(
    calls: pl.DataFrame, forwards: Int64Array, begin_ns: int, end_ns: int
) -> tuple[int, pl.DataFrame] | None:
    """How many forward passes the step has, and its exchanges before the last one; None where they are not alike."""
    inside = forwards[(forwards >= begin_ns) & (forwards < end_ns)]
    if inside.size < 2:
        return None
    edges = [*inside.tolist(), end_ns]
    blocks = [calls.filter(pl.col("launch_ns").is_between(*edge, closed="left")) for edge in pairwise(edges)]
    sizes = [block["bytes"].to_list() for block in blocks]
    return (len(blocks), pl.concat(blocks[:-1])) if sizes[0] and all(size == sizes[0] for size in sizes) else None


class AwaitedCollectives(Record, eq=False):
    """One GPU: `count` blocking calls, most of them `call`, each with `idle` time after a collective ended."""

    device: Device
    count: int
    call: str
    idle: Intervals


def awaited_collectives(trace: Trace) -> tuple[AwaitedCollectives, ...]:
    """GPUs that ran dry as a collective ended while a blocking call waited, by rank and device."""
    waits = synchronisations(trace)
    lines = device_timeline(trace).by_device
    names = waits.calls.select("call", "name")
    devices = []
    for key, drains in waits.drains.partition_by("rank", "device", as_dict=True).items():
        device = (int(key[0]), int(key[1]))
        ends = lines[device].communication.end_ns
        start = drains["start_ns"].to_numpy()
        position = np.minimum(np.searchsorted(ends, start), max(ends.size - 1, 0))
        after_collective = ends[position] == start if ends.size else np.zeros(start.size, bool)
        awaited = drains.filter(pl.Series(after_collective))
        if not awaited.height:
            continue
        called = awaited.join(names, on="call", how="left")["name"].value_counts()
        call = str(called.sort("count", "name", descending=[True, False])["name"][0])
        devices.append(AwaitedCollectives(device, awaited["call"].n_unique(), call, Intervals.of(awaited)))
    return tuple(sorted(devices, key=lambda drains: drains.device))


_ROW: Final = 8  # exchanges that follow each other: fewer are a step's loss and norm
_UNAWAITED: Final = 0.25  # of a row's exchanges at least: the longer ones may have waited
_OF_SHARDS: Final = ("allgather", "reducescatter")
_FEW_GATHERS: Final = 0.25  # of the collectives of tensor-parallel layers; sharded parameters have little else
# The device notices a late host this long after the host's call began: a launch takes about as long.
_LATENCY_NS: Final = 50 * NS_PER_US


class CollectiveUnits(Record, eq=False):
    """One GPU: `per_step` collectives in a step of the rank, that move `step_bytes` (None: not recorded). `sums`:
    most of them sum the gradients of few parameters; else they gather and scatter shards, or send.

    `host`: per (process, thread), what stretches with a collective take beyond those without. `idle`: where the device
    meanwhile stood idle for want of a launch.
    """

    device: Device
    per_step: float
    step_bytes: float | None
    sums: bool
    host: Mapping[tuple[int, int], Intervals]
    idle: Intervals


def collective_units(trace: Trace) -> tuple[CollectiveUnits, ...]:
    """GPUs whose host launches collectives between products, by rank and device."""
    launches = _find_launches(trace)
    if launches["product"].all():
        return ()
    late = {part.device: part.intervals for part in launching_time(trace)}
    late = {part.device: part.intervals | late.get(part.device, Intervals.none()) for part in python_time(trace)}
    calls = job(trace).calls
    found = []
    for (rank, device), own in launches.partition_by("rank", "device", as_dict=True).items():
        key = (int(rank), int(device))
        host = _measure_beyond_usual(own)
        if not host:
            continue
        mine = calls.filter(of_device(key))
        few_gathers = int(mine["kind"].is_in(_OF_SHARDS).sum()) < _FEW_GATHERS * mine.height
        if few_gathers and _launches_from_forward(own):
            continue
        per_step = float(np.mean(begun_in(mine["start_ns"].to_numpy(), *step_windows(trace, key))))
        size = mine["bytes"].mean()
        step_bytes = per_step * size if isinstance(size, float) else None
        near = Intervals.union_all(
            Intervals.union_of(part.start_ns, part.end_ns + _LATENCY_NS) for part in host.values()
        )
        idle = late.get(key, Intervals.none()) & near
        sums = 2 * int((mine["kind"] == "allreduce").sum()) > mine.height
        found.append(CollectiveUnits(key, per_step, step_bytes, sums, host, idle))
    return tuple(sorted(found, key=lambda units: units.device))


def _launches_from_forward(launches: pl.DataFrame) -> bool:
    """Whether the thread of the forward products launches all collectives: without gathers and scatters those are the
    all-reduces of tensor-parallel layers, each needed by the next product. Gradients are reduced by autograd's thread.
    """
    forward = launches["thread"].filter(launches["product"])[0]
    return bool((launches["thread"].filter(~launches["product"]) == forward).all())


def _find_launches(trace: Trace) -> pl.DataFrame:
    """Launches of products and of collectives: rank, device, process, thread, start_ns and end_ns of
    the call, length_ns of the kernel, product; by start."""
    kernels = kernel_facts(trace).frame.select("rank", "device", "row", "length", pl.col("family").cast(pl.String))
    kernels = kernels.filter(pl.col("family").is_in((*PRODUCTS, "communication")))
    call = launch_links(trace).call[kernels["row"].to_numpy()]
    linked = call >= 0
    api = trace.get(API_CALLS).select("process", "thread", "start_ns", "end_ns")[call[linked]]
    kernels = kernels.filter(pl.Series(linked)).select(
        "rank",
        "device",
        pl.col("length").cast(pl.Int64).alias("length_ns"),
        pl.col("family").is_in(PRODUCTS).alias("product"),
    )
    return kernels.hstack(api.get_columns()).sort("start_ns")


def _measure_beyond_usual(launches: pl.DataFrame) -> dict[tuple[int, int], Intervals]:
    """The last part of each stretch with a collective in it: what it takes beyond the median stretch without one.

    A stretch begins and ends on one thread; while another launches in between, that is a stretch of neither.
    """
    names = ("product", "process", "thread", "start_ns", "end_ns")
    product, process, thread, start, end = (launches[name].to_numpy() for name in names)
    at = np.flatnonzero(product)
    first, last = at[:-1], at[1:]
    on_one = (process[first] == process[last]) & (thread[first] == thread[last])
    holds, length = last - first > 1, start[last] - end[first]
    usual = median(length[on_one & ~holds]) if (on_one & ~holds).any() else 0.0
    longer = np.flatnonzero(on_one & holds & (length > usual))
    finish = launches.select("process", "thread", end_ns="start_ns")[last[longer]]
    beyond = pl.Series((length[longer] - usual).astype(np.int64))
    return intervals_by(finish.with_columns(start_ns=pl.col("end_ns") - beyond), "process", "thread")


class ExchangeRuns(Record, eq=False):
    """One GPU's short exchanges one after the other, launched with no product between them.

    `per_step` of them in a step, `in_row` in one row, `share` of all that the GPU has. `host`: per (process, thread)
    from the launch of the first to that of the last. `lost`: where the GPU meanwhile computes nothing.
    """

    device: Device
    per_step: float
    in_row: float
    share: float
    host: Mapping[tuple[int, int], Intervals]
    lost: Intervals

    @property
    def are_most(self) -> bool:
        """Whether more than half of the GPU's exchanges are such."""
        return 2 * self.share > 1


@remembered
def exchange_runs(trace: Trace) -> tuple[ExchangeRuns, ...]:
    """GPUs with rows of `_ROW` short exchanges or more, by rank and device."""
    if not may_communicate(trace):
        return ()
    launches, found = _find_launches(trace), []
    for (rank, device), mine in launches.partition_by("rank", "device", as_dict=True).items():
        own = mine.sort("process", "start_ns")  # of all threads: a backward pass has one of its own
        rows = own.with_columns(at=pl.struct("process", "product").rle_id()).filter(~pl.col("product"))
        short = pl.col("length_ns").quantile(_UNAWAITED) < assumed.LINK_SHORTEST_US.ns
        rows = rows.filter(((pl.len() >= _ROW) & short).over("at"))
        if not rows.height:
            continue
        key = (int(rank), int(device))
        spans = rows.group_by("at", "process", "thread").agg(
            pl.col("start_ns").min(), pl.col("end_ns").max(), n=pl.len()
        )
        near = Intervals.union_of(spans["start_ns"], spans["end_ns"] + _LATENCY_NS)
        line = device_timeline(trace)[key]
        lost = (near & Intervals.one(line.span_start_ns, line.span_end_ns)) - line.compute
        per_step = float(np.mean(begun_in(rows["start_ns"].to_numpy(), *step_windows(trace, key))))
        in_row, share = median(spans["n"].to_numpy()), rows.height / own.filter(~pl.col("product")).height
        host = intervals_by(spans, "process", "thread")
        found.append(ExchangeRuns(key, per_step, in_row, share, host, lost))
    return tuple(sorted(found, key=lambda runs: runs.device))


_LENGTH_BYTES = 8  # one int64: how long the pickled object is


def pickled_per_step(trace: Trace, rank: int) -> float:
    """Exchanges of pickled objects per steady step of a rank; over all of the trace where it has no steps."""
    frame = trace.get(COLLECTIVES).filter(pl.col("rank") == rank).sort("start_ns")
    dtype = frame["dtype"].cast(pl.String)
    length = (dtype == "Long") & (frame["in_bytes"] == _LENGTH_BYTES)
    sent = frame.filter(
        (dtype == "Byte") & length.shift(1, fill_value=False) & (frame["kind"] == frame["kind"].shift(1))
    )
    return begun_per_step(trace, rank, sent["start_ns"])
