"""The tables of `timesink idle`: what each GPU waited for, and where in the program that is."""

from __future__ import annotations

import polars as pl

from timesink.knowledge.ranges import NUMBER
from timesink.knowledge.step_parts import IDLE_WORDS
from timesink.measures.idle.blame import IdleShare, idle_places, idle_shares
from timesink.measures.steps.per_step import period_ns
from timesink.measures.steps.steps import steps
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.model.names import mapped
from timesink.model.trace import Trace
from timesink.views.page import DEVICE, RANK, Field, Fields, Page, Sheet, names, rows_of, sheet_of

CAUSE = Field("cause", "cause", is_name=True, words=IDLE_WORDS)
IDLE = Field("idle_ns", "idle time", unit="ns")
STRETCHES = Field("stretches", "stretches", unit="1")
_PLACE = ("call", "host_op", "range", "frame")


def idle_page(trace: Trace, top: int) -> Page:
    """Causes, then the `top` places."""
    return Page(f"Idle time of {trace.source}", (_causes(trace), _places(trace, top)))


def _causes(trace: Trace) -> Sheet:
    columns: Fields[IdleShare] = (
        *(RANK, DEVICE, CAUSE, IDLE),
        (Field("idle_ratio", "of idle time", unit="ratio"), lambda share: share.idle_ns / idle_ns[_device(share)]),
        Field("per_step_ns", "per step", unit="ns"),
        (
            Field("step_ratio", "of step", unit="ratio"),
            lambda share: share.per_step_ns / period_ns(trace, _device(share)),
        ),
        STRETCHES,
    )
    idle_ns = {(line.rank, line.device): line.idle.total_ns for line in device_timeline(trace)}
    step_count = steps(trace).count
    mean = f"mean over {step_count} steady steps"
    note = f"per step: {mean}" if step_count else "no steps found: per step is the whole span"
    note = f"the causes sum to the idle time; {note}"
    return sheet_of("causes", "What the GPU waited for", idle_shares(trace), columns, note)


def _device(share: IdleShare) -> Device:
    return share.rank, share.device


def _places(trace: Trace, top: int) -> Sheet:
    columns = (CAUSE, IDLE, STRETCHES, *names(call="call", host_op="operator", range="range", frame="frame"))
    places = idle_places(trace)
    # A range per step is one place: the numbers in its name are left out.
    ranges = mapped(places["range"], lambda names: names.str.replace_all(NUMBER, ""), pl.String)
    grouped = (
        places.with_columns(
            ranges.alias("range"), *(pl.col(name).cast(pl.String) for name in ("call", "host_op", "frame"))
        )
        .group_by("cause", *_PLACE)
        .agg(pl.col("idle_ns").sum(), pl.len().alias("stretches"))
        .sort("idle_ns", "cause", *_PLACE, descending=[True] + [False] * (1 + len(_PLACE)), nulls_last=True)
    )
    left = grouped.height - top
    note = f"{left} more places (--top {grouped.height} shows all)" if left > 0 else ""
    return Sheet("places", "Where in the program", columns, rows_of(grouped.head(top), columns), note)
