"""Input preparation that carries no name: host work at the head of a step, up to the copy that brings the batch.

A step whose first device work is a copy from host memory began by making what it copies. That stretch, from the step's
mark to the last such copy call before any other launch, less CUDA calls inside it, is taken for input preparation. It
is an inference: a program that logs or polls there has that counted too. Steps known by their kernels only have no mark
on the host, and a copy later in a step (a scalar, a mask) is no batch: neither yields anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.links import launch_links
from timesink.measures.memo import remembered
from timesink.measures.step_markers import Marker
from timesink.measures.step_marks import found_steps
from timesink.model.intervals import Intervals
from timesink.model.tables import API_CALLS, DEVICE_OPS
from timesink.model.trace import Trace

_THREAD: Final = ("rank", "process", "thread")
_PROCESS: Final = ("rank", "process")


@remembered
def staged_input(trace: Trace) -> Mapping[tuple[int, int, int], Intervals]:
    """Inferred input preparation by (rank, process, thread), the thread being the one that copies."""
    found = found_steps(trace)
    if found.marker in (None, Marker.KERNEL_PATTERN):
        return {}
    heads = _heads(found.frame, _launching_calls(trace))
    calls = trace.get(API_CALLS)
    stretches: dict[tuple[int, int, int], Intervals] = {}
    for key, part in sorted(heads.partition_by(_THREAD, as_dict=True, maintain_order=True).items()):
        whole = Intervals.union_of(part["host_start_ns"].to_numpy(), part["copy_start_ns"].to_numpy())
        mine = calls.filter(pl.all_horizontal(pl.col(name) == value for name, value in zip(_THREAD, key, strict=True)))
        stretches[int(key[0]), int(key[1]), int(key[2])] = whole - Intervals.of(mine)
    return stretches


def _launching_calls(trace: Trace) -> pl.DataFrame:
    """Calls that launched device work, by start; `brings` says that all of it was copied from host memory."""
    ops, calls, links = trace.get(DEVICE_OPS), trace.get(API_CALLS), launch_links(trace)
    from_host = ((ops["kind"] == "copy") & (ops["copy_kind"] == "h2d")).fill_null(False).to_numpy()
    brings = np.ones(calls.height, np.bool_)
    brings[links.call[links.linked & ~from_host]] = False
    launching = calls.select(*_THREAD, "start_ns").with_columns(pl.Series("brings", brings))
    return launching.filter(pl.Series(links.launching(calls.height))).sort("start_ns", maintain_order=True)


def _heads(steps: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """rank, process, thread, host_start_ns, copy_start_ns of each step that begins with copies from host memory."""
    placed = calls.join_asof(
        steps.select(*_PROCESS, "step", "host_start_ns", "host_end_ns").sort("host_start_ns"),
        left_on="start_ns",
        right_on="host_start_ns",
        by=_PROCESS,
        check_sortedness=False,
    ).filter(pl.col("start_ns") < pl.col("host_end_ns"))
    in_head = pl.col("brings").cast(pl.Int8).cum_min().over(*_PROCESS, "step") == 1
    return (
        placed.filter(in_head)
        .group_by(*_PROCESS, "step")
        .agg(
            pl.col("thread").last(),
            pl.col("host_start_ns").first(),
            pl.col("start_ns").last().alias("copy_start_ns"),
        )
        .sort(*_PROCESS, "step")
    )
