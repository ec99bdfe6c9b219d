"""Tensors that grow by being written anew: a cache of keys and values to which every step joins one entry.

`torch.cat` of a long tensor and a short one copies the long one, so that a step pays for all that the steps before it
have kept.
"""

from functools import cache
from typing import Final

import polars as pl

from timesink.knowledge.operators import JOINS
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.steps.per_step import begun_per_step
from timesink.measures.timeline import Device, of_device
from timesink.model.names import matches, of_each
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.untrusted.plain_json import parsed

_LONGER: Final = 8  # times all others together: what is joined is an entry, and no half


class GrownTensors(Record, eq=False):
    """On one device: `rows` of `device_ops` that copy such tensors, how many operators of a step join them, and the
    entries of the longest along the axis on which it grows."""

    device: Device
    rows: tuple[int, ...]
    per_step: float
    entries: int


@remembered
def grown_tensors(trace: Trace) -> tuple[GrownTensors, ...]:
    """Per device that copies any."""
    host = trace.get(HOST_OPS)
    joins = matches(host["name"], JOINS)
    if not joins.any():
        return ()
    entries = of_each(host["input_shapes"], _entries, pl.Int64).fill_null(0)
    grows = host.select(pl.int_range(pl.len()).cast(pl.Int32).alias("host_op"), "rank", "start_ns", entries=entries)
    grows = grows.filter(joins & (entries > 0))
    kernels = kernel_facts(trace).frame.join(grows.select("host_op", "entries"), on="host_op", how="inner")
    found = []
    for device in sorted(kernels.select("rank", "device").unique().rows()):
        own = kernels.filter(of_device(device))
        begun = grows.filter(pl.col("host_op").is_in(own["host_op"].unique().implode()))["start_ns"].sort()
        rows = tuple(own["row"].sort().to_list())
        found.append(GrownTensors(device, rows, begun_per_step(trace, device[0], begun), max(own["entries"].to_list())))
    return tuple(found)


def times_on(trace: Trace, rows: tuple[int, ...]) -> pl.DataFrame:
    """When some rows of `device_ops` ran, in order."""
    return trace[DEVICE_OPS][list(rows)].select("start_ns", "end_ns").sort("start_ns")


@cache
def _entries(shapes: str) -> int:
    """The length of the longest tensor of a list along the one axis on which they differ, where it is far longer than
    all others together; 0 of any other list."""
    try:
        first = parsed(shapes)[0]
    except (ValueError, IndexError, KeyError, TypeError):
        return 0
    if not isinstance(first, list) or len(first) < 2 or not all(isinstance(shape, list) and shape for shape in first):
        return 0
    if len({len(shape) for shape in first}) > 1 or not all(isinstance(size, int) for shape in first for size in shape):
        return 0
    apart = [axis for axis in range(len(first[0])) if len({shape[axis] for shape in first}) > 1]
    if len(apart) != 1:
        return 0
    lengths = sorted(shape[apart[0]] for shape in first)
    return int(lengths[-1]) if lengths[-1] >= _LONGER * max(sum(lengths[:-1]), 1) else 0
