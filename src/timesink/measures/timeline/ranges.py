"""Ranges projected onto the GPU: the device time of the work launched inside each range, and by autograd for it.

Also the phases of a serving loop: each engine step prefills, decodes, or does both, by the annotation around it. vLLM
names a step `execute_<n>_context_<requests>(...)_generation_<requests>(...)`, older versions
`execute_context_<n>(<tokens>)_generation_<m>(<tokens>)`; SGLang `step[DECODE bs=32]`, `step[EXTEND bs=2 toks=900]`;
TensorRT-LLM `[Executor] _forward_step 812: 1 ctx reqs, 31 gen reqs`.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from timesink._native import totals
from timesink.knowledge.ranges import NUMBER, SGLANG_STEP, TRTLLM_STEP, VLLM_STEP
from timesink.measures.timeline.attribution import host_places, launch_links, push_pop_ranges, range_nesting
from timesink.measures.timeline.autograd import forward_ranges, waiting_ranges
from timesink.model.arrays import Int32Array, Int64Array, IntArray, median
from timesink.model.intervals import Intervals
from timesink.model.names import mapped
from timesink.model.nesting import thread_slices
from timesink.model.tables import API_CALLS, DEVICE_OPS, RANGES
from timesink.model.trace import Trace, remembered
from timesink.records import Record
from timesink.startup import regex

_PROJECTED: Final = pl.Schema(
    {"range": pl.Int64()}
    | {name: RANGES.columns[name].dtype for name in ("rank", "thread", "name", "depth")}
    | {"host_start_ns": pl.Int64(), "host_end_ns": pl.Int64(), "device": pl.Int32()}
    | dict.fromkeys(("op_count", "launch_count", "device_ns", "first_ns", "last_ns"), pl.Int64())
)


@remembered
def range_projection(trace: Trace) -> pl.DataFrame:
    """One row per (range, device) that launched work, in order of both.

    Columns: range (row of `ranges`), rank, thread, name, depth, host_start_ns, host_end_ns, device, op_count,
    launch_count (calls; one launches all operations of a graph), device_ns (union over streams of its work, work of
    ranges inside it included), first_ns, last_ns (first start and last end of it). Unions of two ranges can overlap in
    time, so device_ns of different ranges need not add up to busy time. What autograd launches belongs to the range
    that waits for it; other work that other threads launch while a range is open is not the range's.
    """
    return _project_ops(trace, _pair_launches(trace, host_places(trace).range_, waiting_ranges(trace)))


@remembered
def thread_projection(trace: Trace) -> pl.DataFrame:
    """The same of work launched on the range's own thread alone, as `nsys stats` projects ranges."""
    return _project_ops(trace, _pair_launches(trace, host_places(trace).range_))


@remembered
def backward_projection(trace: Trace) -> pl.DataFrame:
    """The same of work that autograd launched for the forward operators called in the range, and that is not the
    range's by `range_projection`: the backward work that a range of the forward pass causes later."""
    caused_range, caused_op = _pair_launches(trace, forward_ranges(trace))
    inside_range, inside_op = _pair_launches(trace, host_places(trace).range_, waiting_ranges(trace))
    width = np.int64(trace.get(DEVICE_OPS).height)
    elsewhere = ~np.isin(caused_range * width + caused_op, inside_range * width + inside_op)
    return _project_ops(trace, (caused_range[elsewhere], caused_op[elsewhere]))


def range_work(trace: Trace) -> dict[tuple[int, int, str], Intervals]:
    """When work of each range ran, by rank, device and the range's name with its numbers left out."""
    range_row, op_row = _pair_launches(trace, host_places(trace).range_, waiting_ranges(trace))
    if not op_row.size:
        return {}
    ops = trace.get(DEVICE_OPS).select("rank", "device", "start_ns", "end_ns")[op_row]
    names = mapped(trace.get(RANGES)["name"], lambda some: some.str.replace_all(NUMBER, "#"), pl.String)
    parts = ops.with_columns(names[range_row].alias("name")).partition_by(
        "rank", "device", "name", as_dict=True, maintain_order=True
    )
    return {
        (rank, device, name): Intervals.union_of(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
        for (rank, device, name), part in parts.items()
    }


def _project_ops(trace: Trace, pairs: tuple[Int32Array, Int32Array]) -> pl.DataFrame:
    """Times of the device ops of each range, given as pairs of a row of `ranges` and one of `device_ops`."""
    range_row, op_row = pairs
    if not op_row.size:
        return pl.DataFrame(schema=_PROJECTED)
    device, start, end = (trace.get(DEVICE_OPS)[name].to_numpy() for name in ("device", "start_ns", "end_ns"))
    known = np.unique(device)
    group = range_row * known.size + np.searchsorted(known, device)[op_row] if known.size > 1 else range_row
    figures = totals(group, op_row, launch_links(trace).call, start, end, (int(range_row.max()) + 1) * known.size)
    names = ("op_count", "launch_count", "first_ns", "last_ns", "device_ns")
    found = np.flatnonzero(figures[0])
    projected = pl.DataFrame({"range": found // known.size, "device": known[found % known.size]}).hstack(
        [pl.Series(name, figure[found]) for name, figure in zip(names, figures, strict=True)]
    )
    named = trace.get(RANGES)[projected["range"]].rename({"start_ns": "host_start_ns", "end_ns": "host_end_ns"})
    return projected.hstack(named.select("rank", "thread", "name", "depth", "host_start_ns", "host_end_ns")).select(
        _PROJECTED.names()
    )


def _pair_launches(trace: Trace, *innermost: IntArray) -> tuple[Int32Array, Int32Array]:
    """Every pair (range row, device op row) such that the op's launch is in the range, or in one inside it.

    `innermost` gives for each row of `api_calls` the row of `push_pop_ranges` it is in: on its own thread, say, and on
    the one that waits for it. Ops in no range drop out; the others climb to the parents of theirs. With op 0 launched
    in range 1, which is inside range 0, and op 1 launched in range 0 alone::

        round  range  op
        1      1      0
        1      0      1
        2      0      0
    """
    links = launch_links(trace)
    row_of_nested = np.flatnonzero((trace.get(RANGES)["kind"] == "push_pop").to_numpy()).astype(np.int32)
    parent = range_nesting(trace).parent.astype(np.int32)
    linked = np.flatnonzero(links.linked).astype(np.int32)  # a launch is in several ranges: every pair takes memory
    crossing_range, crossing_op = _pair_crossing_launches(trace, linked, innermost)
    range_parts, op_parts = list[IntArray]([crossing_range]), list[IntArray]([crossing_op])
    for place in innermost:
        op, enclosing = linked, place[links.call[linked]]
        while (inside := enclosing >= 0).any():
            op, enclosing = op[inside], enclosing[inside]
            range_parts.append(row_of_nested[enclosing])
            op_parts.append(op)
            enclosing = parent[enclosing]
    del linked, inside, op, enclosing
    op_row = np.concatenate(op_parts, dtype=np.int32)
    op_parts.clear()
    return np.concatenate(range_parts, dtype=np.int32), op_row


def _pair_crossing_launches(trace: Trace, op: IntArray, innermost: Sequence[IntArray]) -> tuple[Int64Array, Int64Array]:
    """The same for start/end ranges, which may cross: each takes the launches between its ends, of its own thread and
    of the threads that a range of its thread waits for."""
    crossing = trace.get(RANGES).with_row_index("range").filter(pl.col("kind") == "start_end")
    range_parts, op_parts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    if crossing.height:
        launched = _launches_by_thread(trace, op, innermost)
        start_ns, op = launched["start_ns"].to_numpy(), launched["op"].to_numpy()
        threads = {thread: (first, last) for thread, first, last in thread_slices(launched)}
        columns = ("range", "rank", "process", "thread", "start_ns", "end_ns")
        for row, rank, process, thread, start, end in crossing.select(columns).iter_rows():
            first, last = threads.get((rank, process, thread), (0, 0))
            within = op[slice(*(first + np.searchsorted(start_ns[first:last], [start, end])))]
            range_parts.append(np.full(within.size, row, np.int64))
            op_parts.append(within)
    return np.concatenate(range_parts), np.concatenate(op_parts)


def _launches_by_thread(trace: Trace, op: IntArray, innermost: Sequence[IntArray]) -> pl.DataFrame:
    """rank, process, thread, start_ns, op: each op under the thread of its launch and under that of the range that
    waits for it, in order."""
    call = launch_links(trace).call[op]
    calls = trace.get(API_CALLS).select("rank", "process", "thread", "start_ns")[call].with_columns(pl.Series("op", op))
    parts = [calls]
    for place in innermost[1:]:
        waited = np.flatnonzero(place[call] >= 0)
        thread = push_pop_ranges(trace)["thread"][place[call[waited]]]
        parts.append(calls[waited].with_columns(thread.alias("thread")))
    return pl.concat(parts).sort("rank", "process", "thread", "start_ns")


_COUNTED: Final = (regex(VLLM_STEP), regex(TRTLLM_STEP))


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


class PhaseTime(Record):
    """One phase on one rank: `steps` engine steps of `requests` requests on average, None where not annotated, and
    `device_ns` of the work launched in them. `periods_ns`: of each step that another engine step follows on its thread,
    the time from its start to the start of that one."""

    phase: Phase
    steps: int
    requests: float | None
    device_ns: int
    periods_ns: tuple[int, ...] = ()

    @property
    def period_ns(self) -> float | None:
        """The median of `periods_ns`; None where no step is followed by another."""
        return median(self.periods_ns) if self.periods_ns else None


@remembered
def serving_phases(trace: Trace) -> tuple[PhaseTime, ...]:
    """Per rank and phase; nothing where no step of a serving engine is annotated. Where two annotations of one step
    nest, the outer one counts."""
    ranges = trace.get(RANGES).with_row_index("row").filter(pl.col("process") >= 0)
    names = [name for name in ranges["name"].unique().cast(pl.String) if name]
    phase_by_name = {name: step for name in names if (step := phase_of(name))}
    if not phase_by_name:
        return ()
    device = range_projection(trace).group_by("range").agg(pl.col("device_ns").max())
    device_ns = dict(device.select("range", "device_ns").iter_rows())
    columns = ("row", "rank", "process", "thread", pl.col("name").cast(pl.String), "start_ns", "end_ns")
    rows = ranges.select(columns).filter(pl.col("name").is_in(list(phase_by_name)))
    engine_steps: dict[tuple[int, Phase], list[tuple[int | None, int]]] = {}  # requests, device ns
    periods: dict[tuple[int, Phase], list[int]] = {}
    outer_end: dict[tuple[int, int, int], int] = {}
    last: dict[tuple[int, int, int], tuple[Phase, int]] = {}  # the step before on the thread, and its start
    for row, rank, process, thread, name, start, end in rows.sort("start_ns", -pl.col("end_ns")).iter_rows():
        if start < outer_end.get((rank, process, thread), start):
            continue
        outer_end[rank, process, thread] = end
        phase, requests = phase_by_name[name]
        if (before := last.get((rank, process, thread))) is not None:
            periods.setdefault((rank, before[0]), []).append(start - before[1])
        last[rank, process, thread] = phase, start
        engine_steps.setdefault((rank, phase), []).append((requests, int(device_ns.get(row, 0))))
    return tuple(
        _phase_time(phase, parts, tuple(periods.get((rank, phase), ())))
        for (rank, phase), parts in sorted(engine_steps.items())
    )


def phase_of(name: str) -> tuple[Phase, int | None] | None:
    """Phase and number of requests of an engine step, by its annotation; None for other names."""
    if (counted := next((found for one in _COUNTED if (found := one.match(name))), None)) is not None:
        context, generation = int(counted["context"]), int(counted["generation"])
        phase = Phase.MIXED if context and generation else Phase.PREFILL if context else Phase.DECODE
        return (phase if context + generation else Phase.IDLE), context + generation
    if (sglang := SGLANG_STEP.match(name)) is not None and sglang["mode"] in _MODES:
        return _MODES[sglang["mode"]], int(sglang["requests"]) if sglang["requests"] else None
    return None


class StepRequests(NamedTuple):
    """Of one engine step: the tokens of prompts that it reads, and the requests that get a token in it."""

    prompt_tokens: int
    decoding: int


def requests_of(name: str) -> StepRequests | None:
    """What the annotation of an engine step says of its tokens and requests; None where it does not say both."""
    found = next((found for one in (*_COUNTED, SGLANG_STEP) if (found := one.match(name))), None)
    phase = phase_of(name)
    if found is None or phase is None or phase[1] is None:
        return None
    if phase[0] is Phase.DECODE:
        return StepRequests(0, phase[1])
    tokens, parts = found["tokens"] or "", found.groupdict()
    decoding = 0 if phase[0] is Phase.PREFILL else parts.get("generation")
    return StepRequests(int(tokens), int(decoding)) if tokens.isdigit() and decoding is not None else None


def _phase_time(phase: Phase, parts: list[tuple[int | None, int]], periods_ns: tuple[int, ...]) -> PhaseTime:
    requests = [count for count, _ in parts if count is not None]
    mean = sum(requests) / len(requests) if requests else None
    return PhaseTime(phase, len(parts), mean, sum(device_ns for _, device_ns in parts), periods_ns)
