"""What a first capture leaves open and another one could tell, and how the two are read as one.

`timesink capture --loop` captures with torch.profiler first. Idle time without a cause is worth an nsys capture, and
kernels that take much of a step are worth an ncu capture.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from timesink.diagnosis.pricing import worth_ms
from timesink.diagnosis.rule import Limit
from timesink.diagnosis.verdicts import Diagnosis, NotApplicable, Note, Undecided
from timesink.measures.idle.blamed_time import blamed_time
from timesink.measures.kernels.kernels import kernel_targets
from timesink.model.tables import DEVICES, SOURCES
from timesink.model.trace import Trace

UNEXPLAINED = Limit.ratio(
    0.05,
    "idle time that torch.profiler sees no cause for is worth another run from a twentieth of the step on",
    "below it, all of it recovered would be hard to tell from run-to-run noise with a handful of runs",
)
KERNEL_SHARE = Limit.ratio(
    0.05,
    "a kernel below a twentieth of the step cannot repay a replay of forty passes, however slow it is",
    "Amdahl: 5 % of the step is the most that it could win",
)
MOST_KERNELS = 3  # each costs a replay of its own: a minute
_UNTRACED = ("untraced", "unexplained")


def unexplained_share(trace: Trace) -> float:
    """The largest share of a step that a device is idle without a cause in the trace."""
    return max((part.share for part in blamed_time(trace, _UNTRACED)), default=0.0)


def kernels_worth_it(trace: Trace) -> tuple[str, ...]:
    """Patterns of the few kernels that take enough of a step to be looked into, the longest first."""
    worth = [target for target in kernel_targets(trace) if target.step_ratio >= KERNEL_SHARE.default]
    return tuple(target.pattern.removeprefix("regex:") for target in worth[:MOST_KERNELS])


def with_kernels(timeline: Trace, profiled: Trace) -> Trace:
    """The tables of the timeline with those of the profiled kernels: rank 0 ran twice and is read as one."""
    added = {table: profiled[table] for table in profiled if table not in timeline}
    both = {table: pl.concat([timeline.get(table), profiled.get(table)]) for table in (SOURCES, DEVICES)}
    filled = both[DEVICES].group_by("rank", "device").agg(pl.all().drop_nulls().last())  # each knows other facts
    added |= {SOURCES: both[SOURCES], DEVICES: DEVICES.check(filled.sort("rank", "device"))}
    return replace(timeline, tables={**timeline.tables, **added}, notes=(*timeline.notes, *profiled.notes))


def joined(first: Diagnosis, second: Diagnosis | None) -> Diagnosis:
    """The first diagnosis, with what the second can decide and it cannot. One ruling per rule, as before."""
    if second is None:
        return first
    other = {ruling.card.code: ruling for ruling in second.rulings}
    rulings, taken = [], []
    for ruling in first.rulings:
        instead = other.get(ruling.card.code)
        open_here = isinstance(ruling.verdict, Undecided)
        if open_here and instead is not None and not isinstance(instead.verdict, Undecided | NotApplicable):
            rulings.append(instead)
            taken.append(ruling.card.code)
        else:
            rulings.append(ruling)
    findings = [*first.findings, *(entry for entry in second.findings if entry[0].code in taken)]
    findings.sort(key=lambda entry: (-worth_ms(entry[1]), entry[0].code, entry[1].message))
    what = f"decided by the nsys capture: {', '.join(taken)}" if taken else "the nsys capture decides no further rule"
    notes = (Note(what), Note(f"the nsys capture by itself says: {second.statement}"))
    sources = (*first.sources, *second.sources)
    return replace(
        first, rulings=tuple(rulings), findings=tuple(findings), sources=sources, notes=(*first.notes, *notes)
    )
