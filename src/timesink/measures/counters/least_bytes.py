"""The bytes that a profiled kernel must read and write at least: those of the operator that launches it in a timeline.

A profiled launch is found in the timeline by function, grid and block (`kernel_matches`). Where operators of recorded
shapes launch it, one kernel a call, the operator's compulsory traffic is the kernel's: every operand read once, every
result written once. Several shapes may take the same kernel and grid: then the bytes are not known.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from timesink.knowledge.work import recorded_work
from timesink.measures.counters.comparison import KernelMatch, kernel_matches
from timesink.measures.counters.counters import KernelCounters, kernel_counters
from timesink.measures.kernels.attainable import SIGNATURE, operator_calls
from timesink.measures.kernels.facts import kernel_facts
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace, remembered
from timesink.startup import dataclass

_OTHER_SHAPE: Final = 2.0  # times: clocks held down and caches flushed by the profiler explain no more


@dataclass(frozen=True, slots=True)
class LeastBytes:
    """Bytes to read and write at least, and the operator and shapes they are of: empty where a person gave the bytes.
    Where they are not known, `value` is None and `why` says why."""

    value: float | None
    operator: str = ""
    why: str = ""


@remembered
def least_bytes(trace: Trace) -> dict[tuple[int, int], LeastBytes]:
    """By (rank, profile): what each launch of a report must move; empty without a timeline read with it."""
    if not trace.get(DEVICE_OPS).height:
        return {}
    calls = operator_calls(trace, kernel_facts(trace).frame).filter(
        (pl.col("kernels") == 1) & pl.col("input_shapes").is_not_null()
    )
    matches = kernel_matches(trace)
    launches = (((kernel.rank, kernel.profile), kernel) for kernel in kernel_counters(trace))
    return {key: _of_launch(kernel, matches.get(key), calls) for key, kernel in launches}


def _of_launch(kernel: KernelCounters, match: KernelMatch | None, calls: pl.DataFrame) -> LeastBytes:
    if match is None or not match.is_exact:
        return LeastBytes(None, why="the timeline has no launch of this kernel, grid and block")
    times = match.mean_ns / kernel.duration_ns if kernel.duration_ns else 1.0
    if not 1 / _OTHER_SHAPE <= times <= _OTHER_SHAPE:
        return LeastBytes(None, why=f"in the timeline it takes {times:.2g} x as long, as another shape would")
    rows = calls.filter(pl.col("row").is_in(match.rows.cast(calls["row"].dtype).implode()))
    works = {_work(row) for row in rows.select(SIGNATURE).unique(maintain_order=True).iter_rows(named=True)}
    if len(works) == 1:
        return works.pop()
    what = (
        f"operators of {len(works)} shapes launch it" if works else "no operator of recorded shapes launches it alone"
    )
    return LeastBytes(None, why=f"in the timeline {what}")


def _work(row: dict[str, str | None]) -> LeastBytes:
    name, shapes = row["name"] or "", row["input_shapes"] or ""
    work = recorded_work(name, shapes, row["input_dtypes"] or "", row["input_strides"], row["concrete_inputs"])
    if work is None or not work.bytes:
        return LeastBytes(None, why=f"what {name} must move is not known")
    return LeastBytes(float(work.bytes), f"{name} {shapes}")
