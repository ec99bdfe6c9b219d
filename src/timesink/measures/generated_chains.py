"""Neighbouring pointwise kernels that a compiler generated, each for a graph of its own.

TorchInductor fuses neighbouring pointwise operations of one graph, so two such kernels in a row belong to two graphs.
What one graph would win depends on what binds them. With b the time of a kernel's bytes at attainable bandwidth and
t its own, c = sqrt(t^2 - b^2) is taken for its arithmetic; the fused kernel then takes sqrt(max(b)^2 + sum(c)^2). Where
shapes are not recorded, half of what the shorter ones take is expected to stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from timesink.measures.attainable import DRAM_SHARE
from timesink.measures.compiled_regions import compiled_regions
from timesink.measures.gaps import device_gaps
from timesink.measures.kernel_facts import device_peaks, kernel_facts
from timesink.measures.memo import remembered
from timesink.measures.shortened import Shortened
from timesink.measures.timeline import Device
from timesink.model.intervals import Intervals
from timesink.model.tables import HOST_OPS
from timesink.model.trace import Trace
from timesink.model.work.arguments import Operator

Floats = npt.NDArray[np.float64]

_LEAST: Final = 2
_SHORT_NS: Final = 6_000.0  # bound by latency: the fused kernel takes no longer than one of them
_UNKNOWN_KEPT: Final = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedChains:
    """One device: the kernels of runs, what they keep in one graph, and `idle` time that one of them ended. `pieces` is
    how many kernels a run has on average."""

    shortened: Shortened
    idle: Intervals
    pieces: float


@remembered
def generated_chains(trace: Trace) -> tuple[GeneratedChains, ...]:
    """Per device: runs of at least two generated pointwise kernels on a stream. Where compiled regions are recorded, a
    run is cut into calls, of as many kernels as there are graphs: calls of one function do not fuse with each other."""
    facts, gpus = kernel_facts(trace), device_peaks(trace)
    graphs = {part.device: part.graphs for part in compiled_regions(trace)}
    found = []
    for device in facts.devices:
        mine = facts.on(device)
        if mine["fused"].null_count() == mine.height:
            continue
        mine = mine.sort("stream", "start_ns", "row")
        member = ((mine["fused"] == "inductor") & (mine["family"] == "pointwise")).fill_null(False)
        breaks = ~member | (mine["stream"] != mine["stream"].shift(1)).fill_null(True)
        runs = mine.with_columns(breaks.cum_sum().alias("run")).filter(member)
        if device in graphs:
            place = pl.int_range(pl.len()).over("run") // max(graphs[device], 1)
            runs = runs.with_columns(pl.struct("run", place.alias("call")).rank("dense").alias("run"))
        runs = runs.filter(pl.len().over("run") >= _LEAST)
        if runs.height:
            gpu = gpus.get(device)
            rate = gpu.dram_bytes_per_s * DRAM_SHARE if gpu else None
            short = _shortened(device, runs, _memory_ns(trace, runs, rate))
            found.append(GeneratedChains(short, _idle(trace, device, short), runs.height / runs["run"].n_unique()))
    return tuple(found)


def _idle(trace: Trace, device: Device, short: Shortened) -> Intervals:
    rows = pl.Series(short.rows).implode()
    here = (pl.col("rank") == device[0]) & (pl.col("device") == device[1])
    ended = [gaps.filter(here & pl.col("op").is_in(rows)) for gaps in device_gaps(trace).slices()]
    return Intervals.union_all(Intervals.of(gaps) for gaps in ended if gaps.height)


def _memory_ns(trace: Trace, runs: pl.DataFrame, bytes_per_s: float | None) -> Floats:
    """The time of each kernel's bytes, by the tensors its operator names; NaN where they or the rate are unknown."""
    host = trace.get(HOST_OPS)
    if bytes_per_s is None or not host.height:
        return np.full(runs.height, np.nan)
    rows = runs["host_op"].to_numpy()
    texts = host[np.maximum(rows, 0)].select(pl.col("name", "input_shapes", "input_dtypes").cast(pl.String)).rows()
    sizes = [_bytes(*text) if row >= 0 else None for row, text in zip(rows.tolist(), texts, strict=True)]
    return np.array([np.nan if size is None else size / bytes_per_s * 1e9 for size in sizes], np.float64)


@lru_cache(maxsize=4096)
def _bytes(name: str, shapes: str | None, dtypes: str | None) -> int | None:
    operator = Operator.recorded(name, shapes, dtypes, None, None) if shapes and dtypes else None
    tensors = operator.tensors() if operator and name.startswith("triton_") else []
    return sum(tensor.bytes for tensor in tensors) or None


def _shortened(device: Device, runs: pl.DataFrame, memory_ns: Floats) -> Shortened:
    """Every kernel of a run keeps the same share of its time."""
    length = runs["length"].to_numpy().astype(np.float64)
    _, run = np.unique(runs["run"].to_numpy(), return_inverse=True)
    total = np.bincount(run, length)
    longest = np.zeros(total.size)
    np.maximum.at(longest, run, length)
    moving = np.minimum(np.where(np.isnan(memory_ns), length, memory_ns), length)
    moving = np.where(length <= _SHORT_NS, length, moving)
    most = np.zeros(total.size)
    np.maximum.at(most, run, moving)
    fused = np.maximum(np.hypot(most, np.bincount(run, np.sqrt(length**2 - moving**2))), longest)
    unknown = np.bincount(run, np.isnan(memory_ns) & (length > _SHORT_NS)) > 0
    fused = np.where(unknown, longest + _UNKNOWN_KEPT * (total - longest), fused)
    expected = np.minimum(fused / np.maximum(total, 1.0), 1.0)[run]
    best = (longest / np.maximum(total, 1.0))[run]
    order = np.argsort(runs["row"].to_numpy())
    keep = ((1.0 + expected) / 2.0, expected, np.minimum((expected + best) / 2.0, expected))
    return Shortened(device, runs["row"].to_numpy()[order], (keep[0][order], keep[1][order], keep[2][order]))
