"""Runs of neighbouring eager kernels that each read and write memory once, where one kernel could do all of it.

Science 6.4: a fused region takes at least as long as its external traffic; here the longest member stands for that,
since it reads and writes at least what the region has to. Kernels that only cast or change a layout neither break a
run nor count: they have causes of their own. So do kernels of an optimizer, kernels in float64, and what belongs to
attention spelled out.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from timesink.measures.kernels.attention import attention_pieces
from timesink.measures.kernels.conversions import copies
from timesink.measures.kernels.facts import kernel_facts
from timesink.measures.kernels.precision import wide_kernels
from timesink.measures.kernels.shortened import Shortened, all_rows
from timesink.model.arrays import Int64Array
from timesink.model.trace import Trace, remembered
from timesink.whatif.graph import Range

_MEMBERS: Final = ("pointwise", "reduction", "fill")
_JOINS: Final = "concat"  # a compiler writes the pieces where they belong; by itself it makes no chain
_LEAST: Final = 3  # a run of two is an operation and its activation
_OTHERS_KEPT: Final = Range(0.5, 0.1, 0.0)
_READ: Final = ("row", "stream", "start_ns", "length", "name", "family")
_ONE_SIZE: Final = 8  # members move within this factor of the longest: scalars at the end of a loss are no chain


@remembered
def eager_chains(trace: Trace) -> tuple[Shortened, ...]:
    """Per device: eager runs of at least three kernels. The longest member of a run is not among the rows."""
    facts = kernel_facts(trace)
    specific = np.union1d(all_rows(attention_pieces(trace)), all_rows(part.fp64 for part in wide_kernels(trace)))
    eager = pl.col("family").is_in([*_MEMBERS, _JOINS]) & pl.col("fused").is_null() & ~pl.col("optimizer")
    own = ~pl.col("row").is_in(pl.Series(specific).implode())
    member = (eager & own & pl.col("copies").is_null()).alias("member")
    found = []
    for device in facts.devices:
        mine = copies(trace, facts.on(device)).select(*_READ, "copies", member)
        rows = _shorter_members(mine.sort("stream", "start_ns", "row"))
        if rows.size:
            found.append(Shortened.of(device, rows, (rows, _OTHERS_KEPT)))
    return tuple(found)


def _shorter_members(mine: pl.DataFrame) -> Int64Array:
    """All members of runs but the longest of each, for kernels in order of stream and start."""
    skipped = mine["copies"].is_not_null() & ~mine["member"]
    kept = mine.filter(~skipped)
    breaks = ~pl.col("member") | (pl.col("stream") != pl.col("stream").shift(1)).fill_null(True)
    runs = kept.with_columns(breaks.cum_sum().alias("run")).filter("member")
    longest = pl.col("length").max().over("run")
    runs = runs.filter(pl.col("length") * _ONE_SIZE >= longest)
    different = pl.col("name").n_unique().over("run") > 1  # one operation over and over need not be a chain
    working = (pl.col("family") != _JOINS).sum().over("run")
    runs = runs.filter((working >= _LEAST) & different)
    first_longest = pl.col("row").sort_by("length", "row", descending=[True, False]).first().over("run")
    return np.sort(runs.filter(pl.col("row") != first_longest)["row"].to_numpy())
