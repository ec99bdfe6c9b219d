"""Operators far from the attainable bound that no measure of a known pattern explains: work for a kernel profiler.

Kernels that belong to casts, layouts, elementwise chains, attention in pieces, wide types, misaligned products, small
grids, streams in turns or an unfused optimizer are left out: their cause is known. Of the rest, equal calls of an
operator are held against max(operations / attainable rate, bytes / attainable bandwidth, floor per kernel).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from timesink.measures.kernels.attainable import attainable
from timesink.measures.kernels.attention import attention_pieces
from timesink.measures.kernels.conversions import cast_kernels, layout_kernels
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.optimizer import optimizer_kernels
from timesink.measures.kernels.pointwise import eager_chains
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.kernels.shapes import misaligned_products
from timesink.measures.kernels.shortened import Shortened, all_rows
from timesink.measures.kernels.small_grids import lockstep, small_grids
from timesink.model.arrays import Int64Array
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace, remembered

USUAL_RATIO: Final = 0.7  # of the attainable bound: what a well-written kernel of everyday shapes reaches
_KEY: Final = ["rank", "device", "op", "input_shapes", "math"]


@dataclass(frozen=True, slots=True, eq=False)
class FarOperator:
    """Equal calls of an operator: what limits them at best (memory, compute, latency), the share of that bound they
    reach, and what their kernels would keep at seven tenths of it."""

    name: str
    shapes: str
    limiter: str
    attained_ratio: float
    kernels: Shortened


@remembered
def far_operators(trace: Trace) -> tuple[FarOperator, ...]:
    """Every operator whose bound is known, longest first; those that reach the usual share keep all of their time."""
    known = attainable(trace).operators
    host = trace.get(HOST_OPS)
    if not known.height or not host.height:
        return ()
    calls = host.select(pl.col("name", "input_shapes").cast(pl.String)).rename({"name": "op"})
    calls = calls.with_row_index("host_op").with_columns(pl.col("host_op").cast(pl.Int64))
    frame = kernel_facts(trace).frame.filter(~pl.col("row").is_in(pl.Series(_explained(trace)).implode()))
    frame = frame.drop("op").join(calls, on="host_op", how="inner")
    frame = frame.with_columns(pl.col("math").cast(pl.String).fill_null(""))
    bound = (
        known.rename({"name": "op"})
        .group_by(_KEY)
        .agg(
            pl.col("limiter").sort_by("device_ns", descending=True).first(),
            pl.col("bound_ns").sum() / pl.col("calls").sum(),
        )
    )  # calls of one shape and several strides are one operator here
    joined = frame.join(bound, on=_KEY, how="inner", maintain_order="left")
    found = [_operator(key, part) for key, part in joined.group_by(_KEY, maintain_order=True)]
    return tuple(sorted(found, key=lambda one: (-one.kernels.whole(trace).total_ns, one.name, one.shapes)))


def _operator(key: tuple[object, ...], part: pl.DataFrame) -> FarOperator:
    rank, device, name, shapes, _ = key
    reached = float(part["bound_ns"][0]) * part["host_op"].n_unique() / max(int(part["length"].sum()), 1)
    expected = min(reached / USUAL_RATIO, 1.0)
    keep = [np.full(part.height, share) for share in ((1.0 + expected) / 2.0, expected, min(reached, expected))]
    kernels = Shortened((int(str(rank)), int(str(device))), part["row"].to_numpy(), (keep[0], keep[1], keep[2]))
    return FarOperator(str(name), str(shapes), str(part["limiter"][0]), reached, kernels)


def _explained(trace: Trace) -> Int64Array:
    """Rows of kernels of known patterns."""
    wide = [kind for part in wide_kernels(trace) for kind in (part.fp32, part.tf32, part.fp64)]
    return all_rows(
        [
            *cast_kernels(trace),
            *layout_kernels(trace),
            *attention_pieces(trace),
            *eager_chains(trace),
            *wide,
            *misaligned_products(trace),
            *small_grids(trace),
            *(part.serial for part in lockstep(trace)),
            *(part.unfused for part in optimizer_kernels(trace)),
        ]
    )
