"""Compiled code runs in many pieces.

Python runs between them.

## What it detects
Several compiled regions per step where one would do: graph breaks. Where regions are not recorded (Nsight Systems),
neighbouring pointwise kernels that TorchInductor generated for graphs of their own.

## Why it matters
Each piece is guarded, called and launched by itself, and what the compiler could have fused across a break goes through
memory: a chain of five elementwise stages in five graphs reads and writes its tensor five times.

## How it is measured
Two parts over the steady steps. Generated pointwise kernels in a row, which one graph would have made one: fused they
take at least the memory time of the longest and all of their arithmetic. And idle time that ends with the first kernel
of a region after a break: the Python, guards and dispatch before it go, launches after it stay. The graph that runs
least often leads the call. One graph alone has no break, however often it runs.

## What to do
`TORCH_LOGS=graph_breaks` names each break and its reason; `fullgraph=True` makes a break an error. Move prints,
`.item()` and unsupported calls out of the compiled function.

## When it misleads
Blocks compiled one by one on purpose run as many regions; where the device is never idle and no kernels fuse across
them, they cost nothing, and nothing is found.
"""

from __future__ import annotations

from timesink.diagnosis.places import place_of
from timesink.diagnosis.rule import Limit, Limits, Rule, found_or_clear
from timesink.diagnosis.verdicts import Bottleneck, Claim, Evidence, Finding, NotApplicable, Verdict
from timesink.diagnosis.words import period_text
from timesink.fixes import table as fixes
from timesink.measures.compile.graphs import BrokenGraphs, broken_graphs
from timesink.measures.compile.summary import compile_summary
from timesink.measures.kernels.facts import kernel_facts, saved_per_step_ns
from timesink.measures.steps.per_step import per_step_ns
from timesink.model.tables import API_CALLS, COMPILE_EVENTS, DEVICE_OPS, DEVICES
from timesink.model.trace import Trace
from timesink.rules.idle._family import BLAME_READS
from timesink.rules.kernels import saved_share
from timesink.whatif.change import Case

_SHOWN = 3  # as many as fit in a sentence


def check(trace: Trace, limits: Limits) -> Verdict:
    """Found per device where joining the pieces wins more than the limit."""
    devices = broken_graphs(trace)
    if not devices and not len(kernel_facts(trace).frame["fused"].drop_nulls()):
        return NotApplicable("no compiled region and no generated kernel is recorded")
    return found_or_clear([_judge(trace, graphs, limits["saved_ratio"]) for graphs in devices])


def _judge(trace: Trace, graphs: BrokenGraphs, limit: float) -> Finding | Evidence:
    device = graphs.device
    change = fixes.JOIN_GRAPHS.change(graphs)
    idle_ns = change.launches_saved.at(Case.EXPECTED) * per_step_ns(trace, device, graphs.entry_idle)
    evidence = saved_share(
        f"time saved between compiled pieces on device {device[1]}",
        trace,
        change,
        saved_per_step_ns(trace, change, Case.EXPECTED) + idle_ns,
        "memory passes of generated kernels in a row, and idle time before the first kernel after each break; over the "
        "steady steps",
        limit,
    )
    if not evidence.is_over:
        return evidence
    saved = change.saved(trace, Case.HOPEFUL)
    return Finding(
        message=f"{_pieces(graphs)} on device {device[1]} of {period_text(trace, device)}, where one graph would do",
        bottleneck=Bottleneck.GRAPH_BREAKS,
        where=place_of(trace, change),
        evidence=(evidence,),
        advice=_advice(trace),
        verify="Capture again: one compiled region per call, fewer generated kernels, and a step shorter by the gain.",
        claim=Claim({device: saved | graphs.idle}, expected={device: saved | graphs.entry_idle}),
        change=change,
        fix=fixes.JOIN_GRAPHS,
    )


def _advice(trace: Trace) -> str:
    """What to do about the breaks, which are named where the compiler's log was read with the trace."""
    places = [
        f"{logged.file}:{logged.line} ({logged.reason})" for logged in compile_summary(trace).breaks if logged.file
    ][:_SHOWN]
    if places:
        return f"Remove the breaks that the log names: {'; '.join(dict.fromkeys(places))}."
    return "Run with TORCH_LOGS=graph_breaks and remove what it names; fullgraph=True makes a break an error."


def _pieces(graphs: BrokenGraphs) -> str:
    if graphs.regions is not None:
        return f"{graphs.regions:.0f} compiled regions of {graphs.graphs} graphs run per step"
    return f"Generated pointwise kernels, {graphs.in_a_row:.0f} in a row, follow one another"


RULE = Rule(
    "CMP101",
    check,
    needs=(DEVICE_OPS,),
    reads=(*BLAME_READS, API_CALLS, DEVICES, COMPILE_EVENTS),
    limits={
        "saved_ratio": Limit.ratio(
            0.03,
            "fewer than three steps in a hundred are won back",
            "benchmarks/faults: healthy compiled programs stay under it",
        )
    },
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",),
)
