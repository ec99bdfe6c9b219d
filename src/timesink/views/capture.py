"""The tables of `timesink capture`: steps with and without the profiler, and what collectives of the links take."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from timesink.knowledge.collectives import BUS_FACTORS, POINT_TO_POINT
from timesink.measures.ranks.job import job
from timesink.measures.steps import step_times
from timesink.model.trace import Trace
from timesink.units import NS_PER_MS
from timesink.views import Page, Sheet, declare, listed, sheet_of


def steps_sheet(alone_ms: Sequence[float], alone_step_ms: float | None, recorded_step_ms: float | None) -> Sheet:
    """Medians with and without the profiler, and percentiles of the steps without it where there are enough, in ms."""
    times = step_times([ms * NS_PER_MS for ms in alone_ms])
    overhead = recorded_step_ms / alone_step_ms - 1 if recorded_step_ms and alone_step_ms else None
    tail_ms = [time_ns and time_ns / NS_PER_MS for time_ns in (times.p90_ns, times.p99_ns)]
    columns = declare(
        "unprofiled_step_ms: without profiler [ms], unprofiled_p90_ms: its p90 [ms], unprofiled_p99_ms: its p99 [ms], "
        "profiled_step_ms: recorded [ms], overhead_ratio: longer by"
    )
    cells = (alone_step_ms, *tail_ms, recorded_step_ms, overhead)
    known = [(column, cell) for column, cell in zip(columns, cells, strict=True) if cell is not None]
    counted = f"{times.count} steps without the profiler; p90 from 10 on, p99 from 100; " if times.count else ""
    note = f"{counted}medians and percentiles; of several ranks the slowest"
    return sheet_of("steps", "Step", [tuple(cell for _, cell in known)], tuple(column for column, _ in known), note)


_LADDER: Final = tuple(4096 * 4**power for power in range(9))  # 4 KiB to 256 MiB
_ALL: Final = ("allreduce", "allgather", "reducescatter", "sendrecv", "send")
_MOST: Final = 16  # sizes of a kind that a job uses; further ones lie between


def sizes_of(trace: Trace | None) -> list[tuple[str, int]]:
    """What to measure: the kinds and sizes that the trace's ranks use, and a ladder of sizes of each kind."""
    if trace is None:
        return [(kind, size) for kind in _ALL for size in _LADDER]
    used: dict[str, set[int]] = {}
    for kind, size in job(trace).calls.select("kind", "bytes").drop_nulls().unique().rows():
        known = "send" if kind in POINT_TO_POINT else kind
        if known in _ALL and size > 0:
            used.setdefault(known, set()).add(size)
    chosen = {kind: {*sorted(sizes)[-_MOST:], *_LADDER} for kind, sizes in used.items()}
    chosen = chosen or {kind: set(_LADDER) for kind in _ALL}
    return [(kind, size) for kind in _ALL if kind in chosen for size in sorted(chosen[kind])]


def link_times_page(
    measured: Mapping[str, Any], calls: Sequence[tuple[str, int]], used: Sequence[tuple[str, int]]
) -> Page:
    """One row per collective; bandwidths by the formulae of nccl-tests. `used`: those of the job."""
    ranks = int(measured["ranks"])
    rows = []
    for call in measured["calls"]:
        kind, size, time_ns = str(call["kind"]), int(call["bytes"]), float(call["time_ns"])
        rate = size / time_ns
        own = "yes" if (kind, size) in set(used) else ""
        rows.append((kind, size, time_ns, round(rate, 2), round(rate * BUS_FACTORS[kind](ranks), 2), own))
    machine = f"{ranks} x {measured['gpu']}" if measured.get("gpu") else f"{ranks} processes without a GPU"
    sheet = listed("capture.collectives", rows)
    return Page(f"{len(calls)} collectives on {machine}, {measured['library']}", (sheet,))
