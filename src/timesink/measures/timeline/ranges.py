"""Ranges projected onto the GPU: the device time of the work launched inside each range on its thread.

Phases of a serving loop: each engine step prefills, decodes, or does both, by the annotation around it.

vLLM names a step `execute_<n>_context_<requests>(...)_generation_<requests>(...)`, older versions
`execute_context_<n>(<tokens>)_generation_<m>(<tokens>)`; SGLang `step[DECODE bs=32]`, `step[EXTEND bs=2 toks=900]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.timeline.host_places import host_places, push_pop_ranges, range_nesting
from timesink.measures.timeline.links import launch_links
from timesink.model.arrays import BoolArray, Int64Array
from timesink.model.intervals import union_ns
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import Trace, remembered

_INSTANCES = pl.Schema(
    {
        "range": pl.Int64(),
        "device": pl.Int32(),
        "op_count": pl.Int64(),
        "device_ns": pl.Int64(),
        "first_ns": pl.Int64(),
        "last_ns": pl.Int64(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class RangeProjection:
    """`instances`: one row per (range, device) that launched work, in order.

    Columns: range (row of `ranges`), rank, thread, name, depth, host_start_ns, host_end_ns, device, op_count,
    device_ns (union over streams of its work, work of ranges inside it included), first_ns, last_ns (first start and
    last end of it). `by_name`: rank, name, count (ranges of the name, those without device work too), host_ns, and per
    device: device, op_count, device_ns summed over the outermost ranges of the name, most device time first. Unions of
    two ranges can overlap in time, so device_ns of different names need not add up to busy time.
    """

    instances: pl.DataFrame
    by_name: pl.DataFrame


@remembered
def range_projection(trace: Trace) -> RangeProjection:
    """Project every range. Work launched on other threads while a range is open is not the range's."""
    ranges = trace.get(RANGES)
    range_of, op = _pairs(trace)
    instances = _instances(trace, range_of, op)
    facts = ranges.with_row_index("range").select(
        pl.col("range").cast(pl.Int64),
        *("rank", "thread", "name", "depth"),
        pl.col("start_ns").alias("host_start_ns"),
        pl.col("end_ns").alias("host_end_ns"),
        pl.Series("outermost", _outermost(trace)),
    )
    known = ["range", "rank", "thread", "name", "depth", "host_start_ns", "host_end_ns", "device"]
    joined = instances.join(facts, on="range", how="left", maintain_order="left")
    return RangeProjection(
        instances=joined.select(*known, "op_count", "device_ns", "first_ns", "last_ns"),
        by_name=_by_name(facts, joined),
    )


def _pairs(trace: Trace) -> tuple[Int64Array, Int64Array]:
    """Every (range row, device op row) such that the range holds the op's launch on its thread."""
    ranges, links = trace.get(RANGES), launch_links(trace)
    to_row = np.flatnonzero((ranges["kind"] == "push_pop").to_numpy())
    nesting = range_nesting(trace)
    op = np.flatnonzero(links.linked)
    holder = host_places(trace).range_[links.call[op]].astype(np.int64)
    range_parts, op_parts = [], []
    while True:
        inside = holder >= 0
        op, holder = op[inside], holder[inside]
        if not op.size:
            break
        range_parts.append(to_row[holder])
        op_parts.append(op)
        holder = nesting.parent[holder]
    crossing_range, crossing_op = _crossing_pairs(trace)
    return np.concatenate([*range_parts, crossing_range]), np.concatenate([*op_parts, crossing_op])


def _crossing_pairs(trace: Trace) -> tuple[Int64Array, Int64Array]:
    """The same for start/end ranges, which may cross: each takes the launches of its thread between its ends."""
    ranges, links = trace.get(RANGES), launch_links(trace)
    calls = (
        trace.get(API_CALLS)
        .select("rank", "process", "thread", "start_ns")
        .with_columns(pl.int_range(pl.len()).alias("call"))
    )
    op = np.flatnonzero(links.linked)
    op = op[np.argsort(links.call[op], kind="stable")]
    owned = links.call[op]
    slices = {key: calls["start_ns"].to_numpy()[a:b] for key, a, b in thread_slices(calls)}
    firsts = {key: a for key, a, _ in thread_slices(calls)}
    range_parts, op_parts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    crossing = ranges.with_row_index("range").filter(ranges["kind"] == "start_end")
    columns = ("range", "rank", "process", "thread", "start_ns", "end_ns")
    for row, rank, process, thread, start, end in crossing.select(columns).iter_rows():
        if (rank, process, thread) in slices:
            low, high = np.searchsorted(slices[rank, process, thread], [start, end]) + firsts[rank, process, thread]
            mine = op[np.searchsorted(owned, low) : np.searchsorted(owned, high)]
            range_parts.append(np.full(mine.size, row, np.int64))
            op_parts.append(mine)
    return np.concatenate(range_parts), np.concatenate(op_parts)


def _instances(trace: Trace, range_of: Int64Array, op: Int64Array) -> pl.DataFrame:
    if not op.size:
        return pl.DataFrame(schema=_INSTANCES)
    ops = trace.get(DEVICE_OPS)
    start, end = ops["start_ns"].to_numpy()[op], ops["end_ns"].to_numpy()[op]
    pairs = pl.DataFrame({"range": range_of, "device": ops["device"].to_numpy()[op], "start": start, "end": end})
    pairs = pairs.with_columns(pl.struct("range", "device").rank("dense").sub(1).cast(pl.Int64).alias("group"))
    summary = (
        pairs.group_by("group")
        .agg(
            pl.col("range", "device").first(),
            pl.len().cast(pl.Int64).alias("op_count"),
            pl.col("start").min().alias("first_ns"),
            pl.col("end").max().alias("last_ns"),
        )
        .sort("group")
    )
    device_ns = union_ns(pairs["group"].to_numpy(), start, end, summary.height)
    return summary.with_columns(pl.Series("device_ns", device_ns)).select(_INSTANCES.names())


def _outermost(trace: Trace) -> BoolArray:
    """Whether a range lies in no other of its name; start/end ranges count each."""
    ranges = trace.get(RANGES)
    outermost = np.ones(ranges.height, np.bool_)
    nested = (ranges["kind"] == "push_pop").to_numpy()
    codes = push_pop_ranges(trace)["name"].to_physical().cast(pl.Int64).to_numpy()
    outermost[nested] = range_nesting(trace).outermost_of_name(codes)
    return outermost


def _by_name(facts: pl.DataFrame, joined: pl.DataFrame) -> pl.DataFrame:
    key = ["rank", "name"]
    outer = facts.filter("outermost")
    host = (
        facts.group_by(key)
        .agg(pl.len().cast(pl.Int64).alias("count"))
        .join(outer.group_by(key).agg((pl.col("host_end_ns") - pl.col("host_start_ns")).sum().alias("host_ns")), on=key)
    )
    device = joined.filter("outermost").group_by(*key, "device").agg(pl.col("op_count", "device_ns").sum())
    named = host.join(device, on=key, how="left").with_columns(
        pl.col("op_count", "device_ns").fill_null(0), pl.col("name").cast(pl.String)
    )
    return named.sort(["rank", "device_ns", "host_ns", "name", "device"], descending=[False, True, True, False, False])


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
