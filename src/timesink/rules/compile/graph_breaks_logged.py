"""The compiler's log names graph breaks.

## What it detects
Graph breaks that TORCH_TRACE or TORCH_LOGS=graph_breaks recorded, each with its place and the compiler's reason.

## Why it matters
Behind a break the function goes on in another graph: guards, a call and launches of its own, and no fusion across it.

## How it is measured
Breaks are counted by place and reason, on the rank that has most. The log is written while compiling: it says where
graphs break, not how often they run. What the pieces cost is for a trace to say (CMP101).

## What to do
Move the call out of the compiled function, or let the compiler see it: print and logging behind a condition that is
false, `torch.where` for a decision on a value, functional collectives for collectives.

## When it misleads
A break at the outermost function of a program compiled in one call, or around a call made once, costs nothing.
"""

from __future__ import annotations

from timesink.diagnosis.rule import Limit, Limits, Rule
from timesink.diagnosis.verdicts import Bottleneck, Clear, Evidence, Finding, Found, Quantity, Verdict, Where
from timesink.measures.compile.summary import GraphBreak, compile_summary
from timesink.model.tables import COMPILE_EVENTS
from timesink.model.trace import Trace
from timesink.units import share_text


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per place, on the first rank that has it, where there are more breaks than the limit allows."""
    summary = compile_summary(trace)
    total = Evidence(
        "graph breaks",
        Quantity(float(summary.graph_breaks), "events"),
        "counted in the compiler's log, on the rank that has most",
        limit=Quantity(limits["breaks"], "events"),
        table="compile_events",
    )
    if not total.is_over:
        return Clear((total,))
    by_place = {
        (graph_break.file, graph_break.line, graph_break.reason): graph_break
        for graph_break in reversed(summary.breaks)
    }
    return Found(tuple(_finding(graph_break, summary.graph_breaks, total) for graph_break in by_place.values()))


def _finding(graph_break: GraphBreak, breaks: int, total: Evidence) -> Finding:
    place = f"{graph_break.file}:{graph_break.line}" if graph_break.file else "a place the log does not name"
    share = f"{graph_break.count} of {breaks} breaks, {share_text(graph_break.count / breaks)}"
    return Finding(
        message=f"a graph breaks at {place} ({share}): {graph_break.reason or 'no reason logged'}",
        bottleneck=Bottleneck.GRAPH_BREAKS,
        where=Where(rank=graph_break.rank, file=graph_break.file, line=graph_break.line, op=graph_break.function),
        evidence=(total,),
        advice="Move the call out of the compiled function; fullgraph=True then keeps it whole.",
        verify="Compile again: timesink show compile lists no break at this place.",
        stated=Quantity(0.0, "ms", low=0.0, high=None),
    )


RULE = Rule(
    "CMP102",
    check,
    needs=(COMPILE_EVENTS,),
    limits={
        "breaks": Limit(
            0.0,
            "events",
            "a program that is meant to be one graph has no break",
            "fullgraph=True, PyTorch's own switch, allows none",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",),
    capture="TORCH_TRACE=logs python train.py",
)
