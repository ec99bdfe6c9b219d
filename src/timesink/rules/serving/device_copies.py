"""An engine copies its cache within the device in its steps.

## What it detects
Copies from the device to itself that take more than a share of the steps of a serving engine.

## Why it matters
Decoding is bound by the memory's rate: it reads weights and cache once. A cache that is copied is read and written once
more, for nothing.

## How it is measured
The union of such copies in the steady steps, less what kernels run beside them.

## What to do
Leave the cache where it is, in pages that a table names (paged attention); write new entries in place. Do not gather
sequences, grow tensors with `torch.cat`, or clone a cache in the loop.

## When it misleads
Moving a cache once, for a longer sequence or a beam, is no fault: only what comes back in the steps counts.
"""

from __future__ import annotations

import polars as pl

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict, Where
from timesink.diagnosis.words import of_step
from timesink.fixes import table as fixes
from timesink.measures.steps.engine import is_engine
from timesink.measures.steps.per_step import share_of_step, step_windows
from timesink.measures.timeline.device_timeline import Device, device_timeline
from timesink.model.intervals import Intervals
from timesink.model.schema import SHOWN_ROWS
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.units import bytes_text
from timesink.whatif.change import Selection


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    if not is_engine(trace):
        return NotApplicable("no steps of a serving engine")
    return found_or_clear(_judged(trace, device, limits["copied_ratio"]) for device in device_timeline(trace).by_device)


def _judged(trace: Trace, device: Device, limit: float) -> Finding | Evidence:
    ops = trace.get(DEVICE_OPS).with_row_index("row").filter(pl.col("rank") == device[0], pl.col("device") == device[1])
    copies = ops.filter((pl.col("copy_kind") == "d2d").fill_null(False))
    alone = Intervals.of(copies.select("start_ns", "end_ns")) - device_timeline(trace).by_device[device].compute
    evidence = Evidence(
        f"copies within device {device[1]}",
        Quantity(share_of_step(trace, device, alone), "ratio"),
        "union of the copies less every instant at which a kernel runs, over the steady steps",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
        rows=tuple(
            copies.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True)["row"].head(SHOWN_ROWS).to_list()
        ),
    )
    if not evidence.is_over:
        return evidence
    start, end = step_windows(trace, device)
    steady = copies.filter(pl.col("start_ns").is_between(int(start.min()), int(end.max())))
    each = bytes_text(float(steady["bytes"].sum() or 0) / len(start))
    rows = copies["row"].to_numpy().astype("int64")
    return Finding(
        message=f"copies within device {device[1]} take {of_step(trace, device, alone)}: {each} in each engine "
        "step, as of a cache that is moved rather than used where it is",
        bottleneck=Bottleneck.DEVICE_COPIES,
        where=Where(rank=device[0], device=device[1]),
        evidence=(evidence,),
        advice="Leave the cache in pages and name them in a table; write new entries in place.",
        verify="Capture again: copies within the device are gone, and a step is shorter by their time.",
        claim=Claim({device: alone}),
        change=fixes.CACHE_IN_PLACE.change(Selection(device, {"copies": rows})),
        fix=fixes.CACHE_IN_PLACE,
    )


RULE = Rule(
    "SRV104",
    check,
    needs=(DEVICE_OPS,),
    reads=(API_CALLS, *BLAME_READS),
    limits={"copied_ratio": Limit.ratio(0.03, "a healthy server copies less than 1 % of a step", HEALTHY)},
    references=("https://arxiv.org/abs/2309.06180",),
)
