"""Compiled code runs in many pieces, with Python between them.

## What it detects
Several compiled regions per step where one would do: graph breaks. Where regions are not recorded (Nsight Systems),
neighbouring pointwise kernels that TorchInductor generated for graphs of their own.

## Why it matters
Each piece is guarded, called and launched by itself, and what the compiler could have fused across a break goes through
memory: a chain of five elementwise stages in five graphs reads and writes its tensor five times.

## How it is measured
Two parts over the steady steps. Generated pointwise kernels in a row, which one graph would have made one: fused they
take at least the memory time of the longest and all of their arithmetic. And idle time that ends with a kernel of a
region: n graphs that take turns could be one, so 1 - 1/n of it goes. One graph alone has no break, however often it
runs.

## What to do
`TORCH_LOGS=graph_breaks` names each break and its reason; `fullgraph=True` makes a break an error. Move prints,
`.item()` and unsupported calls out of the compiled function.

## When it misleads
Blocks compiled one by one on purpose run as many regions; where the device is never idle and no kernels fuse across
them, they cost nothing, and nothing is found.
"""

from __future__ import annotations

from timesink.findings import (
    Bottleneck,
    Card,
    Claim,
    Clear,
    Evidence,
    Finding,
    Found,
    Limit,
    NotApplicable,
    Quantity,
    Verdict,
    Where,
)
from timesink.idle_verdict import BLAME_READS
from timesink.kernel_verdict import place_of
from timesink.measures.compiled_regions import CompiledRegions, compiled_regions
from timesink.measures.generated_chains import GeneratedChains, generated_chains
from timesink.measures.kernel_facts import kernel_facts
from timesink.measures.per_step import per_step_ns, period_ns
from timesink.measures.shortened import Shortened
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS, DEVICES
from timesink.rule import Facts, Limits, Rule
from timesink.units import NS_PER_MS, share_text, time_text
from timesink.whatif.changes.case import Case, Range

_IDLE_GONE = Range(0.5, 1.0, 1.0)  # of the idle time at regions beyond the first of a step


def check(facts: Facts, limits: Limits) -> Verdict:
    """Found per device where joining the pieces wins more than the limit."""
    regions = {part.device: part for part in facts(compiled_regions)}
    chains = {part.device: part for part in facts(generated_chains)}
    generated = facts(kernel_facts).frame["fused"].drop_nulls()
    if not regions and not len(generated):
        return NotApplicable("no compiled region and no generated kernel is recorded")
    judged = [_judge(facts, d, regions.get(d), chains.get(d), limits) for d in facts(kernel_facts).devices]
    found = tuple(finding for finding, _ in judged if finding is not None)
    return Found(found) if found else Clear(tuple(fact for _, fact in judged))


def _judge(
    facts: Facts, device: Device, regions: CompiledRegions | None, chain: GeneratedChains | None, limits: Limits
) -> tuple[Finding | None, Evidence]:
    trace, step_ns, limit = facts.trace, period_ns(facts.trace, device), limits["saved_ratio"]
    short = chain.shortened if chain else None
    pieces, idle = _at_pieces(regions, chain)
    idle_ns = per_step_ns(trace, device, idle) * (1.0 - 1.0 / pieces)
    worth = [(short.saved_per_step_ns(trace, case) if short else 0.0) + _IDLE_GONE.at(case) * idle_ns for case in Case]
    share = worth[Case.EXPECTED.value] / step_ns if step_ns else 0.0
    evidence = _evidence(device, share, limit, short, facts)
    if share <= limit:
        return None, evidence
    low, value, high = (ns / NS_PER_MS for ns in worth)
    gone = short.saved(trace, Case.HOPEFUL) if short else Intervals.none()
    finding = Finding(
        message=f"{_pieces(regions, chain)} on device {device[1]}; one graph wins {time_text(worth[1])} of the "
        f"{time_text(step_ns)} step ({share_text(share)}, limit {share_text(limit)})",
        bottleneck=Bottleneck.GRAPH_BREAKS,
        where=place_of(facts, short) if short else Where(rank=device[0], device=device[1]),
        evidence=(evidence,),
        advice="Run with TORCH_LOGS=graph_breaks and remove what it names; fullgraph=True makes a break an error.",
        verify="Capture again: one compiled region per call, fewer generated kernels, and a step shorter by the gain.",
        claim=Claim({device: gone | idle}),
        recoverable=Quantity(value, "ms", low=low, high=high),
    )
    return finding, evidence


def _evidence(device: Device, share: float, limit: float, chain: Shortened | None, facts: Facts) -> Evidence:
    return Evidence(
        f"time saved between compiled regions on device {device[1]}",
        Quantity(share, "ratio"),
        "memory passes of generated kernels in a row, and idle time at regions; over the steady steps",
        limit=Quantity(limit, "ratio"),
        table="device_ops",
        rows=chain.longest(facts.trace) if chain else (),
    )


def _at_pieces(regions: CompiledRegions | None, chain: GeneratedChains | None) -> tuple[float, Intervals]:
    """How many pieces take turns, and the idle time at them: by regions where recorded, else by kernels in a row."""
    if regions is not None:
        return float(max(regions.graphs, 1)), regions.idle
    return (chain.pieces, chain.idle) if chain is not None else (1.0, Intervals.none())


def _pieces(regions: CompiledRegions | None, chain: GeneratedChains | None) -> str:
    if regions is not None:
        return f"{regions.per_step:.0f} compiled regions of {regions.graphs} graphs run per step"
    return f"{chain.shortened.rows.size if chain else 0} generated pointwise kernels follow one another"


RULE = Rule(
    card=Card(
        code="CMP101",
        name="graphs-in-pieces",
        summary="compiled code runs in many pieces",
        doc=__doc__ or "",
        since="0.1.0",
        references=("https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",),
    ),
    needs=(DEVICE_OPS,),
    reads=(*BLAME_READS, API_CALLS, DEVICES),
    check=check,
    limits={
        "saved_ratio": Limit(
            default=0.03,
            unit="ratio",
            why="fewer than three steps in a hundred are won back",
            source="benchmarks/faults: healthy compiled programs stay under it",
        ),
    },
)
