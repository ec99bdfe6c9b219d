"""Small kernels run one after another on one stream.

Each fills little of the device, and several could run at once if none needs the other's result.

## What it detects
Runs of kernels on one stream, each with less than half as many blocks as there are multiprocessors, with hardly a pause
between them, also inside a captured CUDA graph; where four streams would win more than the limit of a step at best.

## Why it matters
A stream runs its kernels in order even where none needs another. Branches of a model, heads of an ensemble or items of
a list then take turns on a device that is nearly empty.

## How it is measured
Grids over multiprocessors, from launch records. Kernels of times t that fill shares f of the device take, on four
streams, at least max(sum(t) / 4, sum(f t), max(t)). A trace shows no data, so it does not say which kernels depend on
each other: the rule stays undecided, and says what could be won.

## What to do
Look at the code: where the kernels are independent, launch them on several streams (or batch them into one larger
kernel), and let one stream wait for the others once. Capture that in a CUDA graph: launches onto several streams cost
the host more, and a graph keeps the branches apart without it.

## When it misleads
A chain in which every kernel reads the one before it gains nothing from streams. Outside of a graph the host may not
launch fast enough to keep several streams busy.
"""

from __future__ import annotations

from timesink.diagnosis.rule import HEALTHY, Limit, Limits, Rule
from timesink.diagnosis.verdicts import Clear, Evidence, NotApplicable, Undecided, Verdict
from timesink.diagnosis.words import of_period
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.kernels.one_stream import OneStreamRuns, one_stream_runs
from timesink.measures.kernels.small_grids import grids_known
from timesink.measures.steps.per_step import period_ns
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES, GPU_METRICS, GRAPH_NODES, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.rules.kernels._family import saved_share
from timesink.whatif.change import Case
from timesink.whatif.changes.kernels import on_streams

STREAMS = 4  # those of the page above


def check(trace: Trace, limits: Limits) -> Verdict:
    """Undecided where several streams could win more than the limit, for a trace shows no dependence."""
    if not grids_known(trace):
        return Undecided("no grid, or no count of multiprocessors, is recorded", RULE.capture)
    devices = [runs for runs in one_stream_runs(trace) if runs.rows.size]
    if not devices:
        return NotApplicable("no two small kernels follow each other on one stream")
    facts = [(runs, _won(trace, runs, limits)) for runs in devices]
    over = [(runs, won) for runs, won in facts if won.is_over]
    if not over:
        return Clear(tuple(won for _, won in facts))
    runs, won = max(over, key=lambda fact: fact[1].measured.value)
    step_ns = period_ns(trace, runs.device)
    return Undecided(
        f"{runs.rows.size} small kernels of device {runs.device[1]} follow each other on one stream, and whether one "
        f"needs another the trace does not say: if none does, {STREAMS} streams win at most "
        f"{of_period(trace, runs.device, won.measured.value * step_ns)}",
        f"timesink what-if TRACE --change 'streams {STREAMS}', for the part of the program that is independent",
    )


def _won(trace: Trace, runs: OneStreamRuns, limits: Limits) -> Evidence:
    change = on_streams(runs.on_streams(STREAMS), STREAMS)
    return saved_share(
        f"time that {STREAMS} streams would win of small kernels of device {runs.device[1]}",
        trace,
        change,
        saved_per_step_ns(trace, change, Case.EXPECTED),
        "independent kernels on several streams; over the steady steps",
        limits["saved_ratio"],
    )


RULE = Rule(
    "KRN110",
    check,
    needs=(DEVICE_OPS,),
    reads=(API_CALLS, HOST_OPS, RANGES, DEVICES, GPU_METRICS, GRAPH_NODES),
    limits={"saved_ratio": Limit.ratio(0.05, "streams are work: they should win one step in twenty", HEALTHY)},
    references=("https://docs.nvidia.com/cuda/cuda-c-programming-guide/#streams",),
)
