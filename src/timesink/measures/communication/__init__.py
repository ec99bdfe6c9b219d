"""Collectives: matching across ranks, waiting and transfer, clocks.

Communication kernels of each GPU: how long they run, how much of it computation hides, and what they slow down.

Contention is measured on kernels that ran both during communication and without: how much longer they took during it.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import ranks as assumed
from timesink.knowledge.collectives import kind_of_kernel
from timesink.knowledge.op_class import class_of_ops, communicates
from timesink.knowledge.ranges import EXCHANGE
from timesink.measures.timeline import Device, covered_by_device, device_timeline, of_device
from timesink.measures.timeline.attribution import host_places, launch_links
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import key_slices
from timesink.model.tables import COLLECTIVES, DEVICE_OPS, DEVICES, LAUNCH_SHAPE
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.whatif import Selection
from timesink.whatif.changes.transfers import fills_at_once

_APART_RATIO: Final = 0.5  # a stream that mostly runs what such ranges launch is one for exchanges


class DeviceCommunication(Record, eq=False):
    """One GPU: `total_ns` is the union of its communication kernels, `exposed` the part with no computation beside it.

    A collective's duration holds waiting for its peers as well as moving data: nothing here says which.
    """

    rank: int
    device: int
    kernel_count: int
    total_ns: int
    exposed: Intervals

    @property
    def exposed_ns(self) -> int:
        """Communication that no computation hides."""
        return self.exposed.total_ns

    @property
    def overlapped_ns(self) -> int:
        """Communication that computation hides."""
        return self.total_ns - self.exposed_ns

    @property
    def overlap_ratio(self) -> float | None:
        """|communication and computation| / |communication|; None where there is no communication."""
        return self.overlapped_ns / self.total_ns if self.total_ns else None


class Communication(Record, eq=False):
    """Per (rank, device), in that order; `by_name`: rank, device, name, count, total_ns (durations summed)."""

    by_device: Mapping[Device, DeviceCommunication]
    by_name: pl.DataFrame

    def __getitem__(self, device: Device) -> DeviceCommunication:
        return self.by_device[device]

    def barriers_ns(self, device: Device) -> int:
        """The time of kernels that move no data and wait for the other ranks, known from one rank alone."""
        rows = self.by_name.filter(of_device(device)).select("name", "total_ns").iter_rows()
        return sum(total_ns for name, total_ns in rows if kind_of_kernel(name) == "barrier")

    def __iter__(self) -> Iterator[DeviceCommunication]:
        return iter(self.by_device.values())


@remembered
def may_communicate(trace: Trace) -> bool:
    """Whether a kernel communicates, or is said to: where none does, a job has no calls and there is no more to ask."""
    recorded = trace.get(COLLECTIVES)["device"]
    return recorded.null_count() < len(recorded) or bool((class_of_ops(trace) == "communication").any())


@remembered
def communication(trace: Trace) -> Communication:
    """Measure communication on every device that did any work."""
    ops = trace.get(DEVICE_OPS)
    talking = ops.filter(class_of_ops(trace) == "communication").select("rank", "device", "name", "start_ns", "end_ns")
    by_name = (
        talking.group_by("rank", "device", "name")
        .agg(pl.len().cast(pl.Int64).alias("count"), (pl.col("end_ns") - pl.col("start_ns")).sum().alias("total_ns"))
        .with_columns(pl.col("name").cast(pl.String))
        .sort(["rank", "device", "total_ns", "name"], descending=[False, False, True, False])
    )
    counts = {(r, d): n for r, d, n in talking.group_by("rank", "device").len().iter_rows()}
    return Communication(
        by_device={
            key: DeviceCommunication(*key, counts.get(key, 0), line.communication.total_ns, line.exposed_communication)
            for key, line in device_timeline(trace).by_device.items()
        },
        by_name=by_name,
    )


@remembered
def kernel_runs(trace: Trace) -> pl.DataFrame:
    """Runs of computing kernels on GPUs that communicate: rank, device, row (of `device_ops`), the name, the columns of
    `LAUNCH_SHAPE`, length_ns, `beside` (communication covers at least half of it) and `free` (it covers nothing)."""
    ops = trace.get(DEVICE_OPS)
    shape = ["rank", "device", "name", *LAUNCH_SHAPE]
    compared = (class_of_ops(trace) == "compute") & (ops["kind"] == "kernel") & ops["grid_x"].is_not_null()
    communicates = np.zeros(ops.height, np.bool_)  # on devices that communicate at all
    for (rank, device), first, last in key_slices(ops, ("rank", "device")):
        communicates[first:last] = len(device_timeline(trace)[rank, device].communication) > 0
    compared &= pl.Series(communicates)
    kernels = ops.with_row_index("row").select("row", *shape, "start_ns", "end_ns").filter(compared)
    kernels = kernels.with_columns((pl.col("end_ns") - pl.col("start_ns")).alias("length_ns"))
    talking = {key: line.communication for key, line in device_timeline(trace).by_device.items()}
    covered = pl.Series("covered_ns", covered_by_device(kernels, talking))
    share, length = pl.col("covered_ns") / pl.col("length_ns"), pl.col("length_ns")
    runs = kernels.with_columns(covered).filter(length > 0)
    runs = runs.with_columns(
        (share >= assumed.BESIDE_SHARE.value).alias("beside"), (pl.col("covered_ns") == 0).alias("free")
    )
    return runs.drop("start_ns", "end_ns", "covered_ns")


@remembered
def contended_runs(trace: Trace) -> pl.DataFrame:
    """Runs beside communication of the kernels that are compared: rank, device, row (of `device_ops`), the columns of
    `LAUNCH_SHAPE`, length_ns, and alone_ns, the median of the kernel's free runs."""
    shape, runs, length = ["rank", "device", "name", *LAUNCH_SHAPE], kernel_runs(trace), pl.col("length_ns")
    alone = (
        runs.group_by(shape)
        .agg(
            length.filter("free").median().alias("alone_ns"),
            length.filter("free").quantile(0.1).alias("low"),  # p90 / p10 is the spread that FREE_SPREAD bounds
            length.filter("free").quantile(0.9).alias("high"),  # the same
            pl.col("free").sum().alias("free_count"),
            pl.col("beside").sum().alias("beside_count"),
        )
        .filter(
            (pl.col("free_count") >= assumed.FREE_RUNS.whole)
            & (pl.col("beside_count") >= assumed.FREE_RUNS.whole)
            & (pl.col("high") <= assumed.FREE_SPREAD.value * pl.col("low"))
        )
    )
    compared_runs = runs.filter("beside").join(alone, on=shape, how="inner", nulls_equal=True)
    return compared_runs.select("row", *shape, "length_ns", "alone_ns").sort("row")


@remembered
def contention(trace: Trace) -> pl.DataFrame:
    """Each kernel's runs beside communication against its free runs: rank, device, kernels, beside_ns, excess_ns and
    second_turns_ns.

    `kernels` had both kinds of run; `beside_ns` is the time of their runs beside communication and `excess_ns` what
    these took beyond the median of the free runs. A kernel is one name, grid and block. Only those whose free runs
    agree within a quarter (p90 over p10) are compared; another problem size under one launch shape would show as
    spread. Kernels whose blocks hold every multiprocessor to their end are apart: however few communication takes,
    their last blocks run a second turn, which costs `second_turns_ns` in all. A GPU without kernels of either kind has
    no row.
    """
    runs, at_once = contended_runs(trace), pl.col("at_once")
    runs = runs.with_columns(pl.Series("at_once", fills_at_once(runs, trace.get(DEVICES))))
    excess_ns = pl.col("length_ns") - pl.col("alone_ns")
    by_device = runs.group_by("rank", "device").agg(
        pl.struct("name", *LAUNCH_SHAPE).filter(~at_once).n_unique().cast(pl.Int64).alias("kernels"),
        pl.col("length_ns").filter(~at_once).sum().alias("beside_ns"),
        excess_ns.filter(~at_once).sum().round().cast(pl.Int64).alias("excess_ns"),
        excess_ns.filter(at_once).sum().round().cast(pl.Int64).alias("second_turns_ns"),
    )
    return by_device.sort("rank", "device")


def without_contention(trace: Trace, device: Device, beside: Intervals) -> Selection:
    """The kernels that ran beside that communication; `usual` is the share of its time that each takes alone."""
    ops, runs = trace.get(DEVICE_OPS), contended_runs(trace)
    runs = runs.filter(of_device(device))
    start, end = (ops[name][runs["row"]].to_numpy() for name in ("start_ns", "end_ns"))
    length = np.maximum(end - start, 1)
    near = beside.covered_ns(start, end) >= assumed.BESIDE_SHARE.value * length
    usual = np.minimum(runs["alone_ns"].to_numpy() / length, 1.0)[near]
    return Selection(device, {"slowed": runs["row"].cast(pl.Int64).to_numpy()[near]}, usual=usual)


def unnamed_exchange(trace: Trace) -> str | None:
    """The kernel with the most time of those that a range called dispatch, combine, all-to-all or the like launches on
    a stream apart from the rest, and that no library known here would call so; None where there is none.

    Such a kernel may communicate. Its name does not say it, and so nothing else here counts it.
    """
    ops, call, places = trace.get(DEVICE_OPS), launch_links(trace).call, host_places(trace)
    exchanges = np.append(matches(places.range_names, EXCHANGE).to_numpy(), False)
    if not exchanges.any() or not ops.height:
        return None
    inside = (call >= 0) & exchanges[np.append(places.range_, -1)[call]]
    timed = ops.select("rank", "device", "stream", "name", (pl.col("end_ns") - pl.col("start_ns")).alias("ns"))
    kernels = timed.with_columns(pl.Series("inside", inside)).filter(
        (ops["kind"] == "kernel") & ~communicates(ops["name"])
    )
    streams = kernels.group_by("rank", "device", "stream").agg(
        pl.col("ns").filter("inside").sum().alias("inside_ns"), pl.col("ns").sum().alias("all_ns")
    )
    apart = streams.filter(pl.col("inside_ns") > _APART_RATIO * pl.col("all_ns"))
    found = kernels.filter("inside").join(apart, on=["rank", "device", "stream"], how="semi")
    longest = found.group_by("name").agg(pl.col("ns").sum()).sort("ns", "name", descending=[True, False])
    return str(longest["name"][0]) if longest.height else None
