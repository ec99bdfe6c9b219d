"""One guard fails again and again.

Each time the function is compiled anew.

## What it detects
Functions that the compiler's log shows compiled again for the same guard, numbers aside, after every function of the
program had been compiled once; and functions that hit the limit of recompilations and run eagerly from then on.

## Why it matters
Each recompilation costs a second or more in one step. At the limit (8 by default) the compiler gives the function up,
without an error: from there on it runs eagerly.

## How it is measured
Recompilations are grouped by function and by the guard that failed, numbers in it left out: `n == 4` and `n == 5` are
one guard. Those that come while functions are still met for the first time belong to warm-up.

## What to do
Mark the dimension dynamic (`torch._dynamo.mark_dynamic`, `dynamic=True`), pad to few sizes, or pass a number that
changes as a tensor.

## When it misleads
A program with a few shapes that all come back compiles each once: it settles, and the log of a longer run shows it.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Evidence, Finding, Quantity, Verdict, Where
from timesink.measures.compile.summary import FrameSummary, compile_summary
from timesink.model.tables import COMPILE_EVENTS
from timesink.model.trace import Trace
from timesink.units import share_text, time_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per function, on every rank, whose guard fails more often than the limit or that was given up."""
    return found_or_clear([_judge(function, limits["failures"]) for function in compile_summary(trace).frames])


def _judge(function: FrameSummary, limit: float) -> Finding | Evidence:
    late = min(function.guard_failures, function.late_recompilations)
    evidence = Evidence(
        f"failures of one guard of {function.function} after every function was compiled once",
        Quantity(float(late), "events"),
        "counted in the compiler's log",
        limit=Quantity(limit, "events"),
        table="compile_events",
    )
    given_up = function.eager is not None and function.eager.startswith("limit")
    if not (evidence.is_over or given_up):
        return evidence
    spent = f", {time_text(function.compile_ns)} of compilation in all" if function.compile_ns else ""
    end = f"; the compiler gave it up ({function.eager}): it runs eagerly from then on" if given_up else ""
    share = function.guard_failures / function.recompilations if function.recompilations else 0.0
    return Finding(
        message=f"{function.function} is compiled {function.recompilations} times again, {late} times late for one "
        f"guard ({share_text(share)} of them): {function.guard or 'not logged'}{spent}{end}",
        bottleneck=Bottleneck.RECOMPILATION,
        where=Where(rank=function.rank, file=function.file, line=function.line, op=function.function),
        evidence=(evidence,),
        advice="Mark the dimension dynamic, pad to few sizes, or pass the number as a tensor.",
        verify="Run again: timesink show compile shows no late recompilation of this function.",
        stated=Quantity(0.0, "ms", low=0.0, high=None),
    )


RULE = Rule(
    "CMP103",
    check,
    needs=(COMPILE_EVENTS,),
    limits={
        "failures": Limit(
            2.0,
            "events",
            "a first other shape and the step to a dynamic one are how the compiler learns",
            "PyTorch's automatic dynamic shapes: the second shape makes the dimension dynamic",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",),
    capture="TORCH_TRACE=logs python train.py",
)
