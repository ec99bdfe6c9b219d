"""Framework operators that a program recorded as NVTX ranges: `torch.autograd.profiler.emit_nvtx`.

The name of each such range says what else is known: ``aten::mm, seq = 12, op_id = 7, sizes = [[64, 512], [512, 8]]``.
"""

from __future__ import annotations

import polars as pl

from timesink.knowledge.profiler_texts import EMITTED_OPERATOR, EMITTED_SEQUENCE, EMITTED_SHAPES
from timesink.model.tables import HOST_OPS
from timesink.readers.nsys.session import combined, part_of

_PLACE = ("rank", "process", "thread", "start_ns", "end_ns")


def operators(named: pl.DataFrame) -> pl.DataFrame:
    """`host_ops` of the ranges that are operators; the ranges stay ranges too."""
    name = pl.col("name").cast(pl.String)
    emitted = named.filter(~pl.col("start_end")).with_columns(name.str.extract(EMITTED_OPERATOR).alias("operator"))
    emitted = emitted.drop_nulls("operator")
    columns = {
        **{column: emitted[column] for column in _PLACE},
        "name": emitted["operator"],
        "sequence_number": emitted.select(name.str.extract(EMITTED_SEQUENCE).cast(pl.Int64, strict=False)).to_series(),
        "input_shapes": emitted.select(name.str.extract(EMITTED_SHAPES)).to_series(),
    }
    return combined(HOST_OPS, [part_of(HOST_OPS, columns)])
