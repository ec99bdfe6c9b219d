"""The optimizer updates parameters in many passes over memory.

A fused optimizer makes one pass.

## What it detects
Elementwise kernels launched inside an optimizer's step (`Optimizer.step#...`, a range called `optimizer`) that are not
those of a fused optimizer: one by one for each parameter (`foreach=False`), or over lists of parameters (`foreach`).
In a trace without such ranges, rows of kernels over lists, or over one tensor after another, with the update of Adam.

## Why it matters
Fused AdamW moves each parameter's state once: 7 passes over memory. Operation by operation it takes about 20, and a
launch for each of a dozen operations on each parameter.

## How it is measured
The kernels are taken from the ranges that launched them, or by name. A fused step keeps 35 % of their time (passes over
passes); of the idle time that ends with one of them and is the host's own, what exceeds 0.15 ms per step goes too.
Where the range holds a fused optimizer's kernel, the others are taken for gradient clipping and the like.

## What to do
`fused=True` for Adam, AdamW, SGD and Adagrad; `torch.compile` around `optimizer.step()` for others.

## When it misleads
A step that hides its optimizer behind communication wins less. Small models whose state lies in the L2 cache lose less
by additional passes.
"""

from __future__ import annotations

from timesink.diagnosis.places import place_of
from timesink.diagnosis.rule import Limits, Rule, applicable
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, Quantity, Verdict
from timesink.diagnosis.words import of_period
from timesink.knowledge.assumptions import fixes
from timesink.measures.kernels.facts import saved_per_step_ns
from timesink.measures.kernels.fusion import OptimizerKernels, optimizer_kernels
from timesink.measures.steps.per_step import per_step_ns, period_name
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.rules.kernels._family import LINE_READS, ONE_PERCENT, saved_share
from timesink.units import time_text
from timesink.whatif.change import Case
from timesink.whatif.changes.optimizer import FuseOptimizer


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where fusing wins more than the limit."""
    judged = (_judge(trace, kernels, limits["saved_ratio"]) for kernels in optimizer_kernels(trace))
    return applicable(judged, "no range of an optimizer's step launched kernels, and none is named as Adam's")


def _judge(trace: Trace, kernels: OptimizerKernels, limit: float) -> Finding | Evidence:
    change = FuseOptimizer.of(kernels.unfused)
    idle_ns = per_step_ns(trace, kernels.device, kernels.idle)
    evidence = saved_share(
        f"time saved in the optimizer's step on device {kernels.device[1]}",
        trace,
        change.kernels,
        _saved_ns(trace, kernels, change, idle_ns),
        "a fused step keeps 35 % of the kernel time and 0.15 ms of the gaps; over the steady steps",
        limit,
    )
    if not evidence.is_over:
        return evidence
    kernels_ns = per_step_ns(trace, kernels.device, change.kernels.whole(trace))
    waited = f", which waits {time_text(idle_ns)} between them" if idle_ns > fixes.OPTIMIZER_FIXED_US.ns else ""
    single = kernels.one_by_one
    kind = f"{single:.0f} of them for one parameter each" if single else "over lists of parameters"
    count = "" if period_name(trace) == "window" else f" {kernels.per_step:.0f}"
    return Finding(
        message=f"the optimizer runs{count} kernels that are not fused, {kind}: "
        f"{of_period(trace, kernels.device, kernels_ns)} on device {kernels.device[1]}{waited}",
        bottleneck=Bottleneck.OPTIMIZER_UNFUSED,
        where=place_of(trace, change.kernels),
        evidence=(
            evidence,
            Evidence("unfused kernels per step", Quantity(kernels.per_step, "kernels"), "in its ranges"),
            Evidence("time of the unfused kernels", Quantity.ms(kernels_ns), "union of the kernels, per steady step"),
            Evidence("idle time between them", Quantity.ms(idle_ns), "in the optimizer's ranges"),
        ),
        advice="Pass fused=True to Adam, AdamW, SGD or Adagrad; compile optimizer.step() of another.",
        verify="Capture again: a few FusedOptimizer kernels are all that the optimizer's range launches.",
        claim=Claim({kernels.device: change.kernels.saved(trace, Case.HOPEFUL) | kernels.idle}),
        change=change,
    )


def _saved_ns(trace: Trace, kernels: OptimizerKernels, change: FuseOptimizer, idle_ns: float) -> float:
    """What fusing saves per step as the device shows it: kernel time, and gaps beyond the time of a fused step."""
    beyond_ns = idle_ns - fixes.OPTIMIZER_FIXED_US.ns if kernels.unfused.rows.size else 0.0
    return saved_per_step_ns(trace, change.kernels, Case.EXPECTED) + max(beyond_ns, 0.0)


RULE = Rule(
    "KRN108",
    check,
    needs=(DEVICE_OPS,),
    reads=(*BLAME_READS, *LINE_READS, API_CALLS, DEVICES),
    limits={"saved_ratio": ONE_PERCENT},
    references=("https://docs.pytorch.org/docs/stable/optim.html",),
)
