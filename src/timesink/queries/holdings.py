"""What a query can read: the canonical tables, and steps and idle time as the measures see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from timesink.measures.idle_blame import idle_blame
from timesink.measures.steps import steps
from timesink.model.tables import ALL, DEVICE_OPS
from timesink.model.trace import Trace

STEPS_DOC = "Derived: one row per steady step and GPU, from its first GPU work to that of the next step."
IDLE_DOC = "Derived: one row per stretch of idle time and what the GPU waited for; lengths sum to the idle time."


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """One table a query can name."""

    name: str
    doc: str
    frame: pl.DataFrame


def holdings(trace: Trace) -> Iterator[Holding]:
    """The recorded tables in the order of the reference, then the derived ones."""
    for table in ALL:
        if table in trace:
            yield Holding(table.name, table.doc, trace[table])
    if DEVICE_OPS in trace:
        yield Holding("steps", STEPS_DOC, steps(trace).windows)
        yield Holding("idle", IDLE_DOC, idle_blame(trace).frame)
