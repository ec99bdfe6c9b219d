"""Where a change belongs in the program: the line, operator and kernel with most of the time that it takes away."""

from __future__ import annotations

import polars as pl

from timesink.diagnosis.verdicts import Where
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.lines.stacks import longest_line
from timesink.model.tables import DEVICE_OPS
from timesink.model.trace import Trace
from timesink.whatif.change import Case
from timesink.whatif.changes.kernels import ShortenKernels


def place_of(trace: Trace, kernels: ShortenKernels) -> Where:
    """The kernel name and the operator with the most of the time that goes, and the line behind most of it."""
    rank, device = kernels.device
    gone = pl.DataFrame({"row": kernels.rows, "gone": 1.0 - kernels.keep[Case.EXPECTED.value]})
    saved = kernel_facts(trace).frame.join(gone, on="row", how="inner")
    saved = saved.with_columns(pl.col("length") * pl.col("gone"))
    totals = saved.group_by("name", "op").agg(pl.col("length").sum(), pl.col("row").min())
    if not totals.height:
        return Where(rank=rank, device=device)
    longest = totals.sort("length", "row", descending=[True, False]).row(0, named=True)
    op = None if longest["op"] is None else str(longest["op"])
    line = longest_line(trace, saved["row"].to_numpy(), saved["length"])
    return Where(
        rank=rank,
        device=device,
        op=op,
        kernel=str(trace.get(DEVICE_OPS)["name"][int(longest["row"])]),
        file=line.file if line else None,
        line=line.line if line else None,
    )
