"""Kernels with fewer blocks than the device has multiprocessors: the others have nothing to do meanwhile.

A block runs on one multiprocessor. Kernels that run beside others are left out, and so are those of streams in
lockstep, whose remedy is another. A kernel that spread over all multiprocessors would take blocks / SMs
of its time at best; half of that gain is what is expected, since the same work is cut in more pieces.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.measures.kernel_facts import kernel_facts, multiprocessors
from timesink.measures.lockstep import lockstep
from timesink.measures.memo import remembered
from timesink.measures.shortened import Shortened, all_rows
from timesink.model.trace import Trace

# Shorter kernels are bound by latency, whatever their grid.
SHORT_NS: Final = 15_000
_NO_GRID_OF_ITS_OWN: Final = ("communication",)


@remembered
def small_grids(trace: Trace) -> tuple[Shortened, ...]:
    """Per device whose multiprocessors and grids are known: kernels with less than one block for every second SM."""
    facts, counts = kernel_facts(trace), multiprocessors(trace)
    serial = all_rows(part.serial for part in lockstep(trace))
    found = []
    for device in facts.devices:
        mine = facts.on(device).with_columns(_overlapped().alias("overlapped")).filter(pl.col("blocks").is_not_null())
        if device not in counts or not mine.height:
            continue
        small = mine.filter(
            (2 * pl.col("blocks") < counts[device])
            & (pl.col("length") > SHORT_NS)
            & ~pl.col("family").is_in(_NO_GRID_OF_ITS_OWN)
            & ~pl.col("row").is_in(pl.Series(serial).implode())
            & ~pl.col("overlapped")
        )
        best = small["blocks"].to_numpy() / counts[device]
        expected = np.minimum(2.0 * best, 1.0)
        found.append(Shortened(device, small["row"].to_numpy(), ((1.0 + expected) / 2.0, expected, best)))
    return tuple(found)


@remembered
def grids_known(trace: Trace) -> bool:
    """Whether any kernel's grid and its device's multiprocessors were recorded."""
    facts, counts = kernel_facts(trace), multiprocessors(trace)
    return any(device in counts and facts.on(device)["blocks"].count() for device in facts.devices)


def _overlapped() -> pl.Expr:
    """Kernels that run beside another for more than half of their time; rows are in order of start."""
    before = pl.col("end_ns").cum_max().shift(1) - pl.col("start_ns")
    after = pl.col("end_ns") - pl.col("start_ns").shift(-1)
    return (2 * pl.max_horizontal(before, after) > pl.col("length")).fill_null(False)
