"""How many leading steps are warm-up: slower than the rest, or doing set-up work that the rest does not.

A lone slow step later in the run is no warm-up: it stays and shows in the high quantiles. Set-up calls in every step
(allocation churn, recompilation) are the program's steady state and drop nothing.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.step_marks import found_steps
from timesink.model.names import matches
from timesink.model.tables import API_CALLS, HOST_OPS, RANGES
from timesink.model.trace import Trace

SETUP_CALL: Final = (
    r"^(cuda|hip)(Malloc(Host|Managed|Pitch|3D)?|HostMalloc|HostAlloc|HostRegister|Free|FreeHost|HostFree)(_v\d+)?$"
    r"|^cu(MemAlloc|MemHostAlloc|MemCreate|ModuleLoad|LibraryLoad|CtxCreate)|^hip(Module|Library)Load"
    r"|^cudaLibraryLoad|^cudaGraphInstantiate|^cudaStreamBeginCapture"
)
SETUP_RANGE: Final = r"\(dynamo_timed\)|(?i)autotun|cudnn.*benchmark|ncclCommInit|init_process_group"
DEVIATIONS: Final = 3.0  # median + 3 median absolute deviations: the customary outlier fence
LEAST_DEVIATION: Final = 0.01  # of the median: steps that agree to a percent are alike, however small their spread


def warm_up_count(trace: Trace, periods: pl.DataFrame) -> pl.DataFrame:
    """rank, process, warm_up: the number of leading steps to drop, never more than half of those timed.

    `periods` has rank, process, step, period_ns.
    """
    counted = _setup_events(trace)
    rows = []
    for (rank, process), part in sorted(periods.partition_by("rank", "process", as_dict=True).items()):
        setup = part.join(counted, on=["rank", "process", "step"], how="left")["setup"].fill_null(0).to_numpy()
        dropped = _leading(part["period_ns"].to_numpy(), setup)
        rows.append((rank, process, int(part["step"][dropped]) if dropped else 0))
    return pl.DataFrame(rows, schema={"rank": pl.Int32, "process": pl.Int64, "warm_up": pl.Int32}, orient="row")


def _leading(period_ns: npt.NDArray[np.int64], setup: npt.NDArray[np.int64]) -> int:
    dropped = 0
    while dropped < period_ns.size // 2:
        later = period_ns[dropped + 1 :]
        middle = float(np.median(later))
        spread = max(float(np.median(np.abs(later - middle))), LEAST_DEVIATION * middle)
        slow = period_ns[dropped] > middle + DEVIATIONS * spread
        if not slow and setup[dropped] <= np.median(setup[dropped + 1 :]):
            break
        dropped += 1
    return dropped


def _setup_events(trace: Trace) -> pl.DataFrame:
    """rank, process, step, setup: how many set-up calls and ranges begin in each step."""
    columns = ["rank", "process", "start_ns"]
    parts = [
        frame.filter(matches(frame["name"], pattern)).select(columns)
        for frame, pattern in (
            (trace.get(API_CALLS), SETUP_CALL),
            (trace.get(RANGES), SETUP_RANGE),
            (trace.get(HOST_OPS), SETUP_RANGE),
        )
    ]
    events = pl.concat(parts).sort("start_ns")
    marks = found_steps(trace).frame.sort("host_start_ns")
    placed = events.join_asof(
        marks, left_on="start_ns", right_on="host_start_ns", by=["rank", "process"], check_sortedness=False
    )
    inside = placed.filter(pl.col("start_ns") < pl.col("host_end_ns"))
    return inside.group_by("rank", "process", "step").agg(pl.len().cast(pl.Int64).alias("setup"))
