"""Captures without what marks their steps, and with the ranges that libraries and frameworks leave in any capture."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl

from timesink.knowledge.ranges import PART_OF_STEP, STEP
from timesink.measures.timeline.attribution import launch_links
from timesink.model.names import matches
from timesink.model.nesting import Nesting
from timesink.model.tables import API_CALLS, DEVICE_OPS, HOST_OPS, RANGES
from timesink.model.trace import Trace
from timesink.records import replace

MARK: Final = rf"^ProfilerStep#|{STEP}|^\[pl\]"
PYTORCH: Final = r"^ProfilerStep#|^Optimizer|enumerate\(DataLoader"


def _named(frame: pl.DataFrame, pattern: str) -> pl.Series:
    return matches(frame["name"], pattern)


def bare(trace: Trace) -> Trace:
    """Without any range, and without the operators that say where a step begins."""
    tables = {**trace.tables, RANGES: trace.get(RANGES).clear()}
    if HOST_OPS in trace:
        tables[HOST_OPS] = trace[HOST_OPS].filter(~_named(trace[HOST_OPS], PYTORCH))
    return replace(trace, tables=tables)


def unmarked(trace: Trace) -> Trace:
    """Without the ranges that are steps, all others left where they are."""
    ranges = trace.get(RANGES)
    is_mark = _named(ranges, MARK) & ~_named(ranges, PART_OF_STEP)
    tables = {**trace.tables, RANGES: _nested(ranges.filter(~is_mark))}
    if HOST_OPS in trace:
        tables[HOST_OPS] = trace[HOST_OPS].filter(~_named(trace[HOST_OPS], r"^ProfilerStep#"))
    return replace(trace, tables=tables)


def _nested(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges in order, each with its depth."""
    order = [*RANGES.sorted_by]
    ranges = ranges.sort(order, descending=[name == "end_ns" for name in order])
    return RANGES.check(ranges.with_columns(pl.Series("depth", Nesting.of(ranges).depth, pl.Int32)).sort(order))


def _launches(trace: Trace) -> pl.DataFrame:
    """Launching calls in order, with the `kernel` that the first of them that was launched is."""
    links, ops = launch_links(trace), trace.get(DEVICE_OPS)
    call = pl.DataFrame({"call": links.call, "kernel": ops["name"].cast(pl.String)}).filter(pl.col("call") >= 0)
    first = call.unique("call", keep="first", maintain_order=True)
    rows = trace.get(API_CALLS).with_row_index("call").with_columns(pl.col("call").cast(pl.Int64))
    joined = first.with_columns(pl.col("call").cast(pl.Int64)).join(rows, on="call")
    return joined.sort("rank", "process", "thread", "start_ns")


def around_calls(every: int, names: tuple[str, ...], domain: str | None) -> Callable[[Trace], pl.DataFrame]:
    """A range around each `every`-th launch, its name by its kernel: the same kernel is the same call of a library."""

    def ranges(trace: Trace) -> pl.DataFrame:
        rows = _launches(trace)
        code = rows["kernel"].rank("dense").cast(pl.Int64) - 1
        chosen = rows.filter(code % every == 0)
        name = pl.Series("name", [names[at // every % len(names)] for at in code.filter(code % every == 0)], pl.String)
        return _ranges(chosen.with_columns(name), domain)

    return ranges


def around_layers(name: str, domain: str | None) -> Callable[[Trace], pl.DataFrame]:
    """A range from each run of the commonest kernel of a thread to its next, as a framework puts around a layer."""

    def ranges(trace: Trace) -> pl.DataFrame:
        parts = []
        rows = _launches(trace)
        for part in rows.partition_by("rank", "process", "thread", maintain_order=True):
            common = part["kernel"].value_counts().sort("count", "kernel", descending=[True, False])["kernel"][0]
            at = np.flatnonzero((part["kernel"] == common).to_numpy())
            if at.size < 6:
                continue
            begun = part["start_ns"].to_numpy()[at]
            length = int(np.median(np.diff(begun)))
            end = np.minimum(np.append(begun[1:], begun[-1] + length) - 1, begun + 2 * length)
            end = np.maximum(end, begun + 1)
            parts.append(part[at].with_columns(pl.Series("end_ns", end, pl.Int64), name=pl.lit(name)))
        return _ranges(pl.concat(parts), domain) if parts else trace.get(RANGES).clear()

    return ranges


def _ranges(rows: pl.DataFrame, domain: str | None) -> pl.DataFrame:
    schema = RANGES.check(pl.DataFrame(schema={n: c.dtype for n, c in RANGES.columns.items()})).schema
    filled = {"kind": "push_pop", "depth": 0, "domain": domain}
    kept = rows.select(n for n in rows.columns if n in schema and n not in filled)
    kept = kept.with_columns(**{n: pl.lit(v) for n, v in filled.items()})
    missing = [pl.lit(None).alias(n) for n in schema if n not in kept.columns]
    return kept.with_columns(missing).select(pl.col(n).cast(kind) for n, kind in schema.items())


def with_ranges(planted: Callable[[Trace], pl.DataFrame]) -> Callable[[Trace], Trace]:
    """A capture of which these are the only ranges."""

    def changed(trace: Trace) -> Trace:
        trace = bare(trace)
        return replace(trace, tables={**trace.tables, RANGES: _nested(planted(trace))})

    return changed


WAYS: Final[Mapping[str, Callable[[Trace], Trace]]] = {
    "bare": bare,
    "unmarked": unmarked,
    "nccl": with_ranges(around_calls(3, ("ncclAllGather", "ncclReduceScatter"), "NCCL")),
    "nccl, no domain": with_ranges(around_calls(2, ("ncclAllReduce",), None)),
    "cudnn": with_ranges(around_calls(2, ("cudnnConvolutionForward", "cudnnBackendExecute"), "cuDNN")),
    "cublas": with_ranges(around_calls(1, ("cublasGemmEx", "cublasLtMatmul"), "cuBLAS")),
    "cub": with_ranges(around_calls(5, ("cub::DeviceReduce::Sum", "thrust::sort"), "CCCL")),
    "layers": with_ranges(around_layers("TransformerLayer.forward", None)),
    "layers of a domain": with_ranges(around_layers("te.LayerNormLinear", "TransformerEngine")),
    "hidden units": with_ranges(around_layers("FullyShardedDataParallel.forward", None)),
    "micro": with_ranges(around_layers("micro_batch", None)),
}
