"""The tables of `timesink memory plan`."""

from __future__ import annotations

from timesink.measures.memory.ledger import memory_ledger
from timesink.memory_plan.plan import MemoryPlan
from timesink.memory_plan.states import MemoryCategory
from timesink.model.trace import Trace
from timesink.units import bytes_text
from timesink.views.page import Column, Page, Sheet

BYTES = "bytes"


def plan_page(plan: MemoryPlan, measured: Sheet | None = None) -> Page:
    """The verdict, the terms, the phases, the changes, and a comparison where there is one."""
    sheets = [_verdict(plan), _terms(plan), _phases(plan), _changes(plan)]
    if measured is not None:
        sheets.append(measured)
    name = plan.config.name or "a transformer"
    notes = (
        "fragmentation is not planned: what the allocator reserves beyond the peak depends on the order of sizes "
        "(docs/explanation/memory-accuracy.md)",
    )
    return Page(f"Planned memory of one rank: {name}", tuple(sheets), notes)


def _verdict(plan: MemoryPlan) -> Sheet:
    gpu = plan.config.gpu
    columns = (Column("what", "what"), Column("value", "value"))
    fits = "fits" if plan.fits else "does not fit"
    rows = (
        ("parameters on this rank", f"{plan.parameters:,}"),
        ("peak", f"{bytes_text(plan.peak_bytes)} in {plan.peak.phase} ({plan.peak.what})"),
        ("with context and communicator", f"{bytes_text(plan.device_bytes)}: {fits} in {bytes_text(gpu.memory_bytes)}"),
        ("largest term", f"{plan.largest.name}, {bytes_text(plan.largest.size_bytes)}"),
        ("largest batch that fits", f"{plan.most_batch:,}"),
        ("longest sequence that fits", f"{plan.most_sequence:,}"),
    )
    return Sheet("verdict", "Verdict", columns, rows)


def _terms(plan: MemoryPlan) -> Sheet:
    columns = (
        Column("part", "category"),
        Column("name", "term"),
        Column("bytes", "bytes", unit=BYTES),
        Column("formula", "formula"),
        Column("source", "source"),
    )
    rows = tuple((str(term.part), term.name, term.size_bytes, term.formula, term.source) for term in plan.terms)
    return Sheet("terms", "The peak, term by term", columns, rows, "terms sum to the peak exactly")


def _phases(plan: MemoryPlan) -> Sheet:
    columns = (Column("phase", "phase"), Column("what", "at"), Column("bytes", "most alive", unit=BYTES))
    rows = tuple((moment.phase, moment.what, moment.total_bytes) for moment in plan.phases)
    return Sheet("phases", "Phases", columns, rows)


def _changes(plan: MemoryPlan) -> Sheet:
    columns = (Column("change", "change"), Column("freed_bytes", "frees", unit=BYTES), Column("cost", "costs"))
    rows = tuple((change.label, change.freed_bytes, change.cost) for change in plan.changes)
    return Sheet("changes", "What one change frees at the peak", columns, rows)


def comparison_sheet(plan: MemoryPlan, trace: Trace) -> Sheet:
    """Plan and measurement, category by category, each at its own peak. The first GPU of the trace is taken."""
    columns = (
        Column("part", "category"),
        Column("planned_bytes", "planned", unit=BYTES),
        Column("measured_bytes", "measured", unit=BYTES),
        Column("error_ratio", "of the measured peak", unit="ratio"),
    )
    ledger = next(iter(memory_ledger(trace).values()))
    measured = {str(category): size for category, size in ledger.at_peak().items()}
    planned_parts = {str(part): size for part, size in plan.peak.parts.items()}
    names = [str(part) for part in MemoryCategory if part is not MemoryCategory.CONTEXT] + ["unclassified"]
    pairs = [(name, planned_parts.get(name, 0), measured.get(name, 0)) for name in names]
    pairs = [pair for pair in pairs if pair[1] or pair[2]] + [("total", plan.peak_bytes, ledger.peak_bytes)]
    whole = max(ledger.peak_bytes, 1)
    rows = tuple((name, planned, found, (planned - found) / whole) for name, planned, found in pairs)
    return Sheet(
        "against", "Planned against measured", columns, rows, "each at its own peak; positive: planned too much"
    )
