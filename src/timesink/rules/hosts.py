"""Rules on a GPU that waits for host work which is long by itself: single calls, and operators that launch little."""

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from timesink.diagnosis.judge import Row, declare
from timesink.diagnosis.words import number, per_period
from timesink.fixes.advised import LESS_HOST_WORK
from timesink.knowledge.calls import GRAPH_LAUNCH, LAUNCH, MAKES_GRAPH_READY, OF_MEMORY, POLLS, call_kinds
from timesink.knowledge.ranges import OPTIMIZER_WORK
from timesink.measures.idle.before_launches import computing_share, slow_calls, slow_operators
from timesink.measures.idle.blame import idle_blame
from timesink.measures.idle.blamed_time import BlamedTime
from timesink.measures.steps.per_step import begun_per_step, period_name
from timesink.measures.timeline import of_device
from timesink.model.intervals import Intervals
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, HOST_OPS
from timesink.model.trace import Trace
from timesink.records import replace
from timesink.rules.idle import waiting_row
from timesink.units import time_text
from timesink.whatif import Target

_LENGTH: Final = pl.col("end_ns") - pl.col("start_ns")
_NAMED: Final = 2  # operators in a sentence


def _in_calls(trace: Trace) -> Iterator[Row]:
    for blamed in slow_calls(trace):
        if not len(blamed.intervals):
            continue
        rows, name = _called(trace, blamed), blamed.call or ""
        length_ns = (rows["end_ns"] - rows["start_ns"]).median() or 0
        per_step = begun_per_step(trace, blamed.device[0], rows["start_ns"])
        other = _beside(trace, rows)
        if re.search(POLLS, name):
            variant = "polls"
        elif re.search(GRAPH_LAUNCH, name):
            variant = "graph"
        elif re.search(MAKES_GRAPH_READY, name):
            variant = "instantiated"
        else:
            variant = "behind" if other and re.search(LAUNCH, name) else ""
        figures: dict[str, Any] = {
            "other": other,
            "call": name or "it",
            "calls": "",
            "call_ns": length_ns,
            "period": period_name(trace),
        }
        if variant == "behind":
            figures["subject"] = f"launches that stand behind {other} on another thread"
        if name and per_step >= 1:
            figures["calls"] = number(round(per_step), "call")
        # What a launch has to wait for is a part of how late its work starts in a replay: it bounds what can be won.
        fix = None if re.search(LAUNCH, name) else LESS_HOST_WORK
        change = fix.change(Target("windows", windows=blamed.host)) if fix else None
        yield replace(waiting_row(blamed, fix, change, **figures), variant=variant)


def _called(trace: Trace, blamed: BlamedTime) -> pl.DataFrame:
    """The calls of that name that the device waited for."""
    calls = trace.get(API_CALLS)
    at = idle_blame(trace).on(blamed.device)
    within = blamed.intervals.covered_ns(at["start_ns"], at["end_ns"]) > 0
    rows = at.filter(pl.Series(within))["call_row"].drop_nulls().unique().sort()
    named = calls[rows.to_list()]
    return named.filter(named["name"].cast(pl.String) == (blamed.call or ""))


def _beside(trace: Trace, rows: pl.DataFrame) -> str:
    """The call of another thread, for memory, during most of these calls; '' where there is none."""
    if not rows.height:
        return ""
    rank, thread = rows["rank"][0], rows["thread"][0]
    calls = trace.get(API_CALLS).filter((pl.col("rank") == rank) & (pl.col("thread") != thread))
    calls = calls.filter(pl.Series(np.isin(call_kinds(calls["name"]), OF_MEMORY)))
    if not calls.height:
        return ""
    busy = Intervals.union_of(calls["start_ns"].to_numpy(), calls["end_ns"].to_numpy())
    covered = busy.covered_ns(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
    if 2 * covered.sum() < (rows["end_ns"] - rows["start_ns"]).sum():
        return ""
    lengths = calls.group_by(pl.col("name").cast(pl.String)).agg((pl.col("end_ns") - pl.col("start_ns")).sum())
    return str(lengths.sort("end_ns", "name", descending=[True, False])["name"][0])


def _in_operators(trace: Trace) -> Iterator[Row]:
    for blamed in slow_operators(trace):
        change = LESS_HOST_WORK.change(Target("windows", windows=blamed.host))
        of_optimizer = matches(pl.Series([blamed.range or "", blamed.host_op or ""]), OPTIMIZER_WORK).any()
        row = waiting_row(blamed, LESS_HOST_WORK, change, most=_longest(trace, blamed))
        computes = 2 * computing_share(trace, blamed.device) > 1
        yield replace(row, variant="optimizer" if of_optimizer else "computes" if computes else "")


def _longest(trace: Trace, blamed: BlamedTime) -> str:
    """The operators that the device waited for longest, with how many there are in a step and how long one takes."""
    stretches, ops = idle_blame(trace).stretches.filter(of_device(blamed.device)), trace.get(HOST_OPS)
    inside = blamed.intervals.covered_ns(stretches["start_ns"], stretches["end_ns"])
    waited = pl.DataFrame({"row": stretches["host_op_row"], "ns": inside}).filter(pl.col("ns") > 0).drop_nulls()
    rows = waited["row"].unique().sort()
    own = ops[rows.to_list()].select(
        pl.col("name").cast(pl.String), "start_ns", ns=pl.col("end_ns") - pl.col("start_ns")
    )
    own = own.with_columns(row=rows).join(waited.group_by("row").agg(waited=pl.col("ns").sum()), on="row")
    named = own.group_by("name").agg(pl.col("waited").sum(), pl.col("ns").median(), pl.col("start_ns"))
    told = []
    for name, _, ns, starts in named.sort("waited", "name", descending=[True, False]).head(_NAMED).iter_rows():
        count = begun_per_step(trace, blamed.device[0], pl.Series(sorted(starts)))
        told.append(f"{name} ({per_period(trace, count)}, {time_text(ns)} each)")
    return " and ".join(told)


RULES: Final = (declare("runtime-calls", _in_calls), declare("host-operators", _in_operators))
