"""Who caused each piece of device work: the CUDA call that launched it, and the operator and range around that call.

The operator is the innermost one that encloses the launch call on its thread. Where the launch or its place is not
recorded, the profiler's external id decides. External ids can name an unrelated operator in compiled or asynchronous
programs, so where both are known and differ, the place of the launch wins and the difference is counted. The kernels of
a graph replay go to the operators that were captured where `graph_replays` joins them, else to the operator around the
graph launch, or to nobody.

`operator_kernels` lists the kernels of each operator.
"""

import numpy as np
import polars as pl

from timesink._native import summed
from timesink.measures.timeline.graph_replays import graph_replays
from timesink.model.alignment import launching_calls
from timesink.model.arrays import BoolArray, Int32Array, Int64Array, flag_at, found_at, none_of
from timesink.model.names import matches
from timesink.model.nesting import Nesting
from timesink.model.schema import nulls
from timesink.model.tables import API_CALLS, DEVICE_OPS, GRAPH_NODES, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record


class LaunchLinks(Record, eq=False):
    """For each row of `device_ops`, the row of `api_calls` that launched it, or -1 where that is not recorded.

    `shared` marks ops whose call launched several: the kernels of one graph launch.
    """

    call: Int32Array
    shared: BoolArray

    @property
    def linked(self) -> BoolArray:
        """Which ops have a launch record."""
        return self.call >= 0

    @property
    def linked_count(self) -> int:
        """How many ops have a launch record."""
        return int(np.count_nonzero(self.call >= 0))

    def launching(self, height: int) -> BoolArray:
        """Which of the `height` rows of `api_calls` launched any device op."""
        flags = np.zeros(height, np.bool_)
        flags[self.call[self.linked]] = True
        return flags


@remembered
def launch_links(trace: Trace) -> LaunchLinks:
    """Join device ops to the calls that launched them, by rank, process and correlation (`model.alignment`)."""
    calls = trace.get(API_CALLS)
    call = launching_calls(trace.get(DEVICE_OPS), calls)
    ops_of_call = np.bincount(call[call >= 0], minlength=max(calls.height, 1))
    return LaunchLinks(call=call, shared=(call >= 0) & (ops_of_call[np.maximum(call, 0)] > 1))


def asked_at(trace: Trace, nesting: Nesting) -> Int32Array:
    """For each row of `device_ops` the innermost row of a host table, nested, in which the program asked for it, or -1:
    around what recorded it into its graph where that is known, else around the call that launched it."""
    replays, is_known = graph_replays(trace), nesting is range_nesting(trace)
    called = host_places(trace).range_ if is_known else nesting.innermost_of(trace.get(API_CALLS))
    around = found_at(called, launch_links(trace).call)
    if not replays.joined:
        return around
    moments = trace.get(GRAPH_NODES).rename({"recorded_ns": "start_ns"})
    return np.where(replays.node >= 0, found_at(nesting.innermost_of(moments), replays.node), around)


class HostPlaces(Record, eq=False):
    """Where in the program each CUDA call was made.

    `host_op` and `range_` hold, for each row of `api_calls`, the row of the innermost operator and of the innermost
    range of its thread that encloses the call's start, or -1; the names of those rows are `op_names` and
    `range_names`. Ranges are the push/pop ones (rows of `push_pop_ranges`), which nest; a start/end range is on no
    thread's stack.
    """

    host_op: Int32Array
    range_: Int32Array
    op_names: pl.Series
    range_names: pl.Series


@remembered
def host_nesting(trace: Trace) -> Nesting:
    """The framework operators as trees."""
    return Nesting.of(trace.get(HOST_OPS))


@remembered
def range_nesting(trace: Trace) -> Nesting:
    """The push/pop ranges as trees; rows are those of `push_pop_ranges`."""
    return Nesting.of(push_pop_ranges(trace))


@remembered
def push_pop_ranges(trace: Trace) -> pl.DataFrame:
    """The ranges that nest on their thread."""
    ranges = trace.get(RANGES)
    return ranges.filter(ranges["kind"] == "push_pop")


@remembered
def host_places(trace: Trace) -> HostPlaces:
    """Find the innermost operator and range around the start of every API call."""
    calls = trace.get(API_CALLS)
    return HostPlaces(
        host_op=host_nesting(trace).innermost_of(calls),
        range_=range_nesting(trace).innermost_of(calls),
        op_names=trace.get(HOST_OPS)["name"],
        range_names=push_pop_ranges(trace)["name"],
    )


def names_at(names: pl.Series, rows: Int32Array, label: str) -> pl.Series:
    """The name at each row, null for row -1. `names` = [a, b] and `rows` = [1, -1, 0, 1] give [b, null, a, b]."""
    if not len(names):
        return nulls(names.dtype, rows.size, label)
    held = names[np.maximum(rows, 0)]
    return pl.select(pl.when(pl.Series(rows >= 0)).then(held).alias(label)).to_series()


class Attribution(Record, eq=False):
    """`host_op`: for each row of `device_ops`, the row of `host_ops` it belongs to, or -1.

    Times are sums of durations, work that ran at once counts in full: the sum of `operator_times`' self_device_ns +
    unattributed_ns = total_ns.
    """

    host_op: Int32Array
    total_ns: int
    unattributed_ns: int
    unattributed_count: int


@remembered
def attribution(trace: Trace) -> Attribution:
    """Attribute every device op, whether kernel, copy, memset or whole graph."""
    ops, links = trace.get(DEVICE_OPS), launch_links(trace)
    host_op: Int32Array = none_of(ops.height)
    if trace.get(HOST_OPS).height:
        host_op = np.array(found_at(host_places(trace).host_op, links.call))
        recorded = graph_replays(trace).node >= 0
        if recorded.any():
            host_op[recorded] = asked_at(trace, host_nesting(trace))[recorded]
        without_place = np.flatnonzero((host_op < 0) & ~links.shared)
        host_op[without_place] = _by_external_id(trace, without_place)
    length, unattributed = (ops["end_ns"] - ops["start_ns"]).to_numpy(), host_op < 0
    return Attribution(
        host_op=host_op,
        total_ns=int(length.sum()),
        unattributed_ns=int(length[unattributed].sum()),
        unattributed_count=int(np.count_nonzero(unattributed)),
    )


def belonging_to(trace: Trace, operators: BoolArray) -> BoolArray:
    """Which rows of `device_ops` belong to one of these rows of `host_ops`."""
    return flag_at(operators, attribution(trace).host_op)


def _by_external_id(trace: Trace, rows: Int64Array) -> Int64Array:
    """For these device ops, the operator their external id names; -1 where it names none or several."""
    key = ["rank", "process", "external_id"]
    ops, host = trace.get(DEVICE_OPS).select(key)[rows], trace.get(HOST_OPS)
    operator_row = np.full(ops.height, -1, np.int64)
    if ops["external_id"].null_count() == ops.height or not host.height:
        return operator_row
    has_id = pl.col("external_id").fill_null(0) != 0
    wanted = ops.with_row_index("op").filter(has_id)
    operators = host.select(key).with_row_index("row").filter(has_id)
    operators = operators.join(wanted.select(key).unique(), on=key, how="semi")
    operators = operators.group_by(key).agg(pl.col("row").first().cast(pl.Int64), pl.len()).filter(pl.col("len") == 1)
    joined = wanted.join(operators, on=key, how="inner")
    operator_row[joined["op"].to_numpy()] = joined["row"].to_numpy()
    return operator_row


@remembered
def operator_times(trace: Trace) -> pl.DataFrame:
    """One row per (rank, name) of operators, most device time first, with calls, kernels (neither copies nor memsets),
    self_device_ns (device ops launched by the operator itself), total_device_ns (by it and all inside it; a recursive
    call counts once), self_host_ns, total_host_ns. Work that ran at once counts in full."""
    ops, host, nesting = trace.get(DEVICE_OPS), trace.get(HOST_OPS), host_nesting(trace)
    host_op, length = attribution(trace).host_op, (ops["end_ns"] - ops["start_ns"]).to_numpy()
    attributed = host_op >= 0
    is_kernel = ops["kind"].is_in(["kernel", "graph"]).to_numpy()
    self_device = summed(host_op[attributed].astype(np.int64), length[attributed], host.height)
    kernels = np.bincount(host_op[attributed & is_kernel], minlength=host.height).astype(np.int64)
    outermost = nesting.outermost_of_name(host["name"].to_physical().cast(pl.Int64).to_numpy())
    now = (host["process"] >= 0).to_numpy()  # what another recording joined took no time of this run
    total_host = (host["end_ns"] - host["start_ns"]).to_numpy() * now
    rows = host.select("rank", "name").with_columns(
        pl.Series("kernels", kernels),
        pl.Series("self_device_ns", self_device),
        pl.Series("total_device_ns", np.where(outermost, nesting.inclusive(self_device), 0)),
        pl.Series("self_host_ns", nesting.self_ns * now),
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


def operator_kernels(trace: Trace, pattern: str | None = None) -> pl.DataFrame:
    """Per rank, operator and name of GPU work (kernels, copies, memsets): the operators with most of it first.

    An operator has what it launched itself; with a `pattern`, what the operators whose names match it launched, and
    those inside them (the innermost match has it, so nothing counts twice). Columns: rank, operator, name, kind, count,
    total_ns, mean_ns, operator_ratio (share of the operator's total). Durations of work that ran at once count in full.
    """
    ops, host = trace.get(DEVICE_OPS), trace.get(HOST_OPS)
    operator = attribution(trace).host_op.astype(np.int64)
    if pattern is not None and host.height:
        wanted = matches(host["name"], pattern).to_numpy()
        owner = host_nesting(trace).innermost_value(np.where(wanted, np.arange(host.height), -1))
        operator = found_at(owner, operator)
    rows = np.flatnonzero(operator >= 0)
    named = ops[rows].select(
        "rank",
        host["name"][operator[rows]].cast(pl.String).alias("operator"),
        pl.col("name", "kind").cast(pl.String),
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
    )
    total = pl.col("total_ns").sum().over("rank", "operator")
    return (
        named.group_by("rank", "operator", "name", "kind")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("ns").sum().alias("total_ns"),
            pl.col("ns").mean().alias("mean_ns"),
        )
        .with_columns((pl.col("total_ns") / total).fill_nan(None).alias("operator_ratio"), total.alias("of_operator"))
        .sort(["rank", "of_operator", "operator", "total_ns", "name"], descending=[False, True, False, True, False])
        .drop("of_operator")
    )
