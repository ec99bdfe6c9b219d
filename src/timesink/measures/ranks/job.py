"""What questions across ranks need of each rank: rows per collective and step, none per kernel.

A `Job` is read from a trace of one rank or of many. Merging puts rows together and sorts them by a total order, so it
is associative and commutative: one rank at a time, a tree of hosts, or all at once give the same tables.

Collectives are known by the profiler's labels, else by kernel name. Batches of sends and receives need care: PyTorch's
`batch_isend_irecv` records each send and receive of a batch on the host, without device work; one SendRecv kernel,
launched where the batch closes, does them all and carries none of their labels. A recorded call without device work
therefore belongs to the next such kernel that its rank launches.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Final, Self

import numpy as np
import polars as pl

from timesink.knowledge.collectives import EXCHANGE, POINT_TO_POINT, kind_of_kernel, message_bytes
from timesink.knowledge.op_class import COMMUNICATION, class_of_ops
from timesink.measures.ranks.parity import PARITY, parity_facts
from timesink.measures.steps import KEPT, STANDS_OUT, WARM_UP, steps
from timesink.measures.steps.per_step import period_ns
from timesink.measures.steps.slow_steps import slow_rates
from timesink.measures.timeline import Device, covered_by_device, device_names, device_timeline
from timesink.measures.timeline.attribution import launch_links
from timesink.measures.timeline.synchronisations import blocking_calls
from timesink.model.arrays import BoolArray, Int64Array, median
from timesink.model.intervals import Intervals
from timesink.model.names import of_each
from timesink.model.nesting import key_slices, slice_of
from timesink.model.schema import has_one_value
from timesink.model.tables import API_CALLS, COLLECTIVES, DEVICE_OPS, DEVICES, HOST_OPS, SOURCES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.units import NS_PER_US
from timesink.whatif import Case
from timesink.whatif.unprofiled import recording_us

# Of a GPU's timeline.
_BUDGET: Final = (
    "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns",
)  # fmt: skip
MEMBERS = {
    "rank": pl.Int32, "device": pl.Int32, "source": pl.String, "host": pl.String, "clock": pl.String,
    "world_size": pl.Int32, "device_name": pl.String, "visible_devices": pl.Int32,
    **dict.fromkeys(("start_ns", "end_ns", *_BUDGET, "peer_copy_ns", "peer_copy_bytes"), pl.Int64),
}  # fmt: skip
SPANS = {"rank": pl.Int32, "device": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64}
STEPS = {"rank": pl.Int32, "device": pl.Int32, "step": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64,
         "compute_ns": pl.Int64, "host_busy_ns": pl.Int64, "recorded_ns": pl.Int64}  # fmt: skip
# `holds`: no computation ran at the collective's last instant, and computation went on before the next collective was
# over: the rank had waited for this one. Collectives that run on while a rank has nothing left to compute hold it only
# at the last. `peer`: the rank that is sent to or received from. `work_before_ns`: computation since the collective
# before it on this GPU ended. `labelled`: the profiler names its group.
CALLS = {
    "rank": pl.Int32, "device": pl.Int32, "start_ns": pl.Int64, "end_ns": pl.Int64, "stream": pl.Int64,
    "kind": pl.String, "group": pl.String, "group_size": pl.Int32, "sequence": pl.Int64, "peer": pl.Int32,
    "bytes": pl.Int64, "labelled": pl.Boolean, "holds": pl.Boolean, "work_before_ns": pl.Int64,
}  # fmt: skip
HOST_STEPS = {"rank": pl.Int32, "step": pl.Int32, "host_busy_ns": pl.Int64, "recorded_ns": pl.Int64}
SCHEMAS: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "members": MEMBERS,
    "calls": CALLS,
    "exposed": SPANS,
    "steps": STEPS,
    "parity": PARITY,
}


class Job(Record, eq=False):
    """Tables of the ranks that were read; all times are ns by each rank's own clock.

    `members`: one row per rank and GPU with its time budget (compute + exposed communication + exposed copy + idle =
    span) and what it copied directly to or from other GPUs. `calls`: its collectives (`CALLS`). `exposed`: intervals of
    communication with no computation at the same time. `steps`: device windows of its steady steps, how long the
    host did not wait in each, and what recording took of that at least. `parity`: facts to be equal on all ranks.
    """

    members: pl.DataFrame
    calls: pl.DataFrame
    exposed: pl.DataFrame
    steps: pl.DataFrame
    parity: pl.DataFrame

    @classmethod
    def empty(cls) -> Self:
        """No rank: the neutral element of `merged`."""
        return cls(**{name: pl.DataFrame(schema=schema) for name, schema in SCHEMAS.items()})

    @classmethod
    def merged(cls, parts: Iterable[Self]) -> Self:
        """All ranks of the parts, in an order that does not depend on theirs."""
        jobs = tuple(parts) or (cls.empty(),)
        return cls(**{name: _merge_tables([getattr(job, name) for job in jobs]) for name in SCHEMAS})

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that were read, ascending."""
        return tuple(self.members["rank"].unique().sort().to_list())


@remembered
def ranks_of(trace: Trace) -> tuple[int, ...]:
    """The `ranks` of the job of a trace, without the rest of it."""
    return tuple(sorted({line.rank for line in device_timeline(trace)} | set(trace.get(SOURCES)["rank"].to_list())))


def in_order(table: pl.DataFrame) -> pl.DataFrame:
    """The rows of a table of a job by every column."""
    return table if _is_in_order(table) else table.sort(pl.all(), nulls_last=True)


def _is_in_order(table: pl.DataFrame) -> bool:
    """Whether that is plain to see: behind columns of one value each, one of integers ascends without equals."""
    for column in table.get_columns():
        if not has_one_value(column):
            values = column.to_numpy() if column.dtype.is_integer() and not column.null_count() else np.zeros(2)
            return table.height < 2 or bool((values[1:] > values[:-1]).all())
    return True


def _merge_tables(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """All rows of tables, each of which is in order. The first column is the rank, so those of different ranks follow
    one another, and need no sorting.
    """
    held = sorted((table for table in tables if table.height), key=lambda table: int(table["rank"][0]))
    whole = pl.concat(held or tables[:1])
    apart = all(one["rank"][-1] < other["rank"][0] for one, other in pairwise(held))
    return whole if apart else in_order(whole)


@remembered
def job(trace: Trace) -> Job:
    """The tables of every rank in a trace."""
    lines = device_timeline(trace)
    windows = steps(trace).windows.select("rank", "device", "step", "start_ns", "end_ns")
    computed = covered_by_device(windows, {key: line.compute for key, line in lines.by_device.items()})
    exposed = [
        pl.DataFrame(
            {"rank": line.rank, "device": line.device, "start_ns": part.start_ns, "end_ns": part.end_ns}, schema=SPANS
        )
        for line in lines
        if len(part := line.exposed_communication)
    ]
    tables = {
        "members": _members(trace),
        "calls": job_calls(trace),
        "exposed": pl.concat([pl.DataFrame(schema=SPANS), *exposed]),
        "steps": windows.with_columns(pl.Series("compute_ns", computed, pl.Int64)).join(
            host_steps(trace), on=["rank", "step"], how="left", maintain_order="left"
        ),
        "parity": parity_facts(trace),
    }
    return Job(**{name: in_order(table) for name, table in tables.items()})


def _members(trace: Trace) -> pl.DataFrame:
    """One row per GPU that did any work, and per source without one, so that a rank that did nothing is not lost."""
    sources = sorted(trace.get(SOURCES).iter_rows(named=True), key=lambda row: (row["rank"], row["path"]), reverse=True)
    source_of = {row["rank"]: _source_columns(row) for row in sources}  # of several of a rank the first by its path
    names = device_names(trace)
    visible = Counter(trace.get(DEVICES)["rank"])
    peer_copies = _peer_copies(trace)
    rows = []
    for line in device_timeline(trace):
        device = (line.rank, line.device)
        copied_ns, copied_bytes = peer_copies.get(device, (0, 0))
        rows.append(
            {
                **source_of.get(line.rank, {}),
                **{name: getattr(line, name) for name in ("rank", "device", *_BUDGET)},
                "device_name": names.get(device),
                "visible_devices": visible.get(line.rank),
                "start_ns": line.span_start_ns,
                "end_ns": line.span_end_ns,
                "peer_copy_ns": copied_ns,
                "peer_copy_bytes": copied_bytes,
            }
        )
    seen = set(map(itemgetter("rank"), rows))
    rows += [{**columns, "rank": rank, "device": None} for rank, columns in source_of.items() if rank not in seen]
    return pl.DataFrame(rows, schema=MEMBERS)


def _peer_copies(trace: Trace) -> dict[Device, tuple[int, int]]:
    """Per GPU, time and bytes of its copies from GPU to GPU. The copy engine moves them: no other rank takes part."""
    ops = trace.get(DEVICE_OPS)
    between = ops["copy_kind"] == "p2p"
    if not between.any():
        return {}
    copies = ops.filter(between)
    length = (pl.col("end_ns") - pl.col("start_ns")).sum()
    each = copies.group_by("rank", "device").agg(length.alias("length_ns"), pl.col("bytes").fill_null(0).sum())
    return {(rank, device): (length_ns, size) for rank, device, length_ns, size in each.rows()}


def _source_columns(source: Mapping[str, object]) -> dict[str, object]:
    """Ranks share a clock where their host is known to be one, or where one file holds them."""
    path, digest, host = source["path"], source["sha256"], source["host"]
    clock = f"host {host}" if host else f"file {digest or path}"  # a file of several ranks has one clock for all
    return {"source": path, "host": host, "clock": clock, "world_size": source["world_size"]}


def exposed_by_device(exposed: pl.DataFrame) -> dict[Device, Intervals]:
    """The `exposed` of a job per (rank, device), in place: its rows are in order, and those of a GPU do not overlap."""
    start, end = exposed["start_ns"].to_numpy(), exposed["end_ns"].to_numpy()
    of_device = key_slices(exposed, ("rank", "device"))
    return {(rank, device): Intervals(start[low:high], end[low:high]) for (rank, device), low, high in of_device}


def step_ns(job: Job) -> float:
    """Mean step of the slowest rank; the longest span where no rank has steady steps."""
    period = (pl.col("end_ns") - pl.col("start_ns")).alias("length_ns")
    frame = job.steps if job.steps.height else job.members
    means = frame.with_columns(period).group_by("rank").agg(pl.col("length_ns").mean())
    longest = means["length_ns"].max()
    return float(longest) if isinstance(longest, (int, float)) else 0.0


def as_often_ns(trace: Trace, share: float) -> tuple[float, float]:
    """A share of the mean step, and that step, with slow steps as often as they come in the run: of what they have
    beyond the usual step, they have that share. A rank without steady steps says nothing of how long they are."""
    recorded, steps = step_ns(job(trace)), job(trace).steps
    gain = share * recorded
    if not slow_rates(trace):
        return gain, recorded
    often = max(period_ns(trace, device) for device in set(steps.select("rank", "device").iter_rows()))
    beyond_usual = max(recorded - median((steps["end_ns"] - steps["start_ns"]).to_numpy()), 1.0)
    return gain + min(gain / beyond_usual, 1.0) * (often - recorded), often


# What identifies a collective's device work in the tables of a trace.
OP_KEY: Final = ["rank", "device", "stream", "start_ns", "end_ns"]
_LABELS: Final = ["kind", "group", "group_size", "sequence", "peer", "bytes", "labelled"]


def job_calls(trace: Trace) -> pl.DataFrame:
    """One row per collective with device work (per message in a batch), by rank, device and start; columns: `CALLS`."""
    recorded = trace.get(COLLECTIVES).filter(pl.col("device").is_not_null()).unique(OP_KEY, keep="first")
    labelled = _add_labels(recorded).select(*OP_KEY, *_LABELS)
    ops = trace.get(DEVICE_OPS)
    talks = np.flatnonzero(class_of_ops(trace).to_physical().to_numpy() == COMMUNICATION)
    kernels = ops[[*OP_KEY, "name"]][talks]
    others = kernels.join(labelled.select(OP_KEY), on=OP_KEY, how="anti")
    by_name = others.select(
        *OP_KEY,
        of_each(others["name"], kind_of_kernel, pl.String).alias("kind"),
        *(pl.lit(None, CALLS[name]).alias(name) for name in _LABELS[1:-1]),
        pl.lit(False).alias("labelled"),
    )
    calls = _add_groups(_split_batches(trace, pl.concat([labelled, by_name])))
    calls = calls.sort("rank", "device", "start_ns", "end_ns", "stream", "kind", nulls_last=True)
    return _add_surroundings(trace, calls).select(pl.col(name).cast(dtype) for name, dtype in CALLS.items())


def _add_labels(recorded: pl.DataFrame) -> pl.DataFrame:
    """Rows of `collectives` with the columns of `_LABELS`. A group is its name and its members."""
    kinds = recorded["kind"].cast(pl.String)
    sizes = [
        message_bytes(kind, in_bytes, out_bytes)
        for kind, in_bytes, out_bytes in zip(kinds, recorded["in_bytes"], recorded["out_bytes"], strict=True)
    ]
    group, members = pl.col("group").cast(pl.String), pl.col("group_ranks").cast(pl.String)
    return recorded.with_columns(
        kinds,
        pl.when(group.is_not_null())
        .then(pl.concat_str(group, members, separator=" ", ignore_nulls=True))
        .alias("group"),
        pl.Series("bytes", sizes, pl.Int64),
        group.is_not_null().alias("labelled"),
    )


def launches_of(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The host calls that launched the device work of `calls`: `OP_KEY`, launch_ns (when it began), launch_length_ns.

    Work whose launch was not recorded has no row; ops that merely start with one of `calls` may have one.
    """
    ops, api, call = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace).call
    at_a_start = ops["start_ns"].is_in(calls["start_ns"].unique().implode()).to_numpy()
    rows = np.flatnonzero(at_a_start & (call >= 0))
    start, end = (api[name][call[rows]] for name in ("start_ns", "end_ns"))
    launched = ops.select(OP_KEY)[rows].with_columns(start.alias("launch_ns"), (end - start).alias("launch_length_ns"))
    return launched.unique(OP_KEY, keep="first")


def _split_batches(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """The same calls, kernels of recorded batches once per message; each then has the times of its kernel."""
    messages = trace.get(COLLECTIVES).filter(
        pl.col("device").is_null() & pl.col("peer").is_not_null() & pl.col("kind").cast(pl.String).is_in(POINT_TO_POINT)
    )
    kernels = calls.filter(calls["kind"] == EXCHANGE)
    if not messages.height or not kernels.height:
        return calls
    launched = kernels.join(launches_of(trace, kernels), on=OP_KEY, how="inner").sort("launch_ns")
    names = [name for name in _LABELS if name != "sequence"]
    messages = _add_labels(messages).with_columns(labelled=pl.lit(True))
    messages = messages.select("rank", pl.col("start_ns").alias("call_ns"), pl.col(names).name.prefix("message_"))
    messages = messages.sort("call_ns").join_asof(
        launched.select(*OP_KEY, "launch_ns"), left_on="call_ns", right_on="launch_ns", by="rank", strategy="forward",
        check_sortedness=False,
    )  # fmt: skip
    messages = messages.drop_nulls("start_ns").drop("call_ns", "launch_ns")
    joined = calls.join(messages, on=OP_KEY, how="left", maintain_order="left")
    in_batch = pl.col("message_kind").is_not_null()
    return joined.with_columns(
        pl.when(in_batch).then(f"message_{name}").otherwise(name).alias(name) for name in names
    ).select(calls.columns)


def _add_groups(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls without a label get the group of the others on their stream, where these have one: a group has a stream."""
    if calls["group"].null_count() == calls.height:
        return calls
    stream = ["rank", "device", "stream"]
    known = pl.col("group").drop_nulls()
    size = pl.col("group_size").drop_nulls().first().over(stream)
    alone = known.n_unique().over(stream) == 1
    return calls.with_columns(
        pl.when(alone).then(pl.coalesce("group", known.first().over(stream))).otherwise("group").alias("group"),
        pl.when(alone).then(pl.coalesce("group_size", size)).otherwise("group_size").alias("group_size"),
    )


def _add_surroundings(trace: Trace, calls: pl.DataFrame) -> pl.DataFrame:
    """Whether each held its rank, and how much the GPU computed since the one before."""
    lines = device_timeline(trace)
    parts = [calls.clear().with_columns(holds=pl.lit(False), work_before_ns=pl.lit(0, pl.Int64))]
    for (rank, device), own in calls.partition_by("rank", "device", as_dict=True, maintain_order=True).items():
        start, end = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
        if (line := lines.by_device.get((rank, device))) is None:  # its GPU work was lost
            continue
        exposed, compute = line.exposed_communication, line.compute
        before = np.concatenate(([line.span_start_ns], np.maximum.accumulate(end)[:-1]))
        parts.append(
            own.with_columns(
                pl.Series("holds", _holds(end, exposed, compute)),
                pl.Series("work_before_ns", compute.covered_ns(np.minimum(before, start), start)),
            )
        )
    return pl.concat(parts)


def _holds(end: Int64Array, exposed: Intervals, compute: Intervals) -> BoolArray:
    """Whether each collective held its rank: exposed at its last instant, and computation resumed before the next end.

    Three collectives of one GPU in order of start, with computation from 130 to 190:

        end   exposed at the end   computation resumes   next end   holds
        100          yes                   130              120     no: the next one was waited for
        120          yes                   130              200     yes
        200          yes                  never          never      no
    """
    latest = np.iinfo(np.int64).max
    resumed = np.append(compute.start_ns, latest)[np.searchsorted(compute.start_ns, end)]
    next_over = np.append(np.maximum.accumulate(end)[1:], latest - 1)
    return (exposed.covered_ns(end - 1, end) > 0) & (resumed <= next_over)


def host_steps(trace: Trace) -> pl.DataFrame:
    """rank, step, host_busy_ns, recorded_ns of every kept step. Busy: outside blocking calls of the step's own thread,
    and no longer than in the usual step that is whole on the rank's host: one that runs ahead catches up on others.
    Recorded: what torch.profiler took of it at least.

    A rank of which no call was recorded has no row: nothing says what its host did.
    """
    seen = set(trace.get(API_CALLS)["rank"].unique())
    waits = blocking_calls(trace)
    parts = [pl.DataFrame(schema=HOST_STEPS)]
    whole = steps(trace).frame.filter(pl.col("status").is_in([KEPT, WARM_UP, STANDS_OUT]))
    for (rank, process, thread), own in whole.partition_by("rank", "process", "thread", as_dict=True).items():
        if rank not in seen:
            continue
        key = (rank, process) if thread is None else (rank, process, thread)
        first, last = slice_of(waits, ("rank", "process", "thread")[: len(key)], key)
        start, end = own["host_start_ns"].to_numpy(), own["host_end_ns"].to_numpy()
        busy_ns = end - start - Intervals.of(waits[first:last]).covered_ns(start, end)
        usual_ns = np.minimum(busy_ns, np.quantile(busy_ns, 0.5, method="lower"))
        least_us = recording_us(trace.get, rank)[Case.CAUTIOUS.value] if trace.get(HOST_OPS).height else 0.0
        recorded_ns = int(least_us * NS_PER_US / (steps(trace).frame["rank"] == rank).sum())
        times = own.select("rank", "step", host_busy_ns=pl.Series(usual_ns), recorded_ns=pl.lit(recorded_ns, pl.Int64))
        parts.append(times.filter(own["status"] == KEPT))
    return pl.concat(parts).sort("rank", "step").unique(["rank", "step"], keep="first", maintain_order=True)
