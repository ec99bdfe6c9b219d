"""The program's start, in which CUDA loads kernels and libraries and sets up the device.

The first launch of a kernel loads it or its module, the first allocation makes a context, the first run of an operator
loads its library: single times of a tenth of a millisecond to seconds, while the device has nothing to do. Later
launches, allocations and runs take microseconds. What is as long again later on is no start-up but a cost of every
step, and what comes once in the middle is a slow step: start-up is told by recurrence and place, its length only says
what is worth a look.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.assumptions import idle as assumed
from timesink.knowledge.calls import LAUNCH, LOADS_LIBRARY, CallKind, call_kinds
from timesink.measures.timeline import device_timeline
from timesink.measures.timeline.attribution import host_nesting, launch_links
from timesink.model.arrays import Int64Array, found_at
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.model.trace import Trace, remembered
from timesink.records import Record, field
from timesink.units import NS_PER_MS

_TOO_LONG = assumed.START_UP_FIRST_LAUNCH_MS, assumed.START_UP_LAUNCH_MS, assumed.START_UP_CALL_MS
_NEVER = 1 << 62  # ns, later than any clock's time
_SETS_UP = (CallKind.OTHER, CallKind.ALLOCATE, CallKind.FREE)  # the others wait for the device, copies too


class StartUp(Record):
    """`count` calls set up the device for `idle_ns` of the `span_ns` of all devices, `longest` alone for `longest_ns`.

    `calls`: when, by rank. `of_runs`: whether first runs of operators are among them. A span begins with the calls of
    the program's own work before the device has any.
    """

    calls: Mapping[int, Intervals] = field(default_factory=dict)
    count: int = 0
    idle_ns: int = 0
    span_ns: int = 0
    longest: str = ""
    longest_ns: int = 0
    of_runs: bool = False

    @property
    def share(self) -> float:
        """Idle time in such calls over the span of the devices, 0 to 1."""
        return self.idle_ns / self.span_ns if self.span_ns else 0.0

    @property
    def is_most(self) -> bool:
        """Whether the trace is the program's start, and what little comes back in it no loop of steps."""
        return 0 < self.span_ns <= 2 * self.idle_ns

    def holds(self, stretches: pl.DataFrame) -> pl.Series:
        """Which of some stretches (rank, start_ns, end_ns) have such a call in them."""
        start_ns, end_ns, rank = (stretches[name].to_numpy() for name in ("start_ns", "end_ns", "rank"))
        held = np.zeros(stretches.height, np.bool_)
        for own, calls in self.calls.items():
            held |= (rank == own) & (calls.covered_ns(start_ns, end_ns) > 0)
        return pl.Series(held)


@remembered
def start_up(trace: Trace) -> StartUp:
    """Calls that neither wait nor copy, and first runs of operators, too long for what they do, during which a device
    of their rank stood idle; of both those that the program's start has and its later part has not.

    Before the device's first work only launches count, what is called after the first operator, and operators: a
    program that is recorded whole makes its context before it has anything to do.
    """
    calls, runs = _first_calls(trace), _first_runs(trace)
    if not calls.height and not runs.height:
        return StartUp()
    parts = pl.concat([calls.select("rank", pl.col("name").cast(pl.String), "start_ns", "end_ns"), runs]).sort(
        "end_ns", "start_ns"
    )
    begun_ns = trace.get(HOST_OPS)["start_ns"].min() or _NEVER
    at_work = matches(parts["name"], LAUNCH) | (parts["start_ns"] >= begun_ns)
    idle_ns, led_ns, idle = 0, 0, np.zeros(parts.height, np.int64)
    by_rank = {rank: _union(parts.filter(pl.col("rank") == rank)) for rank in parts["rank"].unique()}
    for (rank, _), line in device_timeline(trace).by_device.items():
        own = parts["rank"] == rank
        ahead = _union(parts.filter(own & at_work)).clip(_EVER, line.span_start_ns)
        waiting = line.idle | ahead
        led_ns += ahead.total_ns
        idle_ns += (by_rank.get(rank, Intervals.none()) & waiting).total_ns
        waited = waiting.covered_ns(parts["start_ns"].to_numpy(), parts["end_ns"].to_numpy())
        idle = np.maximum(idle, np.where(own.to_numpy(), waited, 0))
    longest, span_ns = parts.row(int(idle.argmax()), named=True), sum(line.span_ns for line in device_timeline(trace))
    of_runs, longest_ns = bool(runs.height), int(idle.max())
    return StartUp(by_rank, int((idle > 0).sum()), idle_ns, span_ns + led_ns, longest["name"], longest_ns, of_runs)


_EVER: Final = -(1 << 62)  # ns, before any clock's time


def _union(rows: pl.DataFrame) -> Intervals:
    return Intervals.union_of(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())


def _first_calls(trace: Trace) -> pl.DataFrame:
    """Rows of `api_calls` that set up the device: long ones before work comes back, and first launches of a kernel
    anywhere; neither where calls of their kind are as long later on, at least half as often. The kind of a launch is
    the kernel that it launches first. A graph's launch is the first of all its kernels: only where a later one takes
    less is it more than what every launch of it costs."""
    first, launch, other = (each.value * NS_PER_MS for each in _TOO_LONG)
    length, key = pl.col("end_ns") - pl.col("start_ns"), ("rank", "kind")
    calls = trace.get(API_CALLS).with_row_index("row").filter(length >= min(first, launch, other) / 2)  # few of many
    sets_up = pl.Series(np.isin(call_kinds(calls["name"]), _SETS_UP), dtype=pl.Boolean)
    kernel, is_first, of_graph = _launches_of(trace, calls["row"].to_numpy())
    launches, loads = matches(calls["name"], LAUNCH), matches(calls["name"], LOADS_LIBRARY) | is_first
    least_ns = pl.when(loads).then(first).when(launches).then(launch).otherwise(other)
    kind = pl.concat_str(calls["name"].cast(pl.String), kernel.cast(pl.String), separator=" ")
    warm = pl.DataFrame(list(_warm_ns(trace).items()), {"rank": pl.Int32, "warm_ns": pl.Int64}, orient="row")
    calls = calls.with_columns(is_first=is_first, of_graph=of_graph, least_ns=least_ns, sets_up=sets_up)
    calls = calls.with_columns(kind=kind).join(warm, on="rank", how="left", maintain_order="left")
    early = (pl.col("start_ns") < pl.col("warm_ns").fill_null(_NEVER)) | pl.col("is_first")
    calls = calls.filter("sets_up").with_columns(early=early & (length >= pl.col("least_ns")), length=length)
    usual = pl.col("length").filter("early").median().over(key)
    again = ((~pl.col("early")) & (2 * pl.col("length") >= usual)).sum().over(key)
    comes_back = (2 * again >= pl.col("early").sum().over(key)) | (pl.col("of_graph") & (pl.len().over(key) < 2))
    return calls.filter(pl.col("early") & ~comes_back)


def _launches_of(trace: Trace, rows: Int64Array) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Of some rows of `api_calls`: the number of the first kernel's name that each launches, -1 where none is known;
    whether no earlier call launched it; and whether it launches more than one, as a graph does."""
    names, call = trace.get(DEVICE_OPS)["name"].to_physical().to_numpy(), launch_links(trace).call
    linked = np.flatnonzero(call >= 0)
    order = linked[np.argsort(call[linked], kind="stable")]
    launching, first_op, count = np.unique(call[order], return_index=True, return_counts=True)
    kernel = names[order[first_op]].astype(np.int64)
    is_first = np.zeros(launching.size, np.bool_)
    is_first[np.unique(kernel, return_index=True)[1]] = True
    at = np.searchsorted(launching, rows).clip(max=max(launching.size - 1, 0))
    known = (launching[at] == rows) if launching.size else np.zeros(rows.size, np.bool_)
    if not launching.size:
        return pl.Series(np.full(rows.size, -1)), pl.Series(known), pl.Series(known)
    of_graph = known & (count[at] > 1)
    return pl.Series(np.where(known, kernel[at], -1)), pl.Series(known & is_first[at]), pl.Series(of_graph)


@remembered
def _warm_ns(trace: Trace) -> dict[int, int]:
    """Per rank when its work first comes back: the first kernel that ran before, after the last one to run for the
    first time of those that run again. What runs once, as an evaluation at the end, keeps no program cold. No entry
    where nothing comes back."""
    ops = trace.get(DEVICE_OPS).select("rank", pl.col("name").to_physical(), "start_ns").with_row_index("row")
    launched = found_at(trace.get(API_CALLS)["start_ns"].to_numpy(), launch_links(trace).call)
    at = pl.Series("at", launched)
    ops = ops.with_columns(at=pl.when(at >= 0).then(at).otherwise("start_ns")).sort("at", "row")
    ops = ops.with_columns(
        is_first=pl.int_range(pl.len()).over("rank", "name") == 0, recurs=pl.len().over("rank", "name") > 1
    )
    last_new = pl.col("at").filter(pl.col("is_first") & pl.col("recurs")).max().over("rank")
    again = ops.filter(~pl.col("is_first") & (pl.col("at") >= last_new))
    return dict(again.group_by("rank").agg(pl.col("at").min()).iter_rows())


_LATER: Final = 3.0  # times: no first run is as much longer for what its caches lack


def _first_runs(trace: Trace) -> pl.DataFrame:
    """rank, name, start_ns, end_ns: outermost operators that launch, in their first run, where that takes far longer
    than the median of their later ones, by so much less; of those that never run again, where a launch in them loads
    what it launches. Libraries load so without a call that anybody records. What a run waits or copies for is none of
    it: the first read of a result waits for all work that was sent before."""
    ops = trace.get(HOST_OPS)
    schema = {"rank": pl.Int32, "name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
    length = pl.col("end_ns") - pl.col("start_ns")
    outer = ops.with_row_index("row").filter(pl.Series(host_nesting(trace).parent < 0))
    outer = outer.select("rank", "process", "thread", pl.col("name").cast(pl.String), "start_ns", "end_ns", ns=length)
    least_ns = _TOO_LONG[1].value * NS_PER_MS
    if not (outer["ns"] >= least_ns).any():
        return pl.DataFrame(schema=schema)
    outer = outer.sort("start_ns").with_columns(turn=pl.int_range(pl.len()).over("rank", "name"))
    later = pl.col("ns").filter(pl.col("turn") > 0).median().over("rank", "name")
    first = outer.with_columns(later=later).filter((pl.col("turn") == 0) & (pl.col("ns") >= least_ns))
    loading = _first_calls(trace).filter("is_first")["start_ns"].sort()
    begun, done = (loading.search_sorted(first[end]) for end in ("start_ns", "end_ns"))
    loads = pl.Series(done > begun)
    again = pl.col("later").is_not_null()
    own = pl.col("ns") - pl.Series(_waited_ns(trace, first))
    kept = first.filter(own >= least_ns, (again & (own > _LATER * pl.col("later"))) | (~again & loads))
    end = (pl.col("end_ns") - pl.col("later").fill_null(0).cast(pl.Int64)).alias("end_ns")
    return kept.select("rank", "name", "start_ns", end)


def _waited_ns(trace: Trace, runs: pl.DataFrame) -> Int64Array:
    """Of some operators' runs: time in calls of their thread that wait or copy."""
    calls = trace.get(API_CALLS)
    calls = calls.filter(~pl.Series(np.isin(call_kinds(calls["name"]), _SETS_UP), dtype=pl.Boolean))
    waited_ns = np.zeros(runs.height, np.int64)
    for thread in runs["process", "thread"].unique().iter_rows():
        of_thread = (pl.col("process") == thread[0]) & (pl.col("thread") == thread[1])
        own = runs.select(of_thread).to_series().to_numpy()
        start_ns, end_ns = (runs[end].to_numpy()[own] for end in ("start_ns", "end_ns"))
        waited_ns[own] = _union(calls.filter(of_thread)).covered_ns(start_ns, end_ns)
    return waited_ns
