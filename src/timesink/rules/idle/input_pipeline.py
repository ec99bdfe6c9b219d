"""The device waits while the host prepares the next batch.

## What it detects
Idle time of a device during which a launching thread loads or prepares input: inside a range or operator whose name
says so (`enumerate(DataLoader)`, `data_load`, `next_batch`, ...), or, where no name does, between the thread's last
launch or wait and the copies of data to the device with which a step begins.

## Why it matters
No kernel gets faster by it, and none needs to: the device is free. It is the first thing to rule out in training.

## How it is measured
Every idle stretch of the device is blamed on what kept it waiting; those that fall into the preparation of input on a
launching thread are summed over the steady steps. A stretch after a blocking wait counts here too where the host then
prepares input: without that preparation the device would have had work at once.

## What to do
Prepare ahead: DataLoader workers with `prefetch_factor`, `persistent_workers=True`, pinned memory; cheaper decoding;
or keep the data on the device. Where one thread does both, move the preparation behind the launches of the step.

## When it misleads
A wait for a worker that is slow because the machine has no free core looks the same. Host work that copies its result
to the device at the start of a step is taken for input even where it computes something else. Loading under a name
that does not say so, in the middle of a step, is not seen.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Quantity, Verdict
from timesink.fixes import table as fixes
from timesink.measures.idle.blamed_time import BlamedTime, blamed_time
from timesink.measures.idle.causes import HOST_CAUSES
from timesink.measures.idle.input_pipeline import input_pipeline, loading_windows
from timesink.measures.steps.per_step import per_step_ns, period_name
from timesink.model.trace import Trace
from timesink.rules.idle._family import idle_rule, idle_verdict, place_of, waits
from timesink.units import time_text
from timesink.whatif.change import Target

HOW = "idle stretches inside the preparation of input on a launching thread, over the steady steps"


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device over the limit."""
    if not input_pipeline(trace).by_rank:
        return NotApplicable("no range, operator or copy shows where input is prepared")
    limit = limits["idle_ratio"]

    def finding(blamed: BlamedTime, evidence: Evidence) -> Finding:
        rank = blamed.device[0]
        preparing_ns = per_step_ns(trace, blamed.device, input_pipeline(trace)[rank].loading)
        in_period = "of each step" if period_name(trace) == "step" else "of the recorded window"
        return Finding(
            message=f"{_what(trace, rank)} takes {time_text(preparing_ns)} {in_period}; {waits(trace, blamed)} for it",
            bottleneck=Bottleneck.INPUT_PIPELINE,
            where=place_of(blamed),
            evidence=(
                evidence,
                Evidence("preparation of input", Quantity.ms(preparing_ns), "host time per steady step"),
            ),
            advice="Prepare the next batch while this one computes: DataLoader workers with prefetch and "
            "persistent_workers, cheaper decoding, or the data kept on the device.",
            verify="Feed one batch that stays on the device: the step shortens by at most this time.",
            claim=Claim({blamed.device: blamed.intervals}),
            change=fixes.LOADER_WORKERS.change(Target("windows", windows=loading_windows(trace, rank))),
            fix=fixes.LOADER_WORKERS,
        )

    waiting = blamed_time(trace, HOST_CAUSES, preparing=True)
    return idle_verdict(waiting, limit, "idle time while input is prepared", HOW, finding)


def _what(trace: Trace, rank: int) -> str:
    """The longest named loading, else the host work before the batch is copied."""
    longest = input_pipeline(trace)[rank]
    if longest.name is not None:
        return f"{longest.name} on thread {longest.thread}"
    return f"host work on thread {longest.thread} before the batch is copied to the device"


RULE = idle_rule(
    "IDL101",
    check,
    limits={
        "idle_ratio": Limit.ratio(
            0.03,
            "below this, a perfect input pipeline gains less than three steps in a hundred",
            "benchmarks/faults: healthy loaders stay under it",
        )
    },
    references=("https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html",),
)
