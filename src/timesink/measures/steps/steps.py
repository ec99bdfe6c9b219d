"""Steps: where each begins on the host and on each GPU, how long each takes, which of them count.

Device work belongs to the step of its launch, since the GPU runs late. A step's time is the period between equal
anchors on the device, from its first kernel to the next step's first kernel; the host interval would miss the lag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.steps.marks import StepMarker, step_marks, step_of_ops, warm_up_count
from timesink.measures.timeline.attribution import launch_links
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.model.window import Window

_STEP: Final = ("rank", "process", "step")
P90_NEEDS: Final = 10  # a quantile is stated only where about one observation lies beyond it
P99_NEEDS: Final = 100

KEPT, WARM_UP, TRUNCATED, NO_DEVICE_WORK = "kept", "warm_up", "truncated", "no_device_work"
BEGUN_BEFORE = "begun_before"
Status = pl.Enum([KEPT, WARM_UP, TRUNCATED, NO_DEVICE_WORK, BEGUN_BEFORE])


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step periods of one rank. A quantile is None where `count` is too small to state it (p90: 10, p99: 100)."""

    count: int
    p50_ns: float | None
    p90_ns: float | None
    p99_ns: float | None
    max_ns: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps of every rank.

    `frame`: rank, process, step, label, thread, host_start_ns, host_end_ns, mark_end_ns, status; every step found,
    dropped ones too. Of a trace cut to a window, those with work on a GPU in it, where any has.
    `windows`: rank, device, step, start_ns, end_ns, period_ns; the device windows of kept steps, which per-step figures
    divide by. On one device they do not overlap. `by_rank`: times per rank. `times`: those of the slowest rank, which
    sets the pace of a synchronous job. `dropped`: how many steps were left out, by reason, all ranks together.
    """

    marker: StepMarker | None
    marker_name: str
    frame: pl.DataFrame
    windows: pl.DataFrame
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


@remembered
def steps(trace: Trace) -> Steps:
    """Find steps, time them, and drop warm-up and truncated ones."""
    found = step_marks(trace)
    anchored = _device_anchors(trace)
    lead = _leading_device(anchored)
    early = _begun_before(found.frame, lead, trace)
    # Where steps went on before the window, its first ones are no warm-up: they were asked for.
    fresh = _periods(found.frame, lead).join(early, on=["rank", "process"], how="anti")
    warm_up = warm_up_count(trace, fresh)
    frame = _with_status(found.frame, lead, warm_up, trace.window)
    frame = _begun(frame, early)
    kept = frame.filter(pl.col("status") == KEPT).select("rank", "process", "step")
    windows = (
        anchored.join(kept, on=["rank", "process", "step"], how="semi")
        .filter(pl.col("end_ns") > pl.col("start_ns"))
        .select(
            "rank", "device", "step", "start_ns", "end_ns", (pl.col("end_ns") - pl.col("start_ns")).alias("period_ns")
        )
        .sort("rank", "device", "step")
    )
    by_rank = _times_by_rank(_periods(frame, lead).join(kept, on=["rank", "process", "step"], how="semi"))
    dropped = frame.filter(pl.col("status") != KEPT)["status"].cast(pl.String).value_counts().sort("status")
    return Steps(
        marker=found.marker,
        marker_name=found.name,
        frame=frame,
        windows=windows,
        by_rank=by_rank,
        times=max(by_rank.values(), key=lambda times: (times.p50_ns or 0.0, times.count), default=step_times([])),
        dropped=dict(dropped.iter_rows()),
    )


def step_times(periods_ns: npt.ArrayLike) -> StepTimes:
    """Quantiles of step periods, where there are enough of them."""
    periods = np.asarray(periods_ns, np.int64)

    def quantile(share: float, needs: int) -> float | None:
        return float(np.quantile(periods, share)) if periods.size >= needs else None

    return StepTimes(
        count=int(periods.size),
        p50_ns=quantile(0.5, 1),
        p90_ns=quantile(0.9, P90_NEEDS),
        p99_ns=quantile(0.99, P99_NEEDS),
        max_ns=int(periods.max()) if periods.size else None,
    )


def _device_anchors(trace: Trace) -> pl.DataFrame:
    """Per (rank, process, device, step): start of its first kernel, and start of the next step's first kernel.

    Where two processes share a GPU, the one with more ops on it sets the windows.
    """
    ops = trace.get(DEVICE_OPS).select("rank", "process", "device", "kind", "start_ns")
    ops = ops.with_columns(pl.Series("step", step_of_ops(trace), pl.Int32))
    owners = ops.group_by("rank", "device", "process").len()
    owners = owners.sort(["rank", "device", "len", "process"], descending=[False, False, True, False])
    owners = owners.unique(["rank", "device"], keep="first", maintain_order=True).rename({"len": "ops_on_device"})
    work = pl.col("start_ns").filter(pl.col("kind").is_in(["kernel", "graph"])).min()
    key = ["rank", "process", "device"]
    # Behind a window's end there may be a kernel to the copy before it.
    sure = pl.lit(True) if trace.window is None else pl.col("step") < pl.col("step").max().over(key)
    return (
        ops.filter(pl.col("step") >= 0)
        .group_by(*key, "step")
        .agg(work.alias("kernel_ns"), pl.col("start_ns").min())
        .filter(sure | pl.col("kernel_ns").is_not_null())
        .with_columns(pl.col("kernel_ns").fill_null(pl.col("start_ns")).alias("start_ns"))
        .drop("kernel_ns")
        .join(owners, on=["rank", "device", "process"], how="inner")
        .sort(*key, "step")
        .with_columns(
            pl.when(pl.col("step").shift(-1).over(key) == pl.col("step") + 1)
            .then(pl.col("start_ns").shift(-1).over(key))
            .alias("end_ns")
        )
    )


def _leading_device(anchored: pl.DataFrame) -> pl.DataFrame:
    """The anchors on each process's busiest GPU: the one whose periods time the rank."""
    key = ["rank", "process", "device"]
    busiest = anchored.select(*key, "ops_on_device").unique()
    busiest = busiest.sort(["rank", "process", "ops_on_device", "device"], descending=[False, False, True, False])
    busiest = busiest.unique(["rank", "process"], keep="first", maintain_order=True)
    return anchored.join(busiest.select(key), on=key, how="semi").sort("rank", "process", "step")


def _complete_from(trace: Trace) -> pl.DataFrame:
    """rank, process, complete_ns: when a step must have begun on the host for all its kernels to be in the window.

    A stream runs its work in the order of launch. What ended before the window was launched before the window, and
    before the first op of its stream that is in it. Empty for a trace that was not cut at its beginning.
    """
    schema = {"rank": pl.Int32, "process": pl.Int64, "complete_ns": pl.Int64}
    if trace.window is None or trace.window.start_ns <= trace.window.first_ns:
        return pl.DataFrame(schema=schema)
    found = step_marks(trace).frame.select("rank", "process").unique()
    opens = pl.lit(trace.window.start_ns)
    if step_marks(trace).on_device:
        return found.with_columns(opens.alias("complete_ns"))
    call = pl.Series("call", launch_links(trace).call)
    ops = trace.get(DEVICE_OPS).select("rank", "process", "device", "stream").with_columns(call)
    calls = trace.get(API_CALLS).select(pl.int_range(pl.len(), dtype=pl.Int64).alias("call"), "start_ns")
    launched = ops.join(calls, on="call").group_by("rank", "process", "device", "stream").agg(pl.col("start_ns").min())
    latest = launched.group_by("rank", "process").agg(pl.min_horizontal("start_ns", opens).max().alias("complete_ns"))
    return found.join(latest, on=["rank", "process"], how="left").with_columns(pl.col("complete_ns").fill_null(opens))


def _begun_before(frame: pl.DataFrame, lead: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """rank, process, step of the steps that lack, or may lack, some of their work: it ran before the window."""
    opens_ns = 0 if trace.window is None else trace.window.start_ns
    placed = frame.join(_complete_from(trace), on=["rank", "process"])
    placed = placed.join(lead.select(*_STEP, "start_ns"), on=_STEP, how="left")
    early = (pl.col("host_start_ns") < pl.col("complete_ns")) | (pl.col("start_ns") < opens_ns).fill_null(False)
    return placed.filter(early).select(_STEP)


def _with_status(frame: pl.DataFrame, lead: pl.DataFrame, warm_up: pl.DataFrame, window: Window | None) -> pl.DataFrame:
    key = ["rank", "process"]
    placed = frame.join(lead.select(*key, "step", "start_ns", "end_ns"), on=[*key, "step"], how="left")
    placed = placed.join(lead.select(key).unique().with_columns(on_device=pl.lit(True)), on=key, how="left")
    placed = placed.join(warm_up, on=key, how="left").with_columns(pl.col("warm_up").fill_null(0))
    unfinished = pl.lit(False)
    if window is not None:  # a step of which only launches lie in the window, and no kernels yet, is none of it
        reached = pl.col("step").filter(pl.col("start_ns").is_not_null()).max().over(key)
        placed = placed.filter((pl.col("step") <= reached).fill_null(True))
        unfinished = pl.col("on_device").is_null() & (pl.col("mark_end_ns") > window.end_ns)
    is_last = pl.col("step") == pl.col("step").max().over(key)
    truncated = (pl.col("on_device") & is_last) | unfinished
    status = (
        pl.when(pl.col("step") < pl.col("warm_up"))
        .then(pl.lit(WARM_UP))
        .when(truncated)
        .then(pl.lit(TRUNCATED))
        .when(pl.col("on_device") & (pl.col("end_ns").is_null() | (pl.col("end_ns") <= pl.col("start_ns"))))
        .then(pl.lit(NO_DEVICE_WORK))
        .otherwise(pl.lit(KEPT))
    )
    return placed.with_columns(status.cast(Status).alias("status")).select(*frame.columns, "status")


def _begun(frame: pl.DataFrame, early: pl.DataFrame) -> pl.DataFrame:
    """The frame with the status of those steps."""
    marked = frame.join(early.with_columns(early=pl.lit(True)), on=_STEP, how="left", maintain_order="left")
    status = pl.when("early").then(pl.lit(BEGUN_BEFORE, Status)).otherwise("status").alias("status")
    return marked.with_columns(status).select(frame.columns)


def _periods(frame: pl.DataFrame, lead: pl.DataFrame) -> pl.DataFrame:
    """rank, process, step, period_ns: on the leading device, or on the host where the rank has no device work."""
    key = ["rank", "process"]
    device = lead.select(*key, "step", (pl.col("end_ns") - pl.col("start_ns")).alias("period_ns"))
    host = frame.join(lead.select(key).unique(), on=key, how="anti")
    host = host.select(*key, "step", (pl.col("host_end_ns") - pl.col("host_start_ns")).alias("period_ns"))
    return pl.concat([device, host]).filter(pl.col("period_ns") > 0).sort(*key, "step")


def _times_by_rank(periods: pl.DataFrame) -> dict[int, StepTimes]:
    """The slowest process of a rank speaks for it."""
    times: dict[int, StepTimes] = {}
    for (rank, _), part in sorted(periods.partition_by("rank", "process", as_dict=True).items()):
        mine = step_times(part["period_ns"].to_numpy())
        if rank not in times or (mine.p50_ns or 0.0) > (times[rank].p50_ns or 0.0):
            times[rank] = mine
    return times
