"""Collectives of one rank: NCCL and RCCL kernels, with what PyTorch says of the call that launched them.

PyTorch writes a `record_param_comms` operator for every call; since 2.4 the kernels carry the same arguments. An older
kernel is joined to its call by external id, else by its launch, which is inside the call on the same thread.
"""

import re
from collections.abc import Mapping

import numpy as np
import polars as pl

from timesink.knowledge.collectives import COLLECTIVE_WORDS, NCCL_KERNEL, after_kernel, letters
from timesink.model.names import mapped, matches
from timesink.model.schema import ColumnValues, Table, nulls
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS
from timesink.readers.kineto.decoded import DecodedRows, DecodedTrace

# Calls that PyTorch reports the same way and that move nothing.
_NO_TRANSFER = {"wait", "init", "destroy", "startcoalescing", "endcoalescing"}
_ELEMENT_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int": 4, "long": 8, "short": 2, "char": 1, "byte": 1, "bool": 1,
    "complexfloat": 8, "complexdouble": 16, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
}  # fmt: skip

_NUMBERS = (
    "on_device", "process", "thread", "stream", "device", "start_ns", "end_ns", "correlation", "external_id",
    "in_elements", "out_elements", "group_size", "sequence", "peer",
)  # fmt: skip
_TEXTS = ("collective", "dtype", "group", "description", "ranks")
_DESCRIBED = ("collective", "dtype", "group", "ranks", "in_elements", "out_elements", "group_size", "sequence", "peer")


def collective_kind(name: str) -> str:
    """The operation a PyTorch collective name or an NCCL kernel name stands for, or the name itself."""
    compact = letters(after_kernel(name.split("(", maxsplit=1)[0]) if re.match(NCCL_KERNEL, name) else name)
    return next((kind for kind in COLLECTIVE_WORDS if kind in compact), compact or "unknown")


def collectives(decoded: DecodedTrace, process: int, tables: Mapping[Table, pl.DataFrame]) -> ColumnValues | None:
    """One row per collective. None where neither operators nor device work were recorded."""
    if DEVICE_OPS not in tables and HOST_OPS not in tables:
        return None
    described, ops = _descriptions(decoded, decoded.tables["comms"]), tables.get(DEVICE_OPS, DEVICE_OPS.empty())
    columns = ["device", "stream", "correlation", "start_ns", "end_ns", "external_id", *_DESCRIBED]
    if not described.height:  # kernels tell by their names
        kernels = _named_kernels(ops).rename({"name": "collective"})
        return _columns(pl.concat([kernels, described], how="diagonal").select(columns), process)
    calls = described.filter(pl.col("on_device") == 0).with_row_index("call")
    kernels = _kernels(ops, described.filter(pl.col("on_device") == 1))
    kernels = _with_calls(kernels, calls, tables.get(API_CALLS))
    used = kernels["call"].drop_nulls()
    alone = calls.filter(~pl.col("call").is_in(used.implode()) & ~pl.col("quiet"))
    host_only = alone.with_columns(
        device=pl.lit(None, pl.Int32), stream=pl.lit(None, pl.Int64), correlation=pl.lit(None, pl.Int64)
    )
    rows_of_both = pl.concat([kernels.select(columns), host_only.select(columns)])
    return _columns(rows_of_both, process)


def _columns(rows_of_both: pl.DataFrame, process: int) -> ColumnValues:
    """What was said, in the units and words of the table."""
    kind = mapped(rows_of_both["collective"], _kinds, pl.String)
    kind = (kind.fill_null("unknown") if kind.null_count() else kind).cast(pl.Categorical())
    width = mapped(rows_of_both["dtype"], _widths, pl.Int64)
    kept = ("device", "stream", "correlation", "sequence", "dtype", "start_ns", "end_ns", "external_id", "group")
    return {name: rows_of_both[name] for name in kept} | {
        "process": process,
        "kind": kind,
        "group_ranks": rows_of_both["ranks"],
        "group_size": rows_of_both["group_size"].cast(pl.Int32, strict=False),
        "peer": rows_of_both["peer"].cast(pl.Int32, strict=False),
        "in_bytes": rows_of_both["in_elements"] * width,
        "out_bytes": rows_of_both["out_elements"] * width,
    }


def _kinds(names: pl.Series) -> pl.Series:
    return pl.Series([collective_kind(name) for name in names], dtype=pl.String)


def _widths(dtypes: pl.Series) -> pl.Series:
    return pl.Series([_ELEMENT_BYTES.get(name.lower().removeprefix("c10::")) for name in dtypes], dtype=pl.Int64)


def _descriptions(decoded: DecodedTrace, rows: DecodedRows) -> pl.DataFrame:
    """What events say of collectives; `quiet` marks calls that move nothing."""
    schema = dict.fromkeys(_NUMBERS, pl.Int64) | {"external_id": pl.UInt64, "device": pl.Int32, "on_device": pl.UInt8}
    columns = {}
    for name in _NUMBERS:
        column = rows.take(name)
        columns[name] = nulls(schema[name], rows.height) if column is None else column
    for name in _TEXTS:
        text = decoded.named(rows.take(name))
        columns[name] = nulls(pl.Categorical(), rows.height) if text is None else text
    frame = pl.DataFrame(columns)
    quiet = mapped(frame["collective"], _moves_nothing, pl.Boolean).fill_null(False)
    return frame.with_columns(quiet.alias("quiet"))


def _moves_nothing(kinds: pl.Series) -> pl.Series:
    return pl.Series([letters(kind) in _NO_TRANSFER for kind in kinds], dtype=pl.Boolean)


_OWN = ["device", "stream", "start_ns", "end_ns", "correlation"]
_WANTED = [*_OWN, "external_id", "name"]


def _named_kernels(ops: pl.DataFrame) -> pl.DataFrame:
    """Device work whose name says that it is of a collective."""
    return ops[_WANTED][np.flatnonzero(matches(ops["name"], NCCL_KERNEL).to_numpy())]


def _kernels(ops: pl.DataFrame, described: pl.DataFrame) -> pl.DataFrame:
    """Device work of collectives, with what its own event says."""
    own, by_name = _OWN, _named_kernels(ops)
    if described.height:
        marked = ops[_WANTED].join(described.select(own), on=own, how="semi", nulls_equal=True, maintain_order="left")
        by_name = pl.concat([by_name, marked]).unique(maintain_order=True)
    single = described.unique(own, keep="first", maintain_order=True).select(*own, *_DESCRIBED)
    joined = by_name.join(single, on=own, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(
        pl.col("collective").is_not_null().alias("marked"), collective=pl.coalesce("collective", "name")
    )


def _with_calls(kernels: pl.DataFrame, calls: pl.DataFrame, launches: pl.DataFrame | None) -> pl.DataFrame:
    """Kernels with the call each belongs to, and with what only the call says."""
    by_id = calls.drop_nulls("external_id").unique("external_id", keep="first", maintain_order=True)
    kernels = kernels.join(by_id.select("external_id", "call"), on="external_id", how="left", maintain_order="left")
    if launches is not None and calls.height and kernels["call"].null_count():
        inside = _call_around(kernels, calls, launches)
        kernels = kernels.with_columns(call=pl.coalesce("call", inside))
    from_call = calls.select("call", *(pl.col(name).alias(f"call_{name}") for name in _DESCRIBED))
    kernels = kernels.join(from_call, on="call", how="left", maintain_order="left")
    # The call that closes a batch launches its kernel and says nothing of what that moves: the kernel's name does.
    closing = pl.col("call").is_in(calls.filter("quiet")["call"].implode())
    kernels = kernels.with_columns(pl.when(~closing).then("call_collective").alias("call_collective"))
    return kernels.with_columns(
        pl.when("marked").then(name).otherwise(pl.coalesce(f"call_{name}", name)).alias(name) for name in _DESCRIBED
    )


def _call_around(kernels: pl.DataFrame, calls: pl.DataFrame, launches: pl.DataFrame) -> pl.Series:
    """For each kernel the innermost collective call that holds its launch, or null."""
    starts = launches.drop_nulls("correlation").unique("correlation", keep="first", maintain_order=True)
    starts = starts.select("correlation", "thread", pl.col("start_ns").alias("launch_ns"))
    launched = kernels.select("correlation").with_row_index("row")
    launched = launched.join(starts, on="correlation", how="inner").sort("launch_ns")
    opened = calls.select("thread", "call", pl.col("start_ns").alias("launch_ns"), "end_ns").sort("launch_ns")
    around = launched.join_asof(opened, on="launch_ns", by="thread", strategy="backward", check_sortedness=False)
    around = around.filter(pl.col("launch_ns") < pl.col("end_ns")).unique("row", keep="first", maintain_order=True)
    rows = pl.DataFrame({"row": pl.int_range(kernels.height, dtype=pl.get_index_type(), eager=True)})
    return rows.join(around.select("row", "call"), on="row", how="left", maintain_order="left")["call"]
