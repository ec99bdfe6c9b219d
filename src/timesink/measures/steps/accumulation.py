"""Gradient accumulation: how many backward passes the program makes for one step of its optimizer.

A pass is a range that people call backward. Where no range is, autograd shows it: a pass begins with the first backward
operator after a forward one that takes part in it, by their sequence numbers; forward operators that run inside a
backward pass recompute activations and begin none. The optimizer is known by its own range or operator
("Optimizer.step#AdamW.step", "optimizer"). Programs whose passes differ in size, or whose optimizer steps differ in
their number, accumulate nothing that could be counted.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from timesink.knowledge.ranges import BACKWARD_PASS, OPTIMIZER_STEP
from timesink.measures.timeline.autograd import backward_operators, inside_backward
from timesink.model.arrays import Int64Array
from timesink.model.names import matches
from timesink.model.tables import HOST_OPS, RANGES
from timesink.model.trace import Trace, remembered


@remembered
def micro_batches(trace: Trace) -> int | None:
    """Backward passes for one optimizer step, the most of any rank; 1 without accumulation, None where the trace does
    not tell."""
    counts = [
        count
        for rank in trace.get(RANGES)["rank"].unique().sort()
        if (count := _per_update(_updates(trace, rank), _passes(trace, rank))) is not None
    ]
    return max(counts, default=None)


def _per_update(updates_ns: Int64Array, passes_ns: Int64Array) -> int | None:
    """Passes between one update and the next, where all have as many; updates without a pass between are one."""
    between = np.diff(np.searchsorted(passes_ns, updates_ns))
    between = between[between > 0]
    return int(between[0]) if between.size and int(between.min()) == int(between.max()) else None


def _updates(trace: Trace, rank: int) -> Int64Array:
    """When the optimizer began to step, by its ranges, or by operators where those are more."""
    return max((_named(trace.get(table), rank, OPTIMIZER_STEP) for table in (RANGES, HOST_OPS)), key=len)


def _named(frame: pl.DataFrame, rank: int, pattern: str) -> Int64Array:
    found = (frame["rank"] == rank) & matches(frame["name"], pattern)
    return np.unique(frame["start_ns"].to_numpy()[found.to_numpy()])


def _passes(trace: Trace, rank: int) -> Int64Array:
    """When backward passes began, by ranges, else by the turns from forward to backward operators."""
    named = _named(trace.get(RANGES), rank, BACKWARD_PASS)
    return named if named.size else _turns(trace, rank)


def _turns(trace: Trace, rank: int) -> Int64Array:
    """The first backward operator after each stretch of forward ones; nothing where the passes differ in size.

    The first and the last pass may be cut by the ends of the trace.
    """
    ops, own = trace.get(HOST_OPS), backward_operators(trace)
    if not own.any():
        return np.empty(0, np.int64)
    of_rank = (ops["rank"] == rank).to_numpy() & ops["sequence_number"].is_not_null().to_numpy()
    linked = ops.select("start_ns", "sequence_number").with_columns(pl.Series("backward", own))
    backward = linked.filter(pl.Series(of_rank & own))
    forward = linked.filter(pl.Series(of_rank & ~inside_backward(trace)))
    merged = pl.concat([forward.join(backward, on="sequence_number", how="semi"), backward]).sort("start_ns")
    begins = merged["backward"] & ~merged["backward"].shift(1, fill_value=False)
    passes = merged.with_columns(begins.cum_sum().alias("pass")).filter("backward")
    sizes = passes.group_by("pass").len().sort("pass")["len"]
    even = len(sizes) > 2 and sizes[1:-1].n_unique() == 1
    return merged.filter(begins)["start_ns"].to_numpy() if even else np.empty(0, np.int64)
