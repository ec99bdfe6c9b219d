"""The device waits for the host after the host waited for the device.

## What it detects
Idle time that follows a blocking call: `.item()`, `.cpu()`, `nonzero`, `torch.cuda.synchronize()`, a synchronous copy.
The call returns when the device has nothing left to do, and until the host has prepared and launched the next work the
device stands still.

## Why it matters
Without the wait the host runs ahead and launches while the device computes. Each wait throws that lead away; in a loop
it costs its restart every time, and it shows up as the operators that happen to run during the restart.

## How it is measured
A gap belongs to a wait where the call was released by the op that ended as the gap began and the gap's next op was
launched after the call returned. Charged to it is as much of the restart as the host lost by waiting; what the host
would have needed anyway keeps its own cause. A wait behind which input is prepared counts as input.

## What to do
Keep the value on the device (accumulate the loss, log every k steps), replace data-dependent shapes by masks, copy
results with `non_blocking=True` into pinned memory and read them a step later.

## When it misleads
Where the device is busy all the time a wait costs nothing, and none is charged. Two waits close together share one
restart; removing only the first moves the cost to the second. `cudaEventQuery` does not block. A profiler slows the
host: one that is late at every launch has no lead to lose, though without the profiler it may have one. Where waits
cost little in the trace and more than the limit with the profiler's cost taken off, the rule is *undecided*.
"""

from __future__ import annotations

from functools import partial

import polars as pl

from timesink.diagnosis.rule import Limit, Limits
from timesink.diagnosis.verdicts import (
    Bottleneck,
    Claim,
    Clear,
    Evidence,
    Finding,
    NotApplicable,
    Quantity,
    Undecided,
    Verdict,
)
from timesink.diagnosis.words import per_period
from timesink.fixes import table as fixes
from timesink.measures.communication.pickled import pickled_per_step
from timesink.measures.idle.blamed_time import BlamedTime, drained_time
from timesink.measures.steps.per_step import begun_per_step
from timesink.measures.timeline.replay import deflated_pricers, pricers
from timesink.measures.timeline.synchronisations import synchronisations
from timesink.model.tables import COLLECTIVES
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS, idle_rule, idle_verdict, place_of, place_text, waits
from timesink.units import share_text
from timesink.whatif.changes.host import RemoveSyncs

_PICKLED = "collectives that send a length of 8 bytes and then bytes, as all_gather_object does"
_TENSORS = "Gather metrics as one tensor every so many steps, not as objects (all_gather_object waits twice). "
HOW = "idle stretches charged to a blocking call that had drained the device, over the steady steps"


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    if not synchronisations(trace).calls.height:
        return NotApplicable("no call in the trace blocks the host")
    limit = limits["idle_ratio"]

    def finding(blamed: BlamedTime, evidence: Evidence) -> Finding:
        count, pickled = _per_step(trace, blamed.device[0]), pickled_per_step(trace, blamed.device[0])
        place = place_text(blamed)
        return Finding(
            message=f"{waits(trace, blamed)} after blocking calls, {per_period(trace, count)}"
            + (f", most of it after {place}" if place else "")
            + (f"; objects are exchanged pickled, {per_period(trace, pickled)}" if pickled else ""),
            bottleneck=Bottleneck.HOST_SYNC,
            where=place_of(blamed),
            evidence=(
                evidence,
                Evidence("blocking calls", Quantity(count, "per step"), "calls within the steps"),
                *((Evidence("pickled objects", Quantity(pickled, "per step"), _PICKLED),) if pickled else ()),
            ),
            advice=(_TENSORS if pickled else "")
            + "Keep the value on the device and read it once every so many steps, or copy it asynchronously into "
            "pinned memory and read it a step later.",
            verify="Remove the wait: the blocking calls per step go down and the step shortens by at most this time.",
            claim=Claim({blamed.device: blamed.intervals}),
            change=fixes.REMOVE_SYNC.change(),
            fix=fixes.REMOVE_SYNC,
        )

    verdict = idle_verdict(drained_time(trace, "wait"), limit, "idle time after blocking calls", HOW, finding)
    if not isinstance(verdict, Clear):
        return verdict
    hidden = max(map(partial(_hidden_share, trace, limit), pricers(trace)), default=0.0)
    return _undecided(hidden) if hidden else verdict


def _hidden_share(trace: Trace, limit: float, rank: int) -> float:
    """What the waits of a rank cost of a step whose host is as fast as it may be without the profiler, where that
    passes the limit and what they cost in the trace does not; else 0, and where the step without it is known."""
    if trace.unprofiled_step_ns is not None:
        return 0.0
    profiled, fastest = pricers(trace)[rank], deflated_pricers(trace)[rank][-1]
    if not fastest.step_ns or fastest.step_ns - fastest.busy_ns <= limit * fastest.step_ns:
        return 0.0  # without its waits the host still leaves the device its work
    hidden = fastest.gain_ns(RemoveSyncs()) / fastest.step_ns
    return hidden if hidden > limit and profiled.gain_ns(RemoveSyncs()) <= limit * profiled.step_ns else 0.0


def _undecided(hidden: float) -> Undecided:
    return Undecided(
        "recording slows the host so much that it is late at every launch, and waits cost nothing in the trace; "
        f"without the profiler they may cost up to {share_text(hidden)} of the step",
        "time a step without the profiler and pass --unprofiled-step-ms",
    )


def _per_step(trace: Trace, rank: int) -> float:
    """Blocking calls of a rank per kept step; all of them where there are no steps."""
    return begun_per_step(trace, rank, synchronisations(trace).calls.filter(pl.col("rank") == rank)["start_ns"])


RULE = idle_rule(
    "IDL102",
    check,
    reads=(*BLAME_READS, COLLECTIVES),
    limits={
        "idle_ratio": Limit.ratio(
            0.02,
            "one wait at the end of a step costs about 1 % of a step of ten milliseconds",
            "benchmarks/faults: healthy programs that read the loss stay under it",
        )
    },
    references=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
)
