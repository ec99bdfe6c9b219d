"""Where in the program each CUDA call was made: the innermost operator and the innermost range around it.

Which framework operator each device op belongs to, and how much device time each operator causes.

The operator is the innermost one that holds the launch call on its thread. Where the launch or its place is not
recorded, the profiler's external id decides. External ids can name an unrelated operator in compiled or asynchronous
programs, so where both speak and differ, the place of the launch wins and the difference is counted. The kernels of a
graph replay were captured elsewhere: they go to the operator around the graph launch, or to nobody, never to one of the
operators that were captured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from timesink.measures.timeline.links import launch_links
from timesink.model.arrays import Int32Array, Int64Array
from timesink.model.nesting import Nesting
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered


@dataclass(frozen=True, slots=True, eq=False)
class HostPlaces:
    """For each row of `api_calls`: the row of the innermost operator and range of its thread that holds its start.

    -1 where there is none. Ranges are the push/pop ones, which nest; a start/end range belongs to no thread's stack.
    """

    host_op: Int32Array
    range_: Int32Array
    op_names: pl.Series
    range_names_: pl.Series

    def host_op_names(self, calls: Int64Array) -> pl.Series:
        """Names of the operators around these calls, null where none."""
        return _named(self.op_names, self.host_op[calls], "host_op")

    def range_names(self, calls: Int64Array) -> pl.Series:
        """Names of the ranges around these calls, null where none."""
        return _named(self.range_names_, self.range_[calls], "range")


@remembered
def host_nesting(trace: Trace) -> Nesting:
    """The framework operators as trees."""
    return Nesting.of(trace.get(HOST_OPS))


@remembered
def range_nesting(trace: Trace) -> Nesting:
    """The push/pop ranges as trees; rows are those of `push_pop_ranges`."""
    return Nesting.of(push_pop_ranges(trace))


def push_pop_ranges(trace: Trace) -> pl.DataFrame:
    """The ranges that nest on their thread."""
    ranges = trace.get(RANGES)
    return ranges.filter(ranges["kind"] == "push_pop")


@remembered
def host_places(trace: Trace) -> HostPlaces:
    """Place every API call."""
    calls = trace.get(API_CALLS)
    return HostPlaces(
        host_op=host_nesting(trace).innermost_of(calls).astype(np.int32),
        range_=range_nesting(trace).innermost_of(calls).astype(np.int32),
        op_names=trace.get(HOST_OPS)["name"],
        range_names_=push_pop_ranges(trace)["name"],
    )


def _named(names: pl.Series, rows: Int32Array, label: str) -> pl.Series:
    index = pl.Series(np.where(rows >= 0, rows, 0)) if len(names) else pl.Series([], dtype=pl.Int64)
    if not len(names):
        return pl.Series(label, [None], dtype=pl.String).new_from_index(0, rows.size)
    held = names.gather(index).cast(pl.String).alias(label)
    return pl.select(pl.when(pl.Series(rows >= 0)).then(held).alias(label)).to_series()


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """`host_op`: for each row of `device_ops`, the row of `host_ops` it belongs to, or -1.

    `operators`: one row per (rank, name), most device time first, with calls, kernels, self_device_ns (device ops
    launched by the operator itself), total_device_ns (by it and all inside it; a recursive call counts once),
    self_host_ns, total_host_ns. Device times here are sums of durations, work that ran at once counts in full:
    the sum of self_device_ns + unattributed_ns = total_ns. `disagreements` counts device ops whose external id names
    another operator than the one around the launch; `graph_ns` is the part of total_ns that graph replays launched.
    """

    host_op: Int32Array
    operators: pl.DataFrame
    total_ns: int
    unattributed_ns: int
    unattributed_count: int
    graph_ns: int
    disagreements: int


@remembered
def attribution(trace: Trace) -> Attribution:
    """Attribute every device op, whether kernel, copy, memset or whole graph."""
    ops, links = trace.get(DEVICE_OPS), launch_links(trace)
    host_op = np.full(ops.height, -1, np.int32)
    host_op[links.linked] = host_places(trace).host_op[links.call[links.linked]]
    disagreements = _disagreements(trace, host_op)
    nowhere = np.flatnonzero((host_op < 0) & ~links.shared)
    host_op[nowhere] = _by_external_id(trace, nowhere)
    length = (ops["end_ns"] - ops["start_ns"]).to_numpy()
    alone = host_op < 0
    return Attribution(
        host_op=host_op,
        operators=_operators(trace, host_op, length),
        total_ns=int(length.sum()),
        unattributed_ns=int(length[alone].sum()),
        unattributed_count=int(np.count_nonzero(alone)),
        graph_ns=int(length[links.shared | (ops["kind"] == "graph").to_numpy()].sum()),
        disagreements=disagreements,
    )


def _disagreements(trace: Trace, around: Int32Array) -> int:
    """How many ops, launched inside an operator with an id, carry the id of another one of the trace."""
    ops, host, inside = trace.get(DEVICE_OPS), trace.get(HOST_OPS), np.flatnonzero(around >= 0)
    said = ops["external_id"].gather(inside).fill_null(0).to_numpy()
    meant = host["external_id"].gather(around[inside]).fill_null(0).to_numpy()
    others = said[(said != meant) & (said != 0) & (meant != 0)]
    return int(np.isin(others, host["external_id"].drop_nulls().to_numpy()).sum()) if others.size else 0


def _by_external_id(trace: Trace, rows: Int64Array) -> Int64Array:
    """For these device ops, the operator their external id names; -1 where it names none, or more than one."""
    key = ["rank", "process", "external_id"]
    ops, host = trace.get(DEVICE_OPS).select(key)[rows], trace.get(HOST_OPS)
    if ops["external_id"].null_count() == ops.height or not host.height:
        return np.full(ops.height, -1, np.int64)
    wanted = ops.with_row_index("op").filter(pl.col("external_id").fill_null(0) != 0)
    known = host.select(key).with_row_index("row").filter(pl.col("external_id").fill_null(0) != 0)
    known = known.join(wanted.select(key).unique(), on=key, how="semi")
    known = known.group_by(key).agg(pl.col("row").first().cast(pl.Int64), pl.len()).filter(pl.col("len") == 1)
    joined = wanted.join(known, on=key, how="inner")
    found = np.full(ops.height, -1, np.int64)
    found[joined["op"].to_numpy()] = joined["row"].to_numpy()
    return found


def _operators(trace: Trace, host_op: Int32Array, length: Int64Array) -> pl.DataFrame:
    host, nesting = trace.get(HOST_OPS), host_nesting(trace)
    held = host_op >= 0
    self_device = np.zeros(host.height, np.int64)
    np.add.at(self_device, host_op[held], length[held])
    kernels = np.bincount(host_op[held], minlength=host.height).astype(np.int64)
    outermost = nesting.outermost_of_name(host["name"].to_physical().cast(pl.Int64).to_numpy())
    total_host = (host["end_ns"] - host["start_ns"]).to_numpy()
    rows = host.select("rank", "name").with_columns(
        pl.Series("kernels", kernels),
        pl.Series("self_device_ns", self_device),
        pl.Series("total_device_ns", np.where(outermost, nesting.inclusive(self_device), 0)),
        pl.Series("self_host_ns", nesting.self_ns),
        pl.Series("total_host_ns", np.where(outermost, total_host, 0)),
    )
    return (
        rows.lazy()
        .group_by("rank", "name")
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.exclude("rank", "name", "calls").sum())
        .with_columns(pl.col("name").cast(pl.String))
        .sort(["rank", "total_device_ns", "total_host_ns", "name"], descending=[False, True, True, False])
        .collect()
    )
