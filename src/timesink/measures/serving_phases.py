"""Phases of a serving loop: each engine step prefills, decodes, or does both, by the annotation around it.

vLLM names a step `execute_<n>_context_<requests>(...)_generation_<requests>(...)`, older versions
`execute_context_<n>(<tokens>)_generation_<m>(<tokens>)`; SGLang `step[DECODE bs=32]`, `step[EXTEND bs=2 toks=900]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from timesink.measures.memo import remembered
from timesink.measures.range_projection import range_projection
from timesink.model.tables import RANGES
from timesink.model.trace import Trace

_VLLM: Final = re.compile(r"^execute\w*?_context_(?P<context>\d+)\([^)]*\)_generation_(?P<generation>\d+)\(")
_SGLANG: Final = re.compile(r"^step\[(?P<mode>\w+)(?: bs=(?P<requests>\d+))?")


class Phase(StrEnum):
    """What one engine step does."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"
    IDLE = "idle"


_MODES: Final = {
    "EXTEND": Phase.PREFILL,
    "PREFILL": Phase.PREFILL,
    "DECODE": Phase.DECODE,
    "TARGET_VERIFY": Phase.DECODE,
    "DRAFT_EXTEND": Phase.PREFILL,
    "MIXED": Phase.MIXED,
    "IDLE": Phase.IDLE,
}


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """One phase on one rank: `steps` engine steps of `requests` requests on average, None where not annotated;
    `host_ns` in the annotations, `device_ns` of the work launched in them."""

    rank: int
    phase: Phase
    steps: int
    requests: float | None
    host_ns: int
    device_ns: int


@remembered
def serving_phases(trace: Trace) -> tuple[PhaseTime, ...]:
    """Per rank and phase; nothing where no step of a serving engine is annotated. Where two annotations of one step
    nest, the outer one counts."""
    ranges = trace.get(RANGES).with_row_index("row")
    names = {name: found for name in ranges["name"].unique().cast(pl.String) if name and (found := phase_of(name))}
    if not names:
        return ()
    device = range_projection(trace).instances.group_by("range").agg(pl.col("device_ns").max())
    work = dict(device.select("range", "device_ns").iter_rows())
    columns = ("row", "rank", "process", "thread", pl.col("name").cast(pl.String), "start_ns", "end_ns")
    rows = ranges.select(columns).filter(pl.col("name").is_in(list(names)))
    totals: dict[tuple[int, Phase], list[tuple[int | None, int, int]]] = {}
    reached: dict[tuple[int, int, int], int] = {}
    for row, rank, process, thread, name, start, end in rows.sort("start_ns", -pl.col("end_ns")).iter_rows():
        place = (rank, process, thread)
        if start < reached.get(place, start):
            continue
        reached[place] = end
        phase, requests = names[name]
        totals.setdefault((rank, phase), []).append((requests, end - start, int(work.get(row, 0))))
    return tuple(_phase(rank, phase, parts) for (rank, phase), parts in sorted(totals.items()))


def phase_of(name: str) -> tuple[Phase, int | None] | None:
    """Phase and number of requests of an engine step, by its annotation; None for other names."""
    if (vllm := _VLLM.match(name)) is not None:
        context, generation = int(vllm["context"]), int(vllm["generation"])
        phase = Phase.MIXED if context and generation else Phase.PREFILL if context else Phase.DECODE
        return (phase if context + generation else Phase.IDLE), context + generation
    if (sglang := _SGLANG.match(name)) is not None and sglang["mode"] in _MODES:
        return _MODES[sglang["mode"]], int(sglang["requests"]) if sglang["requests"] else None
    return None


def _phase(rank: int, phase: Phase, parts: list[tuple[int | None, int, int]]) -> PhaseTime:
    requests = [count for count, _, _ in parts if count is not None]
    mean = sum(requests) / len(requests) if requests else None
    return PhaseTime(rank, phase, len(parts), mean, sum(p[1] for p in parts), sum(p[2] for p in parts))
