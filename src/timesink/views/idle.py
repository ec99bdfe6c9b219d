"""The tables of `timesink idle`: what each GPU waited for, and where in the program that is."""

from __future__ import annotations

import polars as pl

from timesink.measures.idle.blame import IdleBlame, idle_blame
from timesink.measures.steps.per_step import step_windows
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import device_timeline
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.trace import Trace
from timesink.views.page import DEVICE, RANK, Field, Page, Sheet

CAUSE = Field("cause", "cause", is_name=True)
IDLE = Field("idle_ns", "idle time", unit="ns")
STRETCHES = Field("stretches", "stretches", unit="1")
_PLACE = ("call", "host_op", "range", "frame")


def idle_page(trace: Trace, top: int) -> Page:
    """Causes, then the `top` places."""
    blame = idle_blame(trace)
    return Page(f"Idle time of {trace.source}", (_causes(trace, blame), _places(blame, top)))


def _causes(trace: Trace, blame: IdleBlame) -> Sheet:
    columns = (
        RANK,
        DEVICE,
        CAUSE,
        IDLE,
        Field("idle_ratio", "of idle time", unit="ratio"),
        Field("per_step_ns", "per step", unit="ns"),
        STRETCHES,
    )
    idle_by_device_ns = {(line.rank, line.device): line.idle.total_ns for line in device_timeline(trace)}
    rows = []
    for rank, device, cause, idle_ns, count in blame.totals.with_columns(pl.col("cause").cast(pl.String)).rows():
        of_device = (pl.col("rank") == rank) & (pl.col("device") == device)
        stretches = blame.frame.filter(of_device & (pl.col("cause") == cause))
        windows = step_windows(trace, (rank, device))
        per_step = float(Intervals.of(stretches).covered_ns(*windows).mean())
        rows.append((rank, device, cause, idle_ns, idle_ns / idle_by_device_ns[rank, device], per_step, count))
    rows.sort(key=lambda row: (row[0], row[1], -row[3], row[2]))
    step_count = steps(trace).count
    mean = f"mean over {step_count} steady steps"
    note = f"per step: {mean}" if step_count else "no steps found: per step is the whole span"
    return Sheet("causes", "What the GPU waited for", columns, tuple(rows), f"the causes sum to the idle time; {note}")


def _places(blame: IdleBlame, top: int) -> Sheet:
    columns = (
        CAUSE,
        IDLE,
        STRETCHES,
        Field("call", "call", is_name=True),
        Field("host_op", "operator", is_name=True),
        Field("range", "range", is_name=True),
        Field("frame", "frame", is_name=True),
    )
    # A range per step is one place: the numbers in its name are left out.
    ranges = mapped(blame.frame["range"], lambda names: names.str.replace_all(r"\d+", ""), pl.String)
    grouped = (
        blame.frame.with_columns(
            ranges.alias("range"), *(pl.col(name).cast(pl.String) for name in ("cause", "call", "host_op", "frame"))
        )
        .group_by("cause", *_PLACE)
        .agg((pl.col("end_ns") - pl.col("start_ns")).sum().alias("idle_ns"), pl.len().alias("stretches"))
        .sort("idle_ns", "cause", *_PLACE, descending=[True] + [False] * 5, nulls_last=True)
    )
    left = grouped.height - top
    note = f"{left} more places (--top {grouped.height} shows all)" if left > 0 else ""
    rows = tuple(grouped.head(top).select(column.key for column in columns).rows())
    return Sheet("places", "Where in the program", columns, rows, note)
