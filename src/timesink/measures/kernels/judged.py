"""How much of the time of kernels anything can judge, and the largest part that nothing can.

A kernel is judged where the bound of its operator is known: shapes, work and the GPU's peaks. Where no shapes are
recorded, as Nsight Systems records none, its name may do: rules know what kernels of libraries, generated kernels and
plain passes over memory look like when they waste time. Not judged are names that nobody knows, products on a GPU whose
peaks are not known, and products of a capture that records shapes of others and not their own, but for those that a
graph replays: that no rule finds anything wrong with them says nothing.
"""

from typing import Final

import polars as pl

from timesink.knowledge.kernels import PRODUCTS, KernelFamily
from timesink.measures.kernels.attainable import attainable
from timesink.measures.kernels.facts import device_peaks, kernel_facts
from timesink.measures.steps.per_step import step_windows
from timesink.measures.timeline import of_device
from timesink.measures.timeline.attribution import launch_links
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_KEY: Final = ["rank", "device", "op", "input_shapes"]
_UNKNOWN: Final = (KernelFamily.OTHER.value, KernelFamily.INDEX.value, KernelFamily.SORT_SCAN.value)
"""Of a name alone: what gathers, scatters or sorts may be bound by anything."""

_OPERATORS: Final = 4  # that many share no kernel: one name for all of theirs is no name


class Unjudged(Record):
    """The share of the kernels' time in the steps that nothing judges, 0 to 1, and what takes most of that: its name,
    whether it is an operator or a kernel, and its share of all their time."""

    ratio: float
    name: str = ""
    is_operator: bool = False
    largest_ratio: float = 0.0


@remembered
def unjudged(trace: Trace) -> Unjudged:
    """Of all devices together; nothing where no kernel ran."""
    frame = kernel_facts(trace).frame
    inside = {device: Intervals.union_of(*step_windows(trace, device)) for device in kernel_facts(trace).devices}
    length = pl.Series("ns", _inside(frame, inside), dtype=pl.Int64)
    frame = frame.with_columns(length, names=trace.get(DEVICE_OPS)["name"][frame["row"]].cast(pl.String))
    frame = frame.filter((pl.col("ns") > 0) & (pl.col("family") != KernelFamily.COMMUNICATION.value))
    total_ns = int(frame["ns"].sum())
    if not total_ns:
        return Unjudged(0.0)
    host = trace.get(HOST_OPS)
    calls = host.select(pl.col("name", "input_shapes").cast(pl.String)).rename({"name": "op"})
    calls = calls.with_columns(pl.int_range(pl.len(), dtype=pl.Int32).alias("host_op"))
    bounds = attainable(trace).operators.rename({"name": "op"}).select(_KEY).unique().with_columns(bound=pl.lit(True))
    frame = frame.drop("op").join(calls, on="host_op", how="left", maintain_order="left")
    frame = frame.join(bounds, on=_KEY, how="left", maintain_order="left")
    if frame["names"].n_unique() == 1 and frame["op"].drop_nulls().n_unique() >= _OPERATORS:
        return Unjudged(1.0, frame["names"][0], largest_ratio=1.0)
    shapes = host["input_shapes"].null_count() < host.height
    has_peaks = pl.any_horizontal(pl.lit(False), *map(of_device, device_peaks(trace)))
    is_product = pl.col("family").is_in(PRODUCTS)
    known_name = ~pl.col("family").is_in(_UNKNOWN) | pl.col("fused").is_not_null()
    replayed = pl.Series(
        launch_links(trace).shared[frame["row"].to_numpy()], dtype=pl.Boolean
    )  # by a graph, of no operator
    may_lack = pl.lit(not shapes) | pl.lit(replayed)
    by_name = known_name & (~is_product | (has_peaks & may_lack)) & pl.col("input_shapes").is_null()
    left = frame.filter(~(pl.col("bound").fill_null(False) | by_name))
    if not left.height:
        return Unjudged(0.0)
    named = left.with_columns(what=pl.coalesce("op", "names"), is_op=pl.col("op").is_not_null())
    largest = named.group_by("what", "is_op").agg(pl.col("ns").sum()).sort("ns", "what", descending=[True, False])
    what, is_operator, ns = largest.row(0)
    return Unjudged(int(left["ns"].sum()) / total_ns, str(what), bool(is_operator), ns / total_ns)


def _inside(frame: pl.DataFrame, inside: dict[tuple[int, int], Intervals]) -> list[int]:
    """How much of each kernel lies in the steps of its device, in ns."""
    parts: list[int] = []
    for (rank, device), own in frame.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
        start_ns = own["start_ns"].to_numpy()
        parts += inside[int(rank), int(device)].covered_ns(start_ns, start_ns + own["length"].to_numpy()).tolist()
    return parts
