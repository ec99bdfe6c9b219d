"""Steps: where they begin and end, what each is made of, and which stand out.

Steps: where each begins on the host and on each GPU, how long each takes, which of them count.

Device work belongs to the step of its launch, since the GPU runs late. A step's time is the period between equal
anchors on the device, from its first kernel to the next step's first kernel; the host interval would miss the lag.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.knowledge import calls as known_calls
from timesink.knowledge import ranges
from timesink.knowledge.assumptions import steps as assumed
from timesink.measures.steps.marks import StepMarker, step_marks, step_of_ops
from timesink.measures.steps.proof import StepOrigin
from timesink.measures.timeline.attribution import launch_links
from timesink.model.arrays import Int64Array, found_at, median
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.nesting import key_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record

_PROCESS: Final = ("rank", "process")
_STEP: Final = (*_PROCESS, "step")

KEPT, WARM_UP, TRUNCATED, NO_DEVICE_WORK = "kept", "warm_up", "truncated", "no_device_work"
BEGUN_BEFORE, STANDS_OUT = "begun_before", "stands_out"
Status = pl.Enum([KEPT, WARM_UP, TRUNCATED, NO_DEVICE_WORK, BEGUN_BEFORE, STANDS_OUT])
_AHEAD: Final = 100
"""Steps that a first one is compared with: enough for their median, too few for work that changes to change much."""


class StepTimes(Record):
    """Step periods of one rank. A quantile is None where `count` is too small to state it (p90: 10, p99: 100)."""

    count: int
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: int | None
    min_ns: int | None = None


class Steps(Record, eq=False):
    """Steps of every rank.

    `frame`: rank, process, step, label, thread, host_start_ns, host_end_ns, mark_end_ns, status; every step found,
    dropped ones too. Of a trace cut to a window, those with work on a GPU in it, where any has.
    `windows`: rank, device, step, start_ns, end_ns, period_ns; the device windows of kept steps, which per-step figures
    divide by. On one device they do not overlap. `host`: rank, step, start_ns, end_ns; the same steps on the host, from
    the launch of what a window begins with to the launch of what ends it, on the device that times the rank: what a
    replay measures its steps between, so that both are the same steps. `by_rank`: times per rank. `times`: those of the
    slowest rank, which sets the pace of a synchronous job. `dropped`: how many steps were left out, by reason, all
    ranks together.
    """

    marker: StepMarker | None
    origin: StepOrigin | None
    marker_name: str
    frame: pl.DataFrame
    windows: pl.DataFrame
    host: pl.DataFrame
    by_rank: Mapping[int, StepTimes]
    times: StepTimes
    dropped: Mapping[str, int]

    @property
    def count(self) -> int:
        """Kept steps of the rank that sets the pace."""
        return self.times.count

    @property
    def kept(self) -> pl.DataFrame:
        """The kept rows of `frame`."""
        return self.frame.filter(pl.col("status") == KEPT)

    def labels_of(self, rows: pl.DataFrame) -> pl.Series:
        """What the program calls the steps of some rows (rank, step): ``ProfilerStep#5``."""
        labels = self.kept.select("rank", "step", "label").unique(["rank", "step"], keep="first")
        return rows.join(labels, on=["rank", "step"], how="left", maintain_order="left")["label"]


@remembered
def steps(trace: Trace) -> Steps:
    """Find steps, time them, and drop warm-up and truncated ones."""
    marks = step_marks(trace)
    anchors = _device_anchors(trace)
    lead = _leading_device(anchors)
    begun_before = _begun_before(marks.frame, lead, trace)
    # Where steps went on before the window, its first ones are no warm-up: they were asked for.
    periods = _periods(marks.frame, lead)
    fresh = periods
    if begun_before.height:
        fresh = periods.join(begun_before, on=_PROCESS, how="anti", maintain_order="left")
    frame = _with_status(marks.frame, lead, _warm_up_count(trace, marks.frame, fresh), begun_before, trace)
    kept = frame.filter(pl.col("status") == KEPT).select(_STEP)
    windows = (
        anchors.join(kept, on=_STEP, how="semi")
        .select("rank", "device", "step", "start_ns", "end_ns", period_ns=pl.col("end_ns") - pl.col("start_ns"))
        .filter(pl.col("period_ns") > 0)
        .sort("rank", "device", "step")
    )
    if frame.height < marks.frame.height:
        periods = _periods(frame, lead)
    by_rank = _times_by_rank(periods.join(kept, on=_STEP, how="semi", maintain_order="left"))
    statuses = frame["status"].to_list()
    return Steps(
        marker=marks.marker,
        origin=marks.origin,
        marker_name=marks.name,
        frame=frame,
        windows=windows,
        host=_host_windows(frame, lead),
        by_rank=by_rank,
        times=max(by_rank.values(), key=lambda times: (times.p50_ns or 0.0, times.count), default=step_times([])),
        dropped={why: statuses.count(why) for why in sorted(set(statuses) - {KEPT})},
    )


@remembered
def covered_ratio(trace: Trace) -> float | None:
    """The share of what was recorded in which the host is at any step or a device runs a kept one, 0 to 1; None without
    steps."""
    found, extent_ns = steps(trace), trace.extent_ns
    if not found.frame.height or extent_ns is None:
        return None
    host = Intervals.union_of(found.frame["host_start_ns"].to_numpy(), found.frame["host_end_ns"].to_numpy())
    covered = (host | Intervals.of(found.windows)).clip(*extent_ns)
    return covered.total_ns / max(extent_ns[1] - extent_ns[0], 1)


@remembered
def outside_steps(trace: Trace) -> tuple[int, int]:
    """The devices' work that belongs to no step, kept or left out, and all of it, summed in ns; none where there are no
    steps. Of what no launch is known it is what runs before the first begins on the host or after the last one's mark
    ends."""
    marks = step_marks(trace).frame
    if not marks.height:
        return 0, 0
    ops = trace.get(DEVICE_OPS)
    length_ns, start_ns = (ops["end_ns"] - ops["start_ns"]).to_numpy(), ops["start_ns"].to_numpy()
    first_ns, last_ns = marks["host_start_ns"].min(), marks[["host_end_ns", "mark_end_ns"]].max_horizontal().max()
    within = ~launch_links(trace).linked & (start_ns >= first_ns) & (start_ns < last_ns)
    outside = (step_of_ops(trace) < 0) & ~within
    return int(length_ns[outside].sum()), int(length_ns.sum())


def step_times(periods_ns: npt.ArrayLike) -> StepTimes:
    """Quantiles of step periods, where there are enough of them."""
    periods = np.asarray(periods_ns, np.int64)

    def quantile(share: float, needs: int) -> float | None:
        return float(np.quantile(periods, share)) if periods.size >= needs else None

    return StepTimes(
        count=int(periods.size),
        p50_ns=quantile(0.5, 1),
        p90_ns=quantile(0.9, assumed.P90_NEEDS.whole),  # by the definition of p90
        p99_ns=quantile(0.99, assumed.P99_NEEDS.whole),  # by the definition of p99
        max_ns=int(periods.max()) if periods.size else None,
        min_ns=int(periods.min()) if periods.size else None,
    )


def _host_windows(frame: pl.DataFrame, lead: pl.DataFrame) -> pl.DataFrame:
    """`Steps.host`: between launches of the kernels that begin a step's window and the next one's, just after each; of
    a process in which one of them has no known launch, from mark to mark."""
    kept = frame.filter(pl.col("status") == KEPT)
    begun = kept.join(lead.select(*_STEP, "launched_ns", "next_ns"), on=_STEP, how="left", maintain_order="left")
    known = (pl.col("next_ns") > pl.col("launched_ns")).fill_null(False).all().over(_PROCESS)
    start, end = (
        pl.when(known).then(pl.col(launch) + 1).otherwise(mark)
        for launch, mark in (("launched_ns", "host_start_ns"), ("next_ns", "host_end_ns"))
    )
    return begun.select("rank", "step", start_ns=start, end_ns=end).sort("rank", "start_ns", "end_ns")


def _device_anchors(trace: Trace) -> pl.DataFrame:
    """Per (rank, process, device, step): start_ns of its first kernel, end_ns at the next step's first kernel (null
    where the next step has none), when the two were launched (launched_ns, next_ns), and ops_on_device.

    Where two processes share a GPU, the one with more ops on it sets the windows. A step without kernels starts with
    its first copy, but not the last step of a trace cut to a window: after the window's end there may be a kernel that
    belongs to the step of that copy. What runs ahead of the step before, on another stream, begins no step: windows do
    not overlap.
    """
    key = ["rank", "process", "device"]
    ops = trace.get(DEVICE_OPS)
    is_kernel = ops["kind"].is_in(["kernel", "graph"])
    columns = [*(ops[name] for name in (*key, "start_ns")), is_kernel.alias("is_kernel")]
    columns.append(pl.Series("step", step_of_ops(trace), pl.Int32))
    # Ops of a device come by start: of neighbours that are alike, the first is the earliest.
    new = np.full(ops.height, False)
    new[:1] = True
    for column in columns:
        if column.name != "start_ns":
            values = column.to_numpy()
            new[1:] |= values[1:] != values[:-1]
    first = np.flatnonzero(new)
    count = pl.Series("ops_on_device", np.diff(first, append=ops.height), pl.UInt32)
    launched_ns = found_at(trace.get(API_CALLS)["start_ns"].to_numpy(), launch_links(trace).call[first])
    launched = pl.Series("launched_ns", launched_ns, pl.Int64)
    runs = pl.DataFrame([*(column[first] for column in columns), count, launched.set(launched < 0, None)])
    owners = runs.group_by("rank", "device", "process").agg(pl.col("ops_on_device").sum())
    owners = owners.sort(["rank", "device", "ops_on_device", "process"], descending=[False, False, True, False])
    owners = owners.unique(["rank", "device"], keep="first", maintain_order=True)
    kernel_ns = pl.col("start_ns").filter("is_kernel").min()
    launch = pl.coalesce(pl.col("launched_ns").filter("is_kernel").first(), pl.col("launched_ns").first())
    certain = pl.lit(True) if trace.cut_to is None else pl.col("step") < pl.col("step").max().over(key)
    is_next = pl.col("step").shift(-1).over(key) == pl.col("step") + 1
    ends = (
        pl.when(is_next).then(pl.col(name).shift(-1).over(key)).alias(end)
        for name, end in (("start_ns", "end_ns"), ("launched_ns", "next_ns"))
    )
    return (
        runs.filter(pl.col("step") >= 0)
        .group_by(*key, "step")
        .agg(kernel_ns.alias("kernel_ns"), pl.col("start_ns").min(), launch)
        .filter(certain | pl.col("kernel_ns").is_not_null())
        .with_columns(pl.col("kernel_ns").fill_null(pl.col("start_ns")).alias("start_ns"))
        .drop("kernel_ns")
        .join(owners, on=["rank", "device", "process"], how="inner")
        .sort(*key, "step")
        .with_columns(pl.col("start_ns").cum_max().over(key))
        .with_columns(ends)
    )


def _leading_device(anchors: pl.DataFrame) -> pl.DataFrame:
    """The anchors on each process's busiest GPU: the one whose periods time the rank."""
    if anchors["device"].min() == anchors["device"].max():
        return anchors
    key = ["rank", "process", "device"]
    busiest = anchors.sort(["rank", "process", "ops_on_device", "device"], descending=[False, False, True, False])
    busiest = busiest.unique(_PROCESS, keep="first", maintain_order=True)
    return anchors.join(busiest.select(key), on=key, how="semi").sort(_STEP)


def _complete_from(trace: Trace) -> pl.DataFrame:
    """rank, process, complete_ns: when a step must have begun on the host for all its kernels to be in the window.

    A stream runs its work in the order of launch. What ended before the window was launched before the window, and
    before the first op of its stream that is in it. Empty for a trace that was not cut at its beginning.
    """
    if trace.cut_to is None or trace.cut_to.start_ns <= trace.cut_to.first_ns:
        return pl.DataFrame(schema={"rank": pl.Int32, "process": pl.Int64, "complete_ns": pl.Int64})
    processes = step_marks(trace).frame.select(_PROCESS).unique()
    opens = pl.lit(trace.cut_to.start_ns)
    if step_marks(trace).on_device:
        return processes.with_columns(opens.alias("complete_ns"))
    call = pl.Series("call", launch_links(trace).call)
    ops = trace.get(DEVICE_OPS).select(*_PROCESS, "device", "stream").with_columns(call)
    calls = trace.get(API_CALLS).select(pl.int_range(pl.len(), dtype=pl.Int64).alias("call"), "start_ns")
    first_launch = ops.join(calls, on="call").group_by(*_PROCESS, "device", "stream").agg(pl.col("start_ns").min())
    latest = first_launch.group_by(_PROCESS).agg(pl.min_horizontal("start_ns", opens).max().alias("complete_ns"))
    return processes.join(latest, on=_PROCESS, how="left").with_columns(pl.col("complete_ns").fill_null(opens))


def _begun_before(frame: pl.DataFrame, lead: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """rank, process, step of the steps that lack, or may lack, some of their work: it ran before the window."""
    complete = _complete_from(trace)
    if trace.cut_to is None or not complete.height:
        return frame.select(_STEP).clear()
    opens_ns = trace.cut_to.start_ns
    anchored = frame.join(complete, on=_PROCESS).join(lead.select(*_STEP, "start_ns"), on=_STEP, how="left")
    early = (pl.col("host_start_ns") < pl.col("complete_ns")) | (pl.col("start_ns") < opens_ns).fill_null(False)
    return anchored.filter(early).select(_STEP)


def _with_status(
    frame: pl.DataFrame, lead: pl.DataFrame, warm_up: pl.Series, begun_before: pl.DataFrame, trace: Trace
) -> pl.DataFrame:
    """The steps with their status. Of a trace cut to a window, a step of which only launches are in it is left out."""
    window = trace.cut_to
    anchored = frame.hstack([warm_up]).join(lead.select(*_STEP, "start_ns", "end_ns"), on=_STEP, how="left")
    anchored = anchored.with_columns(on_device=pl.col("start_ns").is_not_null().any().over(_PROCESS))
    if begun_before.height:
        early = begun_before.with_columns(early=pl.lit(True))
        anchored = anchored.join(early, on=_STEP, how="left", maintain_order="left")
    else:
        anchored = anchored.with_columns(early=pl.lit(False))
    unfinished = pl.lit(False)
    if window is not None:
        reached = pl.col("step").filter(pl.col("start_ns").is_not_null()).max().over(_PROCESS)
        anchored = anchored.filter((pl.col("step") <= reached).fill_null(True))
        unfinished = ~pl.col("on_device") & (pl.col("mark_end_ns") > window.end_ns)
    is_last = pl.col("step") == pl.col("step").max().over(_PROCESS)
    without_period = pl.col("end_ns").is_null() | (pl.col("end_ns") <= pl.col("start_ns"))
    status = (
        pl.when("early")
        .then(pl.lit(BEGUN_BEFORE))
        .when(pl.col("step") < pl.col("warm_up"))
        .then(pl.lit(WARM_UP))
        .when((pl.col("on_device") & is_last) | unfinished)
        .then(pl.lit(TRUNCATED))
        .when(pl.col("on_device") & without_period)
        .then(pl.lit(NO_DEVICE_WORK))
        .when(pl.col("step").is_in(sorted(trace.left_out)))
        .then(pl.lit(STANDS_OUT))
        .otherwise(pl.lit(KEPT))
    )
    return anchored.with_columns(status.cast(Status).alias("status")).select(*frame.columns, "status")


def _periods(frame: pl.DataFrame, lead: pl.DataFrame) -> pl.DataFrame:
    """rank, process, step, period_ns: on the leading device, or on the host where the rank has no device work."""
    device = lead.select(*_STEP, (pl.col("end_ns") - pl.col("start_ns")).alias("period_ns"))
    led = {process for process, _, _ in key_slices(lead, _PROCESS)}
    if all(process in led for process, _, _ in key_slices(frame, _PROCESS)):
        return device.filter(pl.col("period_ns") > 0)
    host = frame.join(lead.select(_PROCESS).unique(), on=_PROCESS, how="anti")
    host = host.select(*_STEP, (pl.col("host_end_ns") - pl.col("host_start_ns")).alias("period_ns"))
    return pl.concat([device, host]).filter(pl.col("period_ns") > 0).sort(_STEP)


def _times_by_rank(periods: pl.DataFrame) -> dict[int, StepTimes]:
    """The times of the slowest process of each rank."""
    slowest: dict[int, StepTimes] = {}
    for (rank, _), first, last in key_slices(periods, _PROCESS):
        times = step_times(periods["period_ns"].to_numpy()[first:last])
        if rank not in slowest or (times.p50_ns or 0.0) > (slowest[rank].p50_ns or 0.0):
            slowest[rank] = times
    return slowest


def _warm_up_count(trace: Trace, frame: pl.DataFrame, periods: pl.DataFrame) -> pl.Series:
    """warm_up, for each row of `frame`: the number of leading steps of its process to drop, never more than half of
    those timed.

    Those are slower than the rest, or do set-up work that the rest does not. A lone slow step later in the run is no
    warm-up: it stays and shows in the high quantiles; nor are steps that get shorter little by little, as the rows left
    to eliminate do: each is as long as the hundred after it. Set-up calls in every step (allocation churn,
    recompilation) are the program's steady state and drop nothing. `periods` has rank, process, step, period_ns.
    """
    events = _setup_events(trace)
    counts = {}
    for process, first, last in key_slices(periods, _PROCESS):
        part = periods[first:last]
        period_ns, setup = part["period_ns"].to_numpy(), np.zeros(part.height, np.int64)
        if events.height:
            setup = part.join(events, on=_STEP, how="left", maintain_order="left")["setup"].fill_null(0).to_numpy()
        dropped = _leading_slow(period_ns, setup)
        counts[process] = int(part["step"][dropped]) if dropped else 0
    each = [np.full(last - first, counts.get(process, 0)) for process, first, last in key_slices(frame, _PROCESS)]
    return pl.Series("warm_up", np.concatenate([np.empty(0, np.int64), *each]), dtype=pl.Int32)


def _leading_slow(period_ns: Int64Array, setup: Int64Array) -> int:
    """How many leading steps stand out from those after them, by their length or by their set-up work."""
    dropped = 0
    while dropped < period_ns.size // 2:
        ahead = slice(dropped + 1, dropped + 1 + _AHEAD)
        later = period_ns[ahead]
        middle = median(later)
        deviation = max(median(np.abs(later - middle)), assumed.LEAST_DEVIATION.value * middle)
        slow = period_ns[dropped] > middle + assumed.WARM_UP_DEVIATIONS.value * deviation
        if not slow and setup[dropped] <= median(setup[ahead]):
            break
        dropped += 1
    return dropped


def _setup_events(trace: Trace) -> pl.DataFrame:
    """rank, process, step, setup: how many set-up calls and ranges begin in each step."""
    parts = []
    for table, pattern in (
        (API_CALLS, known_calls.SETTING_UP),
        (RANGES, ranges.SETTING_UP),
        (HOST_OPS, ranges.SETTING_UP),
    ):
        frame = trace.get(table)
        if (sets_up := matches(frame["name"], pattern)).any():
            parts.append(frame.filter(sets_up).select(*_PROCESS, "start_ns"))
    if not parts:
        return step_marks(trace).frame.select(_STEP, setup=pl.lit(0, pl.Int64)).clear()
    marks = step_marks(trace).frame.sort("host_start_ns")
    placed = (
        pl.concat(parts)
        .sort("start_ns")
        .join_asof(marks, left_on="start_ns", right_on="host_start_ns", by=_PROCESS, check_sortedness=False)
    )
    inside = placed.filter(pl.col("start_ns") < pl.col("host_end_ns"))
    return inside.group_by(_STEP).agg(pl.len().cast(pl.Int64).alias("setup"))
