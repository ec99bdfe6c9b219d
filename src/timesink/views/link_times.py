"""What `timesink capture nccl-bench` measures, and the table that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from timesink.knowledge.collectives import BUS_FACTORS, POINT_TO_POINT
from timesink.measures.ranks.job import job
from timesink.model.trace import Trace
from timesink.views.page import Field, Page, Sheet, figures

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
    columns = (
        Field("kind", "collective", is_name=True),
        *figures(bytes="size", time_ns="time", algbw_gb_per_s="algorithm GB/s", busbw_gb_per_s="bus GB/s"),
        Field("used", "the job's", is_name=True),
    )
    rows = []
    for call in measured["calls"]:
        kind, size, time_ns = str(call["kind"]), int(call["bytes"]), float(call["time_ns"])
        rate = size / time_ns
        own = "yes" if (kind, size) in set(used) else ""
        rows.append((kind, size, time_ns, round(rate, 2), round(rate * BUS_FACTORS[kind](ranks), 2), own))
    machine = f"{ranks} x {measured['gpu']}" if measured.get("gpu") else f"{ranks} processes without a GPU"
    note = "calls one after another; small ones take what launching them takes, as in nccl-tests"
    sheet = Sheet("collectives", "collectives", columns, tuple(rows), note)
    return Page(f"{len(calls)} collectives on {machine}, {measured['library']}", (sheet,))
