"""A device waits while one copy runs.

## What it detects

A copy that lasts longer than the limit.

## Why it matters

It is the example of docs/how-to/write-a-rule.md.

## How it is measured

The longest row of kind copy.

## What to do

Copy less.

## When it misleads

A copy beside a kernel costs nothing.
"""

import polars as pl

from timesink.diagnosis.rule import Limit, Limits, Rule
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Evidence,
    Finding,
    Found,
    NotApplicable,
    Quantity,
    Verdict,
    Where,
)
from timesink.model.intervals import Intervals
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace


def longest_copy(trace: Trace) -> tuple[int, int, int]:
    """Row, start and end of the longest copy; (-1, 0, 0) where there is none."""
    copies = trace[DEVICE_OPS].with_row_index("row").filter(pl.col("kind") == "copy")
    if not copies.height:
        return -1, 0, 0
    row = copies.sort(pl.col("end_ns") - pl.col("start_ns"), "row", descending=[True, False]).row(0, named=True)
    return row["row"], row["start_ns"], row["end_ns"]


def check(trace: Trace, limits: Limits) -> Verdict:
    row, start_ns, end_ns = longest_copy(trace)
    if row < 0:
        return NotApplicable("the trace has no copy")
    limit = limits["copy_ms"]
    length_ms = (end_ns - start_ns) / 1e6
    shown = Evidence(
        "longest copy", Quantity(length_ms, "ms"), "end - start", Quantity(limit, "ms"), "device_ops", (row,)
    )
    if length_ms <= limit:
        return Clear((shown,))
    claim = Claim({(0, 0): Intervals.one(start_ns, end_ns)})
    message = f"one copy takes {length_ms:g} ms (limit {limit:g} ms)"
    where = Where(rank=0, device=0)
    finding = Finding(message, Bottleneck.HOST_TO_DEVICE_COPY, where, (shown,), "Copy less.", "timesink verify", claim)
    return Found((finding,))


RULE = Rule(
    "EXA101",
    check,
    needs=(DEVICE_OPS,),
    limits={"copy_ms": Limit(2.0, "ms", why="the example needs a figure", source="invented for the example")},
)
